package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
)

const defaultStudyBudget = 28 * time.Minute // leaves 2 of 30 minutes for parts that exceed their budget

type studyFlags struct {
	budget      time.Duration
	questions   []string
	out, resume string // the folder of a new study, and of an interrupted one
}

func newStudy() *cobra.Command {
	f := studyFlags{}
	questions, _ := experiment.Questions() // without one, the verb itself says why
	names := namesOf(questions)
	cmd := &cobra.Command{
		Use:   "study",
		Short: "Answer the research questions, each with its runs and a page",
		Long: `study plays the experiments of the research questions in as many rounds as fit into its budget.
It writes an index, a page for each question, and the results folder of each run.

Questions: ` + strings.Join(names, ", ") + `.`,
		Example: `  watchlab study --question readers --budget 5m --out results/mine
  watchlab study --resume results/mine`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.study(cmd)
			if err != nil {
				return err
			}
			return continued(cmd, s.dir, s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&f.budget, "budget", defaultStudyBudget, "time budget; every run has at least one round")
	fl.StringSliceVar(&f.questions, "question", nil, "questions, by name (default all)")
	fl.StringVar(&f.out, "out", "", "folder to create (default: results/<date>-<commit>-study)")
	fl.StringVar(&f.resume, "resume", "", "folder of an interrupted study, to continue with its questions")
	complete(cmd, "question", names)
	return cmd
}

func namesOf(questions []experiment.Question) (names []string) {
	for _, q := range questions {
		names = append(names, q.Name)
	}
	return names
}

// studyRun is a study in progress. Its folder has one of each question.
type studyRun struct {
	dir       string
	budget    time.Duration
	questions []experiment.Question
	found     map[string]experiment.Found

	// play plays a part's Spec into a folder. resume continues an interrupted part.
	play func(ctx context.Context, s experiment.Spec, dir string, resume bool, stderr io.Writer) error

	again  string // command that continues it
	pages  string // folder for copies of threads' pages; empty for none
	passes int    // of a part's benchmark
}

func (f *studyFlags) study(cmd *cobra.Command) (*studyRun, error) {
	if f.budget <= 0 {
		return nil, badFlag("budget", fmt.Errorf("%v is not above 0", f.budget))
	}
	if cmd.Flags().Changed("resume") {
		if err := onlyResume(cmd, "the study continues with its own", func(name string) bool { return name != "budget" }); err != nil {
			return nil, err
		}
		s, err := openStudy(f.resume, f.budget)
		if err != nil {
			return nil, badFlag("resume", err)
		}
		return s, nil
	}
	questions, err := experiment.Questions(f.questions...)
	if err != nil {
		return nil, badFlag("question", err)
	}
	if err := checkNew(f.out); err != nil {
		return nil, err
	}
	return createStudy(cmp.Or(f.out, freeFolder("results", build(), "study")), f.budget, questions)
}

func createStudy(dir string, budget time.Duration, questions []experiment.Question) (*studyRun, error) {
	s := &studyRun{dir: dir, budget: budget, questions: questions, found: map[string]experiment.Found{}, play: playPart}
	s.again = fmt.Sprintf("watchlab study --resume %s --budget %v", dir, budget)
	for _, q := range questions {
		s.found[q.Name] = experiment.Found{}
		if err := lab.MakeDir(filepath.Join(dir, q.Name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return s, nil
}

// openStudy opens the folder of a study with the questions that it has.
func openStudy(dir string, budget time.Duration) (*studyRun, error) {
	questions, err := experiment.Questions()
	if err != nil {
		return nil, err
	}
	if questions, err = begun(dir, questions); err != nil {
		return nil, err
	}
	return createStudy(dir, budget, questions)
}

// begun returns the questions that a study's folder has.
func begun(dir string, questions []experiment.Question) ([]experiment.Question, error) {
	questions = slices.DeleteFunc(questions, func(q experiment.Question) bool {
		_, err := os.Stat(filepath.Join(dir, q.Name))
		return err != nil
	})
	if len(questions) == 0 {
		return nil, fmt.Errorf("%s is no study's folder: it has none of a question", dir)
	}
	return questions, nil
}

func (s *studyRun) run(ctx context.Context, stdout, stderr io.Writer) error {
	var spent time.Duration
	weight, parts, done := 0.0, 0, 0
	paused := "" // folder of the part that this process continues
	for _, q := range s.questions {
		for _, p := range q.Parts {
			parts++
			o, err := s.load(q, p)
			if err != nil {
				return badFlag("resume", err)
			}
			if o != nil {
				spent += o.Spent
				if o.Paused {
					paused = s.folder(q, p)
				}
			}
			if !finished(o) {
				weight += p.Weight
				continue
			}
			s.found[q.Name][p.Name] = o
			done++
		}
	}
	var failed error
	for _, q := range s.questions {
		for _, p := range q.Parts {
			if s.found[q.Name][p.Name] != nil {
				continue
			}
			share := max(time.Second, time.Duration(float64(s.budget-spent)*p.Weight/weight)).Round(time.Second)
			weight -= p.Weight
			done++
			if s.folder(q, p) != paused {
				warn(stderr, "study %d/%d: %s, %s; budget %v", done, parts, q.Name, p.Name, share)
			}
			began := time.Now()
			err := s.part(ctx, q, p, share, stderr)
			spent += time.Since(began)
			if errors.Is(err, errInvalid) {
				failed, err = err, nil
			}
			if errors.Is(err, errPaused) {
				return err
			}
			if err := errors.Join(err, s.write()); err != nil {
				if errors.Is(err, errInterrupted) {
					warn(stderr, "continue with: %s", s.again)
				}
				return err
			}
		}
	}
	if err := errors.Join(s.write(), s.index(stdout)); err != nil {
		return err
	}
	warn(stderr, "the study is in %s", s.dir)
	return failed
}

func (s *studyRun) folder(q experiment.Question, p experiment.QuestionPart) string {
	return filepath.Join(s.dir, q.Name, p.Name)
}

// load reads the outcome of a part so far; nil if the part has not begun.
func (s *studyRun) load(q experiment.Question, p experiment.QuestionPart) (*lab.Outcome, error) {
	if p.Bench != nil {
		return loadBench(*p.Bench, s.folder(q, p))
	}
	o, err := lab.Load(s.folder(q, p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return o, err
}

func finished(o *lab.Outcome) bool { return o != nil && o.Ended != nil && !o.Interrupted }

// part plays or resumes a part.
func (s *studyRun) part(ctx context.Context, q experiment.Question, p experiment.QuestionPart, share time.Duration, stderr io.Writer) error {
	dir, spec := s.folder(q, p), p.Experiment
	spec.Budget.Duration = share
	_, missing := os.Lstat(dir)
	var err error
	if p.Bench != nil {
		err = playBench(ctx, *p.Bench, dir, s.passes)
	} else {
		err = s.play(ctx, spec, dir, missing == nil, stderr)
	}
	o, lerr := s.load(q, p)
	if o != nil {
		s.found[q.Name][p.Name] = o
	}
	if err != nil && !errors.Is(err, errInterrupted) && !errors.Is(err, errPaused) && !(errors.Is(err, errInvalid) && finished(o)) {
		err = fmt.Errorf("%s, %s: %w", q.Name, p.Name, err)
	}
	return errors.Join(err, lerr)
}

// playPart plays a Spec without printing its outcome.
func playPart(ctx context.Context, s experiment.Spec, dir string, resume bool, stderr io.Writer) error {
	if resume {
		var err error
		if s, _, err = experiment.Load(filepath.Join(dir, lab.ExperimentFile)); err != nil {
			return err
		}
	}
	cell.MeasureGCPrice() // before the storm is in the heap
	p, err := experiment.New(ctx, s, nil)
	if err != nil {
		return err
	}
	r := &playing{Plan: p, dir: dir, resume: resume, show: benchForm.write}
	return r.run(ctx, io.Discard, stderr)
}

func (s *studyRun) write() error {
	var errs []error
	for _, q := range s.questions {
		errs = append(errs, lab.ReplaceFile(filepath.Join(s.dir, q.Name, experiment.PageFile), func(w io.Writer) error {
			return q.Page(w, s.found[q.Name])
		}))
	}
	errs = append(errs, lab.ReplaceFile(filepath.Join(s.dir, experiment.PageFile), s.index), s.copyPages())
	return errors.Join(errs...)
}

func (s *studyRun) index(w io.Writer) error { return experiment.Index(w, s.questions, s.found) }
