package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"watchlab/bench/host"
)

var (
	// ErrOptions is wrapped by the errors for options and comparisons that
	// cannot be run; nothing has been played or written then.
	ErrOptions = errors.New("invalid options")
	// ErrExists is wrapped by the error for a results folder that is there
	// already; it is left as it is.
	ErrExists = errors.New("exists already")
)

// Options of a run.
type Options struct {
	// Name of the run, as it stands in run.json.
	Name string
	// Rounds that count, at least 1. One more is played to warm up. Fewer than
	// 4 are too few for a difference to be told from chance.
	Rounds int
	// Seed of the order in which cells are played.
	Seed int64
	// NoAA leaves out the A/A pairs: of each comparison whose cells are not played
	// together, the lab plays one cell a second time beside all others, under the
	// variant's name with "-again" ([CellResult].Again), so that one sees what
	// chance makes of no difference at all. It is the first unpaced baseline, or
	// what comes nearest to one.
	NoAA bool
	// Dir is the results folder. It must not exist; it is created with its
	// parents. Empty: nothing is written.
	Dir string
	// Progress, if not nil, is called before and after each cell, from the
	// goroutine that called Run, never while a clock runs.
	Progress func(Progress)
	// Build says which program this is.
	Build Build
	// Args are the program's arguments, for env.json and the report.
	Args []string
	// Now tells the time for the stamps of the results; nil means time.Now.
	// Measurements do not use it.
	Now func() time.Time
}

// Run plays comparisons. It returns an error, and no outcome, only before
// anything was played: one wrapping [ErrOptions] or [ErrExists], or that of the
// file system. An error of a file in mid-run, or of a [Comparison].More, ends the
// run and comes with the outcome so far.
//
// If ctx ends, the cell in progress is dropped, what is finished is kept, and
// Outcome.Interrupted is true; that is no error.
//
// Time: (Rounds+1) × the cells' own, one after the other.
func Run(ctx context.Context, comparisons []Comparison, opts Options) (*Outcome, error) {
	if err := validate(comparisons, opts); err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	env := captureEnv(host.Root(), opts.Now(), opts.Build, opts.Args)
	r := &runner{opts: opts, out: newOutcome(opts, env), names: map[string]bool{}}
	for i, c := range comparisons {
		if err := r.plan(i, c); err != nil {
			return nil, err
		}
	}
	var err error
	if r.folder, err = createFolder(opts.Dir, r.out); err != nil {
		return nil, err
	}
	err = r.play(ctx)

	ended := opts.Now()
	r.out.Ended = &ended
	r.out.Env.finish(host.Root())
	return r.out, errors.Join(err, r.folder.close(r.out))
}

// invalid is an error that wraps [ErrOptions].
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

// validate refuses what cannot be measured or would be misread; the cells are
// checked as they are planned.
func validate(comparisons []Comparison, opts Options) error {
	if opts.Rounds < 1 {
		return invalid("Rounds %d (want at least 1)", opts.Rounds)
	}
	if len(comparisons) == 0 {
		return invalid("nothing to compare")
	}
	for _, c := range comparisons {
		if len(c.Cells) == 0 {
			return invalid("comparison %s (%s) has no cells", c.Family, c.Title)
		}
	}
	return nil
}

func newOutcome(opts Options, env Env) *Outcome {
	return &Outcome{
		Format: Format, Name: opts.Name, Started: env.Started,
		Seed: opts.Seed, Rounds: opts.Rounds, Env: env,
	}
}

// runner is a run in progress.
type runner struct {
	opts     Options
	out      *Outcome
	folder   *folder
	contests []*contest
	// names are those of all cells so far: a name is a cell's alone.
	names map[string]bool

	done, total int
}

// plan takes a comparison in.
func (r *runner) plan(i int, c Comparison) error {
	r.out.Comparisons = append(r.out.Comparisons, ComparisonResult{
		Family: c.Family, Title: c.Title, Latency: c.Latency, Input: c.Input,
	})
	cells := c.Cells
	c.Cells = nil
	contest := &contest{r: r, index: i, Comparison: c, baselines: map[string]string{}, warm: map[string]bool{}}
	r.contests = append(r.contests, contest)
	if err := contest.take(cells); err != nil || r.opts.NoAA || c.Together {
		return err
	}
	again, of := pair(cells)
	if err := contest.take([]Cell{again}); err != nil {
		return err
	}
	result := contest.result()
	result.Cells[len(result.Cells)-1].Again = of
	return nil
}

func (r *runner) play(ctx context.Context) error {
	for _, c := range r.contests {
		if err := c.play(ctx); err != nil || r.out.Interrupted {
			return err
		}
	}
	return nil
}

// interrupted notes that ctx has ended. It is no error: what is finished is kept,
// and the outcome says so.
func (r *runner) interrupted(ctx context.Context) bool {
	if ctx.Err() != nil {
		r.out.Interrupted = true
	}
	return r.out.Interrupted
}
