package cli

import (
	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
)

// newCell returns the hidden command that --memory runs for each play of a cell.
func newCell() *cobra.Command {
	return &cobra.Command{
		Use:    experiment.CellVerb + " NAME",
		Short:  "Play one cell of the experiment on standard input",
		Hidden: true,
		Args:   takes(1, 1, "a cell's name, and a Spec on standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return badField(experiment.ServeCell(cmd.Context(), args[0]))
		},
	}
}
