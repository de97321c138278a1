package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	comparison "watchlab/bench/compare"
	"watchlab/bench/experiment"
)

func newCompare() *cobra.Command {
	o := comparison.Defaults()
	output := "text"
	cmd := &cobra.Command{
		Use:   "compare OLD [NEW…]",
		Short: "Compare runs and benchmark files in benchstat's tables",
		Long: `compare reads files in benchmark format and results folders, each of which may
stand behind a label ("before=results/…"), and prints what benchstat prints for
the same files: the median of each benchmark with its confidence interval, and
what differs from the first column by the Mann-Whitney test.

KEYS are those of benchstat (go doc golang.org/x/perf/benchproc/syntax): .name,
.fullname, .file, .config, a part of the name as /impl, a line of the file's head
as goos; each may have an order, as in /impl@(cond ring).

Of results folders, cells with an invalid verdict are named and not compared, and
no difference is shown between variants whose guarantees are unequal.`,
		Example: `  # What did my change do?
  watchlab compare before=results/mine-1 after=results/mine-2

  # Variants beside each other, throughput only
  watchlab compare results/mine --col /impl --row .name,/rate --filter '.unit:events/s'

  # For a page
  watchlab compare old.txt new.txt -o markdown`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("compare needs a file in benchmark format or a results folder")}
			}
			write, err := comparisonWriter(output, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			inputs, err := comparison.Open(args)
			if err != nil {
				return usageError{err}
			}
			tables, err := comparison.Build(inputs, o)
			var bad *comparison.OptionError
			switch {
			case errors.As(err, &bad):
				return badFlag(bad.Option, bad.Err)
			case err != nil:
				return usageError{err}
			}
			for _, line := range tables.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "watchlab: %s\n", line)
			}
			return write(tables, cmd.OutOrStdout())
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
	fl.StringVarP(&output, "output", "o", output, "text, csv, markdown or json")
	return cmd
}

// comparisonWriter lays tables out; warnings of CSV go to stderr.
func comparisonWriter(output string, stderr io.Writer) (func(*comparison.Tables, io.Writer) error, error) {
	switch output {
	case "text":
		return (*comparison.Tables).Text, nil
	case "csv":
		return func(t *comparison.Tables, w io.Writer) error { return t.CSV(w, stderr) }, nil
	case "markdown":
		return (*comparison.Tables).Markdown, nil
	case "json":
		return (*comparison.Tables).JSON, nil
	}
	return nil, badFlag("output", experiment.OneOf(output, "text", "csv", "markdown", "json"))
}
