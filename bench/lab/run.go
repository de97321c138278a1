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
	// ErrOptions is wrapped by the errors for invalid options and comparisons;
	// nothing has been played or written.
	ErrOptions = errors.New("invalid options")
	// ErrExists is wrapped by the error for a results folder that exists; it stays
	// as it is.
	ErrExists = errors.New("exists already")
)

// Options of a run.
type Options struct {
	Name   string // of the run, stored in run.json
	Rounds int    // rounds that count, besides the warm-up; below 4 no difference is testable
	// Budget limits the time of the run; 0 means no limit. The lab plays as many rounds
	// as fit, at most Rounds unless that is 0. Each comparison gets an equal share of
	// the time left at its beginning. A warm-up and one round are played even if they
	// take longer. A comparison with More needs Rounds, too.
	Budget time.Duration
	Seed   int64 // of the order of the cells
	// NoAA leaves out the A/A pairs. Without it the lab plays one cell of each
	// comparison twice, unless its cells are played together. It chooses the first
	// unpaced baseline, else the first baseline, else the first cell. The second play's
	// variant has the suffix "-again" ([CellResult].Repeats). Any difference between
	// the two is chance.
	NoAA bool
	Dir  string // results folder, which must not exist; empty: nothing is written
	// Resume continues the interrupted run in Dir: finished rounds stay, and the
	// missing ones are played after a warm-up. Program, machine, comparisons and
	// options must be the same ([ErrResume]). A finished run is returned unchanged.
	Resume bool
	// Fresh, if not nil, plays a cell in its own process by calling [PlayCell] there.
	// Memory measurements need this. It gets the cell's name; the second cell of an A/A
	// pair gets the name of the first. There is no warm-up.
	Fresh func(ctx context.Context, cell string) (cell.Result, error)
	// BeforeRun, if not nil, is called between Setup and Run of each play, and returns
	// when Run may begin. Processes that play shares of one storm start together this
	// way. Cells that are played together share one call. Its error is the cell's.
	// Plays for profiles do not call it. It needs a fixed number of plays: no Budget,
	// no [Comparison].More, no Fresh.
	BeforeRun func(ctx context.Context, p Play) error
	Profile   Profiler       // plays each cell again, up to ten times or 1 s, between Start and stop; nil: no profiles
	Progress  func(Progress) // called before and after each cell, never during a measurement; may be nil
	Build     Build          // identifies the program
	Args      []string       // the program's arguments, for env.json and the report
	// Experiment is the Spec of the run as JSON. Package lab does not read it. It
	// stores it in run.json, and as YAML in [ExperimentFile].
	Experiment json.RawMessage
	Now        func() time.Time // clock for timestamps, not for measurements; nil: time.Now
}

// Profiler takes pprof profiles of the measured part of a play, between Start and stop.
// An error of either ends the run.
type Profiler interface {
	// Start begins the profiles of the cell with the given benchmark name.
	Start(cell string) (stop func() error, err error)
}

// Run plays comparisons. Before the first play it returns an error without an outcome:
// one that wraps [ErrOptions], [ErrExists] or [ErrResume], or an error of the file
// system. Later errors come with the outcome so far: errors of a file, of
// [Comparison].More or of a profile.
//
// If ctx ends, Run drops the cell in progress, keeps finished rounds, and sets
// Outcome.Interrupted; it returns no error.
//
// Time: (Rounds+1) × the time of all cells.
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

// validate checks options and comparisons; cells are checked when they are planned.
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
	if opts.BeforeRun != nil && (opts.Budget > 0 || opts.Fresh != nil) {
		return invalid("BeforeRun with a Budget or with Fresh")
	}
	for _, c := range comparisons {
		switch {
		case c.More != nil && opts.BeforeRun != nil:
			return invalid("comparison %s (%s) asks for more cells, so the number of plays for BeforeRun is unknown", c.Family, c.Title)
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
	runs        []*comparisonRun
	names       map[string]bool // benchmark names of all cells, to reject duplicates
	over        bool            // the resumed run had finished
	began       time.Time       // start of this process's part
	before      time.Duration   // time spent before the resumption
	done, total int             // plays; see [Progress]
	all         took            // times of all plays
}

// spent is the time of the run over all resumptions.
func (r *runner) spent() time.Duration { return r.before + time.Since(r.began) }

// open creates the results folder, or opens that of the resumed run, and plans all
// comparisons.
func (r *runner) open(comparisons []Comparison, env Env) error {
	r.out = &Outcome{
		Format: Format, Name: r.opts.Name, Started: env.Started, Seed: r.opts.Seed,
		Rounds: r.opts.Rounds, Budget: r.opts.Budget, Fresh: r.opts.Fresh != nil, Experiment: r.opts.Experiment, Env: env, Dir: r.opts.Dir,
	}
	if r.opts.Budget > 0 {
		// With a budget, Rounds grows with the rounds played.
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

// plan adds the comparisons. Those before from were finished before the run was
// resumed. withheld are the rounds that run.json does not show; see [folder].
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
		run := &comparisonRun{
			r: r, index: i, first: first, Comparison: c,
			baselines: map[string]string{}, warm: map[string]bool{},
			closed: i < from, withheld: withheld,
		}
		r.runs = append(r.runs, run)
		if err := run.take(cells, again); err != nil {
			return err
		}
		first += run.plays(r.opts.Rounds)
		// Cells beyond these come from More.
		if known := run.result().Cells[len(cells):]; len(known) > 0 && (c.More == nil || known[0].Repeats != "") {
			return fmt.Errorf("%w: %s was played, and is not asked for now", ErrResume, known[0].BenchName())
		}
	}
	return nil
}

func (r *runner) play(ctx context.Context) error {
	for i, c := range r.runs {
		if c.closed {
			continue
		}
		if r.opts.Budget > 0 {
			now := r.spent()
			share := max(r.opts.Budget-now, 0) / time.Duration(len(r.runs)-i)
			c.until, c.reserve = now+share, share/3
		}
		if err := c.play(ctx); err != nil || r.out.Interrupted {
			return err
		}
	}
	return nil
}

// interrupted sets Outcome.Interrupted after the end of ctx, and reports it.
func (r *runner) interrupted(ctx context.Context) bool {
	if ctx.Err() != nil {
		r.out.Interrupted = true
	}
	return r.out.Interrupted
}
