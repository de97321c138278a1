package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"watchlab/bench/cell"
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
	Name     string
	Rounds   int
	Budget   time.Duration
	Seed     int64
	NoAA     bool
	Dir      string
	Resume   bool
	Fresh    func(ctx context.Context, cell string) (cell.Result, error)
	Gate     func(ctx context.Context, p Play) error
	Profile  Profiler
	Progress func(Progress)
	Build    Build
	Args     []string

	// Experiment says what is played, as JSON. Package lab does not read it: it
	// stands in run.json, and as YAML in [ExperimentFile].
	Experiment json.RawMessage
	Now        func() time.Time
}

// Profiler takes profiles of what is measured, between Start and stop. Their errors
// end the run.
type Profiler interface {
	Start(cell string) (stop func() error, err error)
}

// Run plays comparisons. It returns an error, and no outcome, only before
// anything was played: one wrapping [ErrOptions], [ErrExists] or [ErrResume], or
// that of the file system. An error of a file in mid-run, of a [Comparison].More or
// of a profile ends the run and comes with the outcome so far.
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
	r := &runner{opts: opts, names: map[string]bool{}, began: time.Now()}
	env := captureEnv(cell.Root(), opts.Now(), opts.Build, opts.Args)
	err := r.open(comparisons, env)
	if err != nil || r.over {
		return r.out, errors.Join(err, r.folder.abandon())
	}
	err = r.play(ctx)
	if err != nil {
		r.out.Interrupted = true
	}

	ended := opts.Now()
	r.out.Ended = &ended
	r.out.Spent = r.spent()
	r.out.Env.finish(cell.Root())
	return r.out, errors.Join(err, r.folder.close(r.out))
}

// invalid is an error that wraps [ErrOptions].
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

// validate refuses what cannot be measured or would be misread; the cells are
// checked as they are planned.
func validate(comparisons []Comparison, opts Options) error {
	switch {
	case opts.Budget < 0:
		return invalid("Budget %v (want none, or more than 0)", opts.Budget)
	case opts.Rounds < 0 || opts.Rounds == 0 && opts.Budget == 0:
		return invalid("Rounds %d (want at least 1, or a Budget)", opts.Rounds)
	case opts.Resume && opts.Dir == "":
		return invalid("Resume needs the Dir of the run")
	case len(comparisons) == 0:
		return invalid("nothing to compare")
	}
	if opts.Gate != nil && (opts.Budget > 0 || opts.Fresh != nil) {
		return invalid("a Gate with a Budget or with Fresh")
	}
	for _, c := range comparisons {
		switch {
		case c.More != nil && opts.Gate != nil:
			return invalid("comparison %s (%s) asks for more cells: nobody knows when a Gate would be asked", c.Family, c.Title)
		case len(c.Cells) == 0:
			return invalid("comparison %s (%s) has no cells", c.Family, c.Title)
		case c.More != nil && opts.Rounds == 0:
			return invalid("comparison %s (%s) asks for more cells: it needs Rounds beside the Budget", c.Family, c.Title)
		case c.Together && (opts.Fresh != nil || opts.Profile != nil):
			return invalid("the cells of comparison %s (%s) are played together: none can have a process or a profile of its own", c.Family, c.Title)
		}
	}
	return nil
}

// runner is a run in progress.
type runner struct {
	opts        Options
	out         *Outcome
	folder      *folder
	contests    []*contest
	names       map[string]bool
	over        bool
	began       time.Time
	before      time.Duration
	done, total int
	all         took
}

// spent is how long the run has taken.
func (r *runner) spent() time.Duration { return r.before + time.Since(r.began) }

// open makes the results folder, or opens the one of the run that is taken up
// again, and plans all comparisons.
func (r *runner) open(comparisons []Comparison, env Env) error {
	r.out = &Outcome{
		Format: Format, Name: r.opts.Name, Started: env.Started, Seed: r.opts.Seed,
		Rounds: r.opts.Rounds, Budget: r.opts.Budget, Fresh: r.opts.Fresh != nil, Experiment: r.opts.Experiment, Env: env, Dir: r.opts.Dir,
	}
	if r.opts.Budget > 0 {
		// It counts up as they are played.
		r.out.Rounds = 0
	}
	if r.opts.Resume {
		return r.resume(comparisons, env)
	}
	for _, c := range comparisons {
		r.out.Comparisons = append(r.out.Comparisons, ComparisonResult{
			Family: c.Family, Title: c.Title, Latency: c.Latency, Input: c.Input,
		})
	}
	err := r.plan(comparisons, 0, nil)
	if err == nil {
		r.folder, err = createFolder(r.opts.Dir, r.out)
	}
	if err != nil {
		r.out = nil
	}
	return err
}

// plan takes the comparisons in. Those before from are over, as far as they were
// played before the run was taken up again; withheld are the rounds of cells that
// run.json has none of, see [folder].
func (r *runner) plan(comparisons []Comparison, from int, withheld map[string][]Round) error {
	first := 0
	for i, c := range comparisons {
		cells := slices.Clone(c.Cells)
		again := ""
		if !r.opts.NoAA && !c.Together {
			var second Cell
			second, again = pair(cells)
			cells = append(cells, second)
		}
		c.Cells = nil
		contest := &contest{
			r: r, index: i, first: first, Comparison: c,
			baselines: map[string]string{}, warm: map[string]bool{},
			closed: i < from, withheld: withheld,
		}
		r.contests = append(r.contests, contest)
		if err := contest.take(cells, again); err != nil {
			return err
		}
		first += contest.plays(r.opts.Rounds)
		// What More asked for comes after these.
		if known := contest.result().Cells[len(cells):]; len(known) > 0 && (c.More == nil || known[0].Again != "") {
			return fmt.Errorf("%w: %s was played, and is not asked for now", ErrResume, known[0].BenchName())
		}
	}
	return nil
}

func (r *runner) play(ctx context.Context) error {
	for i, c := range r.contests {
		if c.closed {
			continue
		}
		if r.opts.Budget > 0 {
			now := r.spent()
			c.until = now + max(r.opts.Budget-now, 0)/time.Duration(len(r.contests)-i)
		}
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
