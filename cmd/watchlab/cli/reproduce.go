package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/chart"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/loadgen/manifest"
)

// reproduction plays experiments with claims. Each has a results folder in dir.
type reproduction struct {
	list        bool
	budget      time.Duration // 0: that of each file
	out, resume string

	dir    string
	files  []experiment.File
	played []report.Claimed // by file
}

func newReproduce() *cobra.Command {
	r := &reproduction{}
	cmd := &cobra.Command{
		Use:   "reproduce [NAME|FILE]...",
		Short: "Play experiments and judge their claims",
		Long: `reproduce plays experiments that have a question and claims: built-in ones by name, or files; without
arguments all that are built in, some 40 minutes. A claim bounds the ratio of two cells. The answer
is computed from the 95 % interval: confirmed, refuted, or not answered. The exit code does not
depend on the answers.

The results folder has the table of all claims and the results of each experiment.`,
		Example: `  watchlab reproduce --list
  watchlab reproduce 130767 --out results/readers
  watchlab reproduce mine.yaml
  watchlab reproduce 130767 --resume results/readers`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.files, err = experiment.Experiments(args...); err != nil {
				return usageError{err}
			}
			if r.list {
				t := chart.NewTable("", []string{"", ""})
				for _, f := range r.files {
					t.Add(f.Name, f.Spec.Question)
				}
				return t.Text(cmd.OutOrStdout())
			}
			if err := r.open(cmd); err != nil {
				return err
			}
			if err = r.run(cmd); errors.Is(err, errInterrupted) {
				warn(cmd.ErrOrStderr(), "continue with: %s", lab.CommandLine(append([]string{"watchlab"}, resumed(cmd, r.dir)...)))
			}
			return continued(cmd, r.dir, err)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&r.list, "list", false, "list the experiments and play nothing (default false)")
	fl.DurationVar(&r.budget, "budget", 0, "time of each experiment (default: the file's, else 2m0s)")
	fl.StringVar(&r.out, "out", "", "folder to create (default: results/<date>-<commit>-reproduce)")
	fl.StringVar(&r.resume, "resume", "", "folder of an interrupted reproduction to continue")
	return cmd
}

// open checks the input and chooses the folder. The files of a user are planned before anything is played.
func (r *reproduction) open(cmd *cobra.Command) error {
	if cmd.Flags().Changed("budget") && r.budget <= 0 {
		return badFlag("budget", fmt.Errorf("%v is not above 0", r.budget))
	}
	for _, f := range r.files {
		r.played = append(r.played, report.Claimed{Name: f.Name, Question: f.Spec.Question})
	}
	if cmd.Flags().Changed("resume") {
		r.dir = r.resume
		begun := func(f experiment.File) bool {
			_, err := os.Stat(filepath.Join(r.dir, f.Name, lab.ExperimentFile))
			return err == nil
		}
		switch {
		case r.out != "":
			return badFlag("out", errors.New("is not for --resume"))
		case !slices.ContainsFunc(r.files, begun):
			return badFlag("resume", fmt.Errorf("%s has none of these experiments", r.dir))
		}
		return nil
	}
	var err error
	if r.dir, err = newFolder(r.out, "reproduce"); err != nil {
		return err
	}
	for _, f := range r.files {
		if f.BuiltIn || len(r.files) == 1 {
			continue
		}
		if _, err := experiment.New(f.Spec); err != nil {
			return usageError{f.Blame(err)}
		}
	}
	return nil
}

func (r *reproduction) run(cmd *cobra.Command) error {
	stderr := cmd.ErrOrStderr()
	var failed error
	for i, f := range r.files {
		at := filepath.Join(r.dir, f.Name)
		o, err := lab.Load(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return badFlag("resume", err)
		}
		if o == nil || o.Ended == nil || o.Interrupted {
			failure := r.play(cmd, i, at, o)
			if errors.Is(failure, errPaused) {
				return failure
			}
			if o, err = lab.Load(at); o == nil {
				return cmp.Or(failure, err)
			}
			if errors.Is(failure, errInvalid) && o.Ended != nil {
				failure = nil // The others are played.
			}
			r.played[i].Outcome = o
			if err := errors.Join(failure, report.WriteClaims(r.dir, r.played)); err != nil {
				return err
			}
		}
		if r.played[i].Outcome = o; len(o.Failed()) > 0 {
			failed = errInvalid
		}
	}
	if err := cmp.Or(report.WriteClaims(r.dir, r.played), report.Claims(cmd.OutOrStdout(), r.played)); err != nil {
		return err
	}
	warn(stderr, "the claims are in %s", filepath.Join(r.dir, report.ClaimsFile))
	return failed
}

// play plays an experiment, or resumes it with its own Spec if it has an outcome.
func (r *reproduction) play(cmd *cobra.Command, i int, dir string, begun *lab.Outcome) error {
	f, resume := r.files[i], begun != nil
	s := f.Limited(r.budget)
	if resume {
		var err error
		s = experiment.Spec{}
		if _, err = manifest.ReadStrict(filepath.Join(dir, lab.ExperimentFile), &s); err != nil {
			return badFlag("resume", err)
		}
	}
	p, err := planOf(cmd, s)
	if errors.Is(err, errInterrupted) {
		return err
	}
	if err != nil {
		return usageError{f.Blame(err)}
	}
	if !resume || !begun.Paused {
		warn(cmd.ErrOrStderr(), "experiment %d/%d: %s", i+1, len(r.files), f.Name)
	}
	playing := &playing{Plan: p, dir: dir, resume: resume, show: func(io.Writer, *lab.Outcome) error { return nil }, brief: true}
	return playing.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
}
