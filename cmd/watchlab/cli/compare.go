package cli

import (
	"errors"
	"io"
	"math"

	"github.com/spf13/cobra"

	comparison "watchlab/bench/compare"
)

func newCompare() *cobra.Command {
	o := comparison.Defaults()
	var out outputFlag[*comparison.Tables]
	cmd := &cobra.Command{
		Use:   "compare OLD [NEW…]",
		Short: "Compare runs and benchmark files in benchstat's tables",
		Long: `compare reads files in benchmark format and results folders, each with an optional label
("before=results/…"), and prints benchstat's tables. KEYS are those of benchstat (go doc
golang.org/x/perf/benchproc/syntax). It names invalid cells instead of comparing them, and
shows no difference between variants with unequal guarantees. Exit code: 3 if all cells have too
few rounds for a test.`,
		Example: `  # What did my change do?
  watchlab compare before=results/mine-1 after=results/mine-2

  # Variants beside each other, throughput only
  watchlab compare results/mine --col /impl --row .name,/rate --filter '.unit:events/s'`,
		Args: takes(1, math.MaxInt, "files in benchmark format or results folders"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var tables *comparison.Tables
			err := out.print(cmd, func() (*comparison.Tables, error) {
				inputs, err := comparison.Open(args)
				if err != nil {
					return nil, usageError{err}
				}
				tables, err = comparison.Build(inputs, o)
				var bad *comparison.OptionError
				switch {
				case errors.As(err, &bad):
					return nil, badFlag(bad.Option, bad.Err)
				case err != nil:
					return nil, usageError{err}
				}
				for _, line := range tables.Warnings {
					warn(cmd.ErrOrStderr(), "%s", line)
				}
				return tables, nil
			})
			if err == nil && tables.CannotTell() {
				warn(cmd.ErrOrStderr(), "cannot tell: too few rounds for a test")
				err = errCannotTell
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Table, "table", o.Table, "KEYS that each have a table of their own")
	fl.StringVar(&o.Row, "row", o.Row, "KEYS that rows differ in")
	fl.StringVar(&o.Col, "col", o.Col, "keys that columns differ in; the first column is the base")
	fl.StringVar(&o.Ignore, "ignore", o.Ignore, "KEYS that may vary within a cell")
	fl.StringVar(&o.Filter, "filter", o.Filter, "which benchmarks and units, as in '/impl:(cond OR ring) .unit:events/s'")
	fl.Float64Var(&o.Alpha, "alpha", o.Alpha, "a difference counts if its p is below this")
	fl.Float64Var(&o.Confidence, "confidence", o.Confidence, "level of the medians' intervals")
	type tables = *comparison.Tables
	out.add(cmd, "text",
		form[tables]{"text", method(tables.Text)},
		form[tables]{"csv", func(w io.Writer, t tables) error { return t.CSV(w, cmd.ErrOrStderr()) }},
		form[tables]{"markdown", method(tables.Markdown)},
		form[tables]{"json", method(tables.JSON)})
	return cmd
}
