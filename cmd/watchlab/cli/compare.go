package cli

import (
	"math"

	"github.com/spf13/cobra"

	comparison "watchlab/bench/compare"
)

func newCompare() *cobra.Command {
	return &cobra.Command{
		Use:   "compare OLD [NEW…]",
		Short: "Compare runs and benchmark files in one table",
		Long: `compare reads results folders and files in benchmark format, each with an optional label
("before=results/…"), and prints one table with benchstat's medians, intervals and tests. It names
invalid cells instead of comparing them, and shows no difference between unequal guarantees.
Filters, projections and CSV are benchstat's: run it on bench.txt (docs/statistics.md).
Exit code: 3 if all cells have too few rounds for a test.`,
		Example: `  # What did my change do?
  watchlab compare before=results/mine-1 after=results/mine-2`,
		Args: takes(1, math.MaxInt, "files in benchmark format or results folders"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var runs []*comparison.Run
			for _, arg := range args {
				run, err := comparison.OpenRun(arg)
				if err != nil {
					return usageError{err}
				}
				runs = append(runs, run)
			}
			table := comparison.Compare(runs)
			for _, line := range table.Warnings {
				warn(cmd.ErrOrStderr(), "%s", line)
			}
			if err := table.Text(cmd.OutOrStdout()); err != nil {
				return err
			}
			if table.CannotTell {
				warn(cmd.ErrOrStderr(), "cannot tell: too few rounds for a test")
				return errCannotTell
			}
			return nil
		},
	}
}
