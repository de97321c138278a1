package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
)

// Time for a thread, and passes of a benchmark, at both scales.
const (
	reducedTime, fullTime     = 4 * time.Minute, 20 * time.Minute
	reducedPasses, fullPasses = 6, 20 // with 6 the median has an interval
)

type reproduceFlags struct {
	all, list, full    bool
	budget             time.Duration
	out, resume, pages string
}

func newReproduce() *cobra.Command {
	f := reproduceFlags{}
	threads, _ := experiment.Threads() // without one, the verb itself says why
	names := namesOf(threads)
	cmd := &cobra.Command{
		Use:   "reproduce [THREAD...]",
		Short: "Test what threads of other projects claim, with a page for each",
		Long: `reproduce plays the experiments that test what a thread claims, and writes a page in the form of
an analysis: summary, set-up, significance, what is not tested. Whether we agree is computed from the
intervals of the ratios. A thread takes some four minutes at a reduced scale, which the page names, and
some twenty with --full. Threads with a benchmark need Go and the repository as the current folder.

Threads: ` + strings.Join(names, ", ") + `.`,
		Example: `  watchlab reproduce --list
  watchlab reproduce 130767
  watchlab reproduce --all --out results/mine --pages docs/found`,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return listThreads(cmd.OutOrStdout())
			}
			s, err := f.study(cmd, args)
			if err != nil {
				return err
			}
			return continued(cmd, s.dir, s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all threads, one after the other (default false)")
	fl.BoolVar(&f.list, "list", false, "list the threads and play nothing (default false)")
	fl.BoolVar(&f.full, "full", false, "the full scale, as the pages tell it (default false)")
	fl.DurationVar(&f.budget, "budget", 0, "time for each thread (default 4m0s; 20m0s with --full)")
	fl.StringVar(&f.out, "out", "", "folder to create (default: results/<date>-<commit>-reproduce)")
	fl.StringVar(&f.pages, "pages", "", "folder for a copy of each page, THREAD.md (default none)")
	fl.StringVar(&f.resume, "resume", "", "folder of an interrupted reproduction, to continue with its threads")
	return cmd
}

func listThreads(w io.Writer) error {
	threads, err := experiment.Threads()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, q := range threads {
		fmt.Fprintf(t, "%s\t%s\t%s\n", q.Name, q.Ref, q.Asks)
	}
	return t.Flush()
}

// study returns the threads as a study that writes analyses.
func (f *reproduceFlags) study(cmd *cobra.Command, names []string) (*studyRun, error) {
	if cmd.Flags().Changed("budget") && f.budget <= 0 {
		return nil, badFlag("budget", fmt.Errorf("%v is not above 0", f.budget))
	}
	threads, err := experiment.Threads(names...)
	if err != nil {
		return nil, usageError{err}
	}
	resumed := cmd.Flags().Changed("resume")
	switch {
	case resumed && (len(names) > 0 || f.all || f.out != ""):
		return nil, badFlag("resume", errors.New("goes on with the folder's own threads"))
	case !resumed && (len(names) > 0) == f.all:
		return nil, usageError{fmt.Errorf("reproduce takes threads or --all (have %s)", strings.Join(namesOf(threads), ", "))}
	}
	each, again := cmp.Or(f.budget, reducedTime), "watchlab reproduce --resume %s"
	if f.full {
		each, again = cmp.Or(f.budget, fullTime), "watchlab reproduce --full --resume %s"
		for i, q := range threads {
			threads[i] = q.AtFullScale()
		}
	}
	dir := f.resume
	if resumed {
		if threads, err = begun(dir, threads); err != nil {
			return nil, badFlag("resume", err)
		}
	} else {
		if err := checkNew(f.out); err != nil {
			return nil, err
		}
		dir = cmp.Or(f.out, freeFolder("results", build(), "reproduce"))
	}
	for _, q := range threads {
		for _, p := range q.Parts {
			if p.Bench == nil {
				continue
			}
			if _, err := os.Stat(p.Bench.Dir); err != nil {
				return nil, usageError{fmt.Errorf("%s: its benchmark is in %s, which is not here: use the root of the repository", q.Name, p.Bench.Dir)}
			}
		}
	}
	s, err := createStudy(dir, each*time.Duration(len(threads)), threads)
	if err != nil {
		return nil, err
	}
	s.again, s.pages, s.passes = fmt.Sprintf(again, dir), f.pages, reducedPasses
	if f.full {
		s.passes = fullPasses
	}
	return s, nil
}

// copyPages writes the pages of the threads that have begun into another folder.
func (s *studyRun) copyPages() error {
	if s.pages == "" {
		return nil
	}
	from, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	to, err := filepath.Abs(s.pages)
	if err != nil {
		return err
	}
	at, err := filepath.Rel(to, from)
	if err != nil {
		return err
	}
	errs := []error{os.MkdirAll(to, 0o755)}
	for _, q := range s.questions {
		if len(s.found[q.Name]) > 0 {
			errs = append(errs, lab.ReplaceFile(filepath.Join(to, q.Name+".md"), func(w io.Writer) error {
				return q.Analysis(w, s.found[q.Name], filepath.ToSlash(filepath.Join(at, q.Name)))
			}))
		}
	}
	return errors.Join(errs...)
}

// loadBench reads the passes of a benchmark; nil if it has not ended.
func loadBench(b experiment.Bench, dir string) (*lab.Outcome, error) {
	file := filepath.Join(dir, lab.BenchFile)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return b.Outcome(bytes.NewReader(text), file, info.ModTime())
}

// playBench runs the passes of a benchmark. Its output is written when all have ended.
func playBench(ctx context.Context, b experiment.Bench, dir string, passes int) error {
	var out, errs bytes.Buffer
	for range passes {
		cmd := exec.CommandContext(ctx, "go", b.Command()...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = b.Dir, &out, &errs
		if err := cmd.Run(); ctx.Err() != nil {
			return errInterrupted
		} else if err != nil {
			return fmt.Errorf("go %s in %s: %w: %s", strings.Join(b.Command(), " "), b.Dir, err, cmp.Or(strings.TrimSpace(errs.String()), out.String()))
		}
	}
	if err := lab.MakeDir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return lab.ReplaceFile(filepath.Join(dir, lab.BenchFile), func(w io.Writer) error {
		_, err := w.Write(out.Bytes())
		return err
	})
}
