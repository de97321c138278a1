package cli

import (
	"errors"
	"fmt"
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
			dir, printed := args[0], cmd.Flags().Changed("output")
			_, err := os.Stat(filepath.Join(dir, controller.ResultFile))
			switch {
			case err == nil && printed:
				return badFlag("output", errors.New("is not for results of watchlab controller, which are files of their folder"))
			case err == nil:
				var o *controller.Result
				if o, err = controller.ReadResult(dir); err != nil {
					return usageError{err}
				}
				err = report.WriteController(dir, o)
			case printed:
				return out.print(cmd, func() (*lab.Outcome, error) { return loadRun(dir) })
			default:
				var o *lab.Outcome
				if o, err = loadRun(dir); err == nil {
					err = report.Write(dir, o)
				}
			}
			if err == nil {
				warn(cmd.ErrOrStderr(), "reports are in %s and %s", filepath.Join(dir, lab.ReportFile), filepath.Join(dir, report.HTMLFile))
			}
			return err
		},
	}
	out.add(cmd, "", form[*lab.Outcome]{"html", report.HTML}, form[*lab.Outcome]{"markdown", report.Markdown}, jsonForm,
		benchForm, tableForm, briefForm)
	cmd.Flags().Lookup("output").Usage = "form to print: " + strings.Join(out.names(), ", ")
	return cmd
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
