package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/study"
)

// defaultStudyBudget leaves two of thirty minutes for what a budget that is
// exceeded takes.
const defaultStudyBudget = 28 * time.Minute

// studyFile says in a study's folder what the study is.
const studyFile = "study.json"

// studyRecord is what studyFile holds.
type studyRecord struct {
	Budget    time.Duration `json:"budgetNs"`
	Questions []string      `json:"questions"`
	Args      []string      `json:"args"`
}

// studyFlags are the flags of study.
type studyFlags struct {
	budget    time.Duration
	questions []string
	out       string
	resume    string
}

func newStudy(args []string) *cobra.Command {
	f := studyFlags{}
	cmd := &cobra.Command{
		Use:   "study",
		Short: "Answer the research questions, each with its runs and a page",
		Long: `study plays the runs that answer the lab's research questions, in as many rounds
as fit into its budget, and writes a folder of results: a page for each question
with the commands, the figures, the answer in words made from them and how sure it
is; each run's own results folder; and an index.

The runs are watchlab's own commands, so that each can be played alone. What is
interrupted or killed is taken up again with --resume. Where a cell broke an
invariant the study goes on, says so, and ends with exit code 1.

Questions: ` + strings.Join(questionNames(), ", ") + `.`,
		Example: `  # All of them, in less than half an hour; make bench does that
  watchlab study

  # One of them, in five minutes
  watchlab study --question readers --budget 5m --out results/mine

  # Go on
  watchlab study --resume results/mine`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.study(cmd, args)
			if err != nil {
				return err
			}
			return s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&f.budget, "budget", defaultStudyBudget, "how long it may take; every run has a warm-up and a round at least")
	fl.StringSliceVar(&f.questions, "question", nil, "questions, by name (default: all)")
	fl.StringVar(&f.out, "out", "", "folder to create (default: results/<date>-<commit>-study)")
	fl.StringVar(&f.resume, "resume", "", "folder of a study that was interrupted or killed, to go on with; takes no other flag")
	return cmd
}

func questionNames() []string {
	var names []string
	for _, q := range study.Questions() {
		names = append(names, q.Name)
	}
	return names
}

// studyRun is a study in progress.
type studyRun struct {
	dir     string
	budget  time.Duration
	args    []string
	entries []study.Entry

	play func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// study checks the flags, and makes or finds the folder.
func (f *studyFlags) study(cmd *cobra.Command, args []string) (*studyRun, error) {
	if cmd.Flags().Changed("resume") {
		for _, name := range []string{"budget", "question", "out"} {
			if cmd.Flags().Changed(name) {
				return nil, badFlag(name, errors.New("is the study's that --resume names, and can't be changed"))
			}
		}
		s, err := openStudy(f.resume)
		if err != nil {
			return nil, badFlag("resume", err)
		}
		return s, nil
	}
	questions, err := study.Choose(f.questions)
	if err != nil {
		return nil, badFlag("question", err)
	}
	if f.budget <= 0 {
		return nil, badFlag("budget", fmt.Errorf("%v is not above 0", f.budget))
	}
	if f.out == "" {
		f.out = freeFolder("results", today(), build(), "study")
	}
	s := newStudyRun(f.out, f.budget, args, questions)
	if err := s.create(); errors.Is(err, fs.ErrExist) {
		return nil, badFlag("out", fmt.Errorf("%s exists; name a folder that doesn't, or --resume it", f.out))
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

func newStudyRun(dir string, budget time.Duration, args []string, questions []study.Question) *studyRun {
	s := &studyRun{dir: dir, budget: budget, args: args, play: run}
	for _, q := range questions {
		s.entries = append(s.entries, study.Entry{Question: q, Found: study.Found{}})
	}
	return s
}

// create makes the folder.
func (s *studyRun) create() error {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(s.dir)), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return err
	}
	rec := studyRecord{Budget: s.budget, Args: s.args}
	for _, e := range s.entries {
		rec.Questions = append(rec.Questions, e.Question.Name)
	}
	return lab.ReplaceFile(filepath.Join(s.dir, studyFile), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rec)
	})
}

// openStudy reads the folder of a study.
func openStudy(dir string) (*studyRun, error) {
	path := filepath.Join(dir, studyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no study's folder: it has no %s", dir, studyFile)
	} else if err != nil {
		return nil, err
	}
	var rec studyRecord
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	questions, err := study.Choose(rec.Questions)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if rec.Budget <= 0 || len(rec.Questions) == 0 {
		return nil, fmt.Errorf("%s: no budget or no questions", path)
	}
	return newStudyRun(dir, rec.Budget, rec.Args, questions), nil
}

// run plays what isn't finished, and brings the pages up to date after each part.
func (s *studyRun) run(ctx context.Context, stdout, stderr io.Writer) error {
	var spent time.Duration
	weight, parts, done := 0.0, 0, 0
	for _, e := range s.entries {
		for _, p := range e.Question.Parts {
			parts++
			if o, err := s.load(e, p); err != nil {
				return badFlag("resume", err)
			} else if o != nil {
				spent += o.Spent
				if finished(o) {
					e.Found[p.Name] = o
					done++
					continue
				}
			}
			weight += p.Weight
		}
	}
	var failed error
	for _, e := range s.entries {
		for _, p := range e.Question.Parts {
			if e.Found[p.Name] != nil {
				continue
			}
			share := max(time.Second, time.Duration(float64(s.budget-spent)*p.Weight/weight)).Round(time.Second)
			weight -= p.Weight
			done++
			fmt.Fprintf(stderr, "watchlab: study %d/%d: %s, %s; %v for it\n", done, parts, e.Question.Name, p.Name, share)
			began := time.Now()
			err := s.part(ctx, e, p, share, stderr)
			spent += time.Since(began)
			if errors.Is(err, errInvalid) {
				failed, err = err, nil
			}
			if err := errors.Join(err, s.write()); err != nil {
				if errors.Is(err, errInterrupted) {
					fmt.Fprintf(stderr, "watchlab: go on with: watchlab study --resume %s\n", s.dir)
				}
				return err
			}
		}
	}
	if err := errors.Join(s.write(), s.index(stdout)); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "watchlab: the study is in %s\n", s.dir)
	return failed
}

func (s *studyRun) folder(e study.Entry, p study.Part) string {
	return filepath.Join(s.dir, e.Question.Name, p.Name)
}

// load reads what a part has measured so far; nil where it hasn't begun.
func (s *studyRun) load(e study.Entry, p study.Part) (*lab.Outcome, error) {
	o, err := lab.Load(s.folder(e, p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return o, err
}

// finished reports whether a run ended by itself.
func finished(o *lab.Outcome) bool { return o.Ended != nil && !o.Interrupted }

// part plays a part, or what is left of it.
func (s *studyRun) part(ctx context.Context, e study.Entry, p study.Part, share time.Duration, stderr io.Writer) error {
	dir := s.folder(e, p)
	args := append(append([]string{}, p.Args...), "--budget", share.String(), "--out", dir)
	if _, err := os.Lstat(dir); err == nil {
		args = []string{p.Args[0], "--resume", dir}
	}
	code := s.play(ctx, args, io.Discard, stderr)
	o, err := s.load(e, p)
	switch {
	case err != nil:
		return err
	case o != nil:
		e.Found[p.Name] = o
	}
	switch code {
	case exitOK:
		return nil
	case exitInterrupted:
		return errInterrupted
	case exitInvalid:
		if o != nil && finished(o) {
			return errInvalid
		}
	}
	return fmt.Errorf("%s, %s: watchlab %s ended with exit code %d", e.Question.Name, p.Name, strings.Join(args, " "), code)
}

// write writes the pages of what was played, and the index.
func (s *studyRun) write() error {
	var errs []error
	for _, e := range s.entries {
		dir := filepath.Join(s.dir, e.Question.Name)
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		errs = append(errs, lab.ReplaceFile(filepath.Join(dir, study.PageFile), func(w io.Writer) error {
			return study.Page(w, e.Question, e.Found)
		}))
	}
	errs = append(errs, lab.ReplaceFile(filepath.Join(s.dir, study.PageFile), s.index))
	return errors.Join(errs...)
}

func (s *studyRun) index(w io.Writer) error {
	return study.Index(w, "watchlab "+strings.Join(s.args, " "), s.entries)
}
