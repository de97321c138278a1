package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/report"
)

func newReport() *cobra.Command {
	var out outputFlag[*lab.Outcome]
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make a run's reports again from its results folder",
		Long: `report writes report.md and report.html of a results folder again, also of a killed run.
With -o it writes one form to standard output instead.`,
		Example: `  watchlab report results/mine
  watchlab report results/mine -o csv > mine.csv`,
		Args: takes(1, 1, "one results folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("output") {
				return writeReports(args[0], cmd.ErrOrStderr())
			}
			return out.print(cmd, func() (*lab.Outcome, error) { return loadRun(args[0]) })
		},
	}
	out.add(cmd, "", form[*lab.Outcome]{"html", report.HTML}, form[*lab.Outcome]{"markdown", report.Markdown}, jsonForm,
		form[*lab.Outcome]{"csv", report.CSV}, benchForm, tableForm, briefForm)
	cmd.Flags().Lookup("output").Usage = "form to print: " + strings.Join(out.names(), ", ")
	return cmd
}

func writeReports(dir string, stderr io.Writer) error {
	o, err := loadRun(dir)
	if err != nil {
		return err
	}
	if err := report.Write(dir, o); err != nil {
		return err
	}
	warn(stderr, "reports are in %s and %s", filepath.Join(dir, lab.ReportFile), filepath.Join(dir, report.HTMLFile))
	return nil
}

func loadRun(dir string) (*lab.Outcome, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, usageError{fmt.Errorf("%s is a file; name the results folder that it stands in", dir)}
	}
	o, err := lab.Load(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usageError{fmt.Errorf("%s is no results folder: %w", dir, err)}
	case err != nil:
		return nil, usageError{err}
	}
	return o, nil
}
