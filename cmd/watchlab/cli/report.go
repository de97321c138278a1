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
			if _, err := os.Stat(filepath.Join(args[0], controller.ResultFile)); err == nil {
				ofController.name = out.name
				return remake(cmd, args[0], &ofController, controller.ReadResult, report.WriteController)
			}
			return remake(cmd, args[0], &out, loadRun, report.Write)
		},
	}
	out.add(cmd, "", form[*lab.Outcome]{"html", report.HTML}, form[*lab.Outcome]{"markdown", report.Markdown}, jsonForm,
		benchForm, tableForm, briefForm)
	cmd.Flags().Lookup("output").Usage = "form to print: " + strings.Join(out.names(), ", ")
	return cmd
}

// remake prints the result of a folder in the form of the flag -o, or writes its reports without it.
func remake[T any](cmd *cobra.Command, dir string, out *outputFlag[T], load func(string) (T, error), write func(string, T) error) error {
	o, err := load(dir)
	if err != nil {
		return usageError{err}
	}
	if cmd.Flags().Changed("output") {
		return out.print(cmd, func() (T, error) { return o, nil })
	}
	if err := write(dir, o); err != nil {
		return err
	}
	warn(cmd.ErrOrStderr(), "reports are in %s and %s", filepath.Join(dir, lab.ReportFile), filepath.Join(dir, report.HTMLFile))
	return nil
}

func loadRun(dir string) (*lab.Outcome, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is a file; name the results folder that it stands in", dir)
	}
	o, err := lab.Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is no results folder: %w", dir, err)
	}
	return o, err
}
