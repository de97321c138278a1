package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// reportForms are the formats of a report, in the order of the help.
var reportForms = []struct {
	name  string
	write func(io.Writer, *lab.Outcome) error
}{
	{"html", report.HTML},
	{"markdown", report.Markdown},
	{"csv", report.CSV},
	{"json", report.JSON},
	{"csv", report.CSV},
	{"bench", report.Bench},
	{"table", report.Table},
}

func reportFormNames() []string {
	var names []string
	for _, f := range reportForms {
		names = append(names, f.name)
	}
	return names
}

func newReport() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make a run's reports again from its results folder",
		Long: `report reads a results folder and writes report.md and report.html into it
anew, each whole or not at all; nothing else in the folder is touched. With -o it
writes one form to standard output instead, and nothing in the folder.

report.html needs no network and no other file: it can be sent and printed. A run
that was killed can be reported, too, with what it had finished.`,
		Example: `  # After an update of watchlab, or a kill
  watchlab report results/mine

  # One figure a line, for a spreadsheet
  watchlab report results/mine -o csv > mine.csv

  # For a page elsewhere
  watchlab report results/mine -o html > mine.html`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			return makeReport(args[0], output, cmd.Flags().Changed("output"), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to standard output: html, markdown, json, csv, bench or table")
	return cmd
}

// oneFolder requires one argument, a results folder.
func oneFolder(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usageError{fmt.Errorf("%s needs a results folder", cmd.CommandPath())}
	case 1:
		return nil
	}
	return usageError{fmt.Errorf("%s takes one results folder; %q is one too many", cmd.CommandPath(), args[1])}
}

// makeReport reads the folder and writes one format, or the two that are stored in the
// folder.
func makeReport(dir, form string, given bool, stdout, stderr io.Writer) error {
	write := func(io.Writer, *lab.Outcome) error { return nil }
	if given {
		at := -1
		for i, f := range reportForms {
			if f.name == form {
				at = i
			}
		}
		if at < 0 {
			return badFlag("output", experiment.OneOf(form, reportFormNames()...))
		}
		write = reportForms[at].write
	}
	o, err := loadRun(dir)
	if err != nil {
		return err
	}
	if given {
		return write(stdout, o)
	}
	if err := report.Write(dir, o); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "watchlab: reports are in %s and %s\n", filepath.Join(dir, lab.ReportFile), filepath.Join(dir, report.HTMLFile))
	return nil
}

// loadRun reads a results folder. An unreadable one is a usage error.
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
