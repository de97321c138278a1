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
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make a run's reports again from its results folder",
		Long: `report writes report.md and report.html of a results folder again, also of a killed run and of
watchlab controller. With -o it writes one form of a run to standard output instead.`,
		Example: `  watchlab report results/mine
  watchlab report results/mine -o json > mine.json`,
		Args: takes(1, 1, "one results folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := writeReport(cmd.OutOrStdout(), args[0], out.show)
			if err == nil && out.show == nil {
				warn(cmd.ErrOrStderr(), "reports are in %s and %s", filepath.Join(args[0], lab.ReportFile), filepath.Join(args[0], report.HTMLFile))
			}
			return err
		},
	}
	out.add(cmd, "", form[*lab.Outcome]{"html", report.HTML}, form[*lab.Outcome]{"markdown", report.Markdown}, jsonForm,
		benchForm, tableForm, briefForm)
	output := cmd.Flags().Lookup("output")
	output.Usage = "form to print" + strings.TrimPrefix(output.Usage, "output")
	return cmd
}

// writeReport prints a run of a folder, or writes the reports of the folder without show.
func writeReport(w io.Writer, dir string, show func(io.Writer, *lab.Outcome) error) error {
	if _, err := os.Stat(filepath.Join(dir, controller.ResultFile)); err == nil {
		if show != nil {
			return badFlag("output", errors.New("is not for results of watchlab controller, which are files of their folder"))
		}
		o, err := controller.ReadResult(dir)
		if err != nil {
			return usageError{err}
		}
		return report.WriteController(dir, o)
	}
	o, err := loadRun(dir)
	switch {
	case err != nil:
		return err
	case show != nil:
		return show(w, o)
	}
	return report.Write(dir, o)
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
