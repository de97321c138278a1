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

	"watchlab/bench/controller"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

func newReport() *cobra.Command {
	var out outputFlag[*lab.Outcome]
	ofController := outputFlag[*controller.Result]{forms: []form[*controller.Result]{
		{"html", report.ControllerHTML}, {"markdown", report.ControllerMarkdown}, {"json", method((*controller.Result).WriteJSON)},
		{"bench", method((*controller.Result).WriteBench)}, {"table", report.ControllerText},
	}}
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make a run's reports again from its results folder",
		Long: `report writes report.md and report.html of a results folder again, also of a killed run and of
watchlab controller.
With -o it writes one form to standard output instead.`,
		Example: `  watchlab report results/mine
  watchlab report results/mine -o json > mine.json`,
		Args: takes(1, 1, "one results folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			printed := cmd.Flags().Changed("output")
			_, err := os.Stat(filepath.Join(args[0], controller.ResultFile))
			switch {
			case err == nil && printed:
				ofController.name = out.name
				return ofController.print(cmd, func() (*controller.Result, error) { return loadController(args[0]) })
			case err == nil:
				return writeController(args[0], cmd.ErrOrStderr())
			case !printed:
				return writeReports(args[0], cmd.ErrOrStderr())
			}
			return out.print(cmd, func() (*lab.Outcome, error) { return loadRun(args[0]) })
		},
	}
	out.add(cmd, "", form[*lab.Outcome]{"html", report.HTML}, form[*lab.Outcome]{"markdown", report.Markdown}, jsonForm,
		benchForm, tableForm, briefForm)
	cmd.Flags().Lookup("output").Usage = "form to print: " + strings.Join(out.names(), ", ")
	return cmd
}

func writeController(dir string, stderr io.Writer) error {
	o, err := loadController(dir)
	if err == nil {
		err = report.WriteController(dir, o)
	}
	if err == nil {
		warnReports(stderr, dir)
	}
	return err
}

func loadController(dir string) (*controller.Result, error) {
	o, err := controller.ReadResult(dir)
	if err != nil {
		return nil, usageError{err}
	}
	return o, nil
}

func warnReports(stderr io.Writer, dir string) {
	warn(stderr, "reports are in %s and %s", filepath.Join(dir, lab.ReportFile), filepath.Join(dir, report.HTMLFile))
}

func writeReports(dir string, stderr io.Writer) error {
	o, err := loadRun(dir)
	if err != nil {
		return err
	}
	if err := report.Write(dir, o); err != nil {
		return err
	}
	warnReports(stderr, dir)
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
