package cli

import (
	"github.com/spf13/cobra"

	"watchlab/bench/report"
)

func newList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the families, their variants and what each guarantees",
		Example: `  watchlab list`,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return report.Variants(cmd.OutOrStdout()) },
	}
}
