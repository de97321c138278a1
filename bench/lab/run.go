package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"watchlab/bench/cell"
)

var (
	// ErrOptions is wrapped by the errors for invalid options and comparisons; nothing
	// has been played or written.
	ErrOptions = errors.New("invalid options")
	// ErrExists is wrapped by the error for an existing results folder; it stays as it is.
	ErrExists = errors.New("exists already")
)

// Options of a run.
type Options struct {
	Name   string // of the run, stored in run.json
	Rounds int    // rounds that count, besides the warm-up; below 4 no difference is testable
	// Budget limits the time of the run; 0 means no limit. The lab plays as many rounds
	// of all cells as fit, at most Rounds unless that is 0. A warm-up and one round are
	// played even if they take longer. A comparison with NextCells needs Rounds, too; its
	// further cells get the time that is left after Rounds.
	Budget time.Duration
	// Processes is the number of processes that share the rounds; below 2: one. Process k plays
	// rounds until ceil(Rounds×k/Processes), with a Budget until k/Processes of it are spent, and at
	// least one. Then Run returns with [Outcome].Paused, and the next process calls it with Resume.
	// [Comparison].NextCells's cells are shared in the same way. It needs a Dir, and neither PlayInFreshProcess nor BeforeRun.
	Processes int
	Seed      int64 // of the order of the cells
	// NoAA leaves out the A/A pairs. Without it the lab plays one cell of each comparison twice:
	// the first unpaced baseline, else the first baseline, else the first cell. The second play's variant has the suffix "-again"
	// ([CellResult].Repeats). Any difference between the two is chance.
	NoAA bool
	Dir  string // results folder, which must not exist; empty: nothing is written
	// Resume continues the interrupted run in Dir: finished rounds stay, and the
	// missing ones are played after a warm-up. Program, machine, comparisons and
	// options must be the same ([ErrResume]). A finished run is returned unchanged.
	Resume bool
	// IgnoreHost omits steal and throttling from the verdicts, for tests. [Env].IgnoreHost says so beside the figures.
	IgnoreHost bool
	// PlayInFreshProcess, if not nil, plays a cell in its own process by calling [PlayCell] there.
	// Memory measurements need this. It gets the cell's name; the second cell of an A/A
	// pair gets the name of the first. There is no warm-up.
	PlayInFreshProcess func(ctx context.Context, cell string) (cell.Result, error)
	// BeforeRun, if not nil, is called between Setup and Run of each play, and returns when Run may
	// begin. Processes that play shares of one storm start together this way.
	// Its error is the cell's. Plays for profiles do not call it. It needs
	// a fixed number of plays: no Budget, no [Comparison].NextCells, no PlayInFreshProcess.
	BeforeRun func(ctx context.Context, p Play) error
	// Watch, if not nil, returns a cell whose workloads do more. further: it is one of [Comparison].NextCells.
	Watch    func(family string, c Cell, further bool) Cell
	Profile  Profiler       // plays each cell again, up to ten times or 1 s, between Start and stop; nil: no profiles
	Progress func(Progress) // called before and after each cell, never during a measurement; may be nil
	Build    Build          // identifies the program
	Args     []string       // the program's arguments, for env.json and the report
	// Experiment is the Spec of the run as JSON. Package lab does not read it. It
	// stores it in run.json, and as YAML in [ExperimentFile].
	Experiment json.RawMessage

	files fileSystem // of the results folder; nil: the system's
}

// Profiler takes pprof profiles of the measured part of a play, between Start and stop.
// An error of either ends the run.
type Profiler interface {
	// Start begins the profiles of the cell with the given benchmark name.
	Start(cell string) (stop func() error, err error)
	// Do calls f on a goroutine that carries the labels of a cell as pprof labels.
	Do(ctx context.Context, family string, cell Labels, f func(context.Context))
}

// Run plays comparisons. Before the first play it returns an error without an outcome: one that
// wraps [ErrOptions], [ErrExists] or [ErrResume], or an error of the file system. Later errors come
// with the outcome so far: errors of a file, of [Comparison].NextCells or of a profile.
//
// If ctx ends, Run drops the cell in progress, keeps finished rounds, and sets
// Outcome.Interrupted; it returns no error.
//
// Time: (Rounds+1) × the time of all cells.
func Run(ctx context.Context, comparisons []Comparison, opts Options) (*Outcome, error) {
	if err := validate(comparisons, opts); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx) // also of what the cells of the run share
	defer end()
	r := &runner{opts: opts, process: 1, names: map[string]bool{}, began: time.Now()}
	finished, err := r.open(comparisons)
	switch {
	case err != nil:
		return nil, errors.Join(err, unlockFolder(r.lock))
	case finished:
		return r.out, unlockFolder(r.lock)
	}
	err = r.play(ctx)
	r.out.Paused = errors.Is(err, errPaused)
	r.out.Interrupted = err != nil && !r.out.Paused
	if r.out.Paused || errors.Is(err, errInterrupted) {
		err = nil
	}
	if !r.out.Paused {
		r.out.Ended = new(time.Now())
		r.out.Env.finish()
	}
	r.out.Spent = r.spent()
	return r.out, errors.Join(cmp.Or(err, r.out.close()), unlockFolder(r.lock))
}

var (
	errInterrupted = errors.New("interrupted") // by the end of the run's context
	errPaused      = errors.New("paused")      // the process has played its share
)

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
	case len(comparisons) == 0:
		return invalid("nothing to compare")
	}
	for _, c := range comparisons {
		switch {
		case c.NextCells != nil && opts.BeforeRun != nil:
			return invalid("comparison %s (%s) asks for more cells, so the number of plays for BeforeRun is unknown", c.Family, c.Title)
		case c.NextCells != nil && opts.Rounds == 0:
			return invalid("comparison %s (%s) asks for more cells: it needs Rounds beside the Budget", c.Family, c.Title)
		}
	}
	return nil
}

// runner is a run in progress. The outcome is its only record of finished rounds.
type runner struct {
	opts     Options
	out      *Outcome
	lock     *os.File // of the results folder; nil without one
	runs     []*comparisonRun
	perRound int             // positions of one round; see [Play]
	process  int             // number of this process in the run, from 1
	names    map[string]bool // benchmark names of all cells, to reject duplicates
	began    time.Time       // start of this process's part
	before   time.Duration   // time spent before the resumption
}

func (r *runner) spent() time.Duration { return r.before + time.Since(r.began) }

// open plans all comparisons, and creates the results folder or opens that of the
// resumed run. finished reports that the resumed run had finished.
func (r *runner) open(comparisons []Comparison) (finished bool, err error) {
	env := CaptureEnv(time.Now(), r.opts.Build, r.opts.Args)
	r.out = &Outcome{
		Format: Format, Name: r.opts.Name, Started: env.Started, Seed: r.opts.Seed, Rounds: r.opts.Rounds, Budget: r.opts.Budget,
		Processes: r.opts.Processes, Fresh: r.opts.PlayInFreshProcess != nil, Experiment: json.RawMessage(Redact(string(r.opts.Experiment))), Env: env, Dir: r.opts.Dir, files: r.opts.files,
	}
	r.out.Env.Processes, r.out.Env.IgnoreHost = 1, r.opts.IgnoreHost
	if r.opts.Budget > 0 {
		// With a budget, Rounds grows with the rounds played.
		r.out.Rounds = 0
	}
	for _, c := range comparisons {
		r.out.Comparisons = append(r.out.Comparisons, ComparisonResult{
			Family: c.Family, Title: c.Title, Input: c.Input, Rounds: r.out.Rounds,
		})
	}
	if r.opts.Resume {
		return r.resume(comparisons)
	}
	if err := r.plan(comparisons); err != nil || r.opts.Dir == "" {
		return false, err
	}
	if err := r.out.Create(r.opts.Dir); err != nil {
		return false, err
	}
	r.lock, err = lockFolder(r.opts.Dir)
	return false, err
}

func (r *runner) plan(comparisons []Comparison) error {
	for i, c := range comparisons {
		cells, again := slices.Clone(c.Cells), ""
		if !r.opts.NoAA {
			var second Cell
			second, again = pair(cells)
			cells = append(cells, second)
		}
		run := &comparisonRun{
			r: r, index: i, offset: r.perRound, Comparison: c, baselines: map[string]string{}, warm: map[string]bool{},
		}
		r.runs = append(r.runs, run)
		r.perRound += c.positions(r.opts)
		if err := run.add(cells, again); err != nil {
			return err
		}
		// Cells beyond these come from NextCells.
		if known := run.result().Cells[len(cells):]; len(known) > 0 && (c.NextCells == nil || known[0].Repeats != "") {
			return fmt.Errorf("%w: %s was played but is not in the experiment now", ErrResume, known[0].BenchName())
		}
	}
	return nil
}

// play plays the cells in phases: first the planned ones, then those that NextCells returns.
// A phase plays all its rounds before the next one begins. Plays for profiles follow.
func (r *runner) play(ctx context.Context) error {
	for phase, more := 0, true; more; phase++ {
		// A resumed run with cells of the next phase has finished this one.
		if !slices.ContainsFunc(r.runs, (*comparisonRun).resumed) {
			if err := r.playPhase(ctx, phase); err != nil {
				return err
			}
		}
		var err error
		if more, err = r.extend(); err != nil {
			return err
		}
	}
	for _, c := range r.runs {
		if n := len(c.result().Cells) - len(c.cells); n > 0 {
			return fmt.Errorf("%w: comparison %s (%s) had %d more cells than now", ErrResume, c.Family, c.Title, n)
		}
		if err := c.playProfiled(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) playPhase(ctx context.Context, phase int) error {
	s := r.share()
	last := s.certain()
	if s.finished >= last {
		return nil
	}
	for round := 0; ; round++ {
		if round > last {
			if !r.fits(last, 1) {
				return nil
			}
			last++
		}
		if s.over(round) {
			if ctx.Err() != nil {
				return errInterrupted
			}
			return errPaused
		}
		r.out.Rounds = max(r.out.Rounds, last)
		for _, c := range r.runs {
			if err := c.playRound(ctx, phase, round, last); err != nil {
				return err
			}
		}
	}
}

// share is this process's share of the rounds of a phase.
type share struct {
	r        *runner
	k        int           // number of this process among those that play the phase, from 1
	finished int           // rounds that all cells have
	most     int           // rounds that one of them has
	until    time.Duration // end of the share of the budget
}

func (r *runner) share() share {
	s := share{r: r, finished: math.MaxInt}
	before := map[int]bool{r.process: true}
	for _, c := range r.runs {
		for _, t := range c.cells[c.first:] {
			if n := len(t.rounds()); !t.failed {
				s.finished, s.most = min(s.finished, n), max(s.most, n)
			}
			for _, p := range processesOf(t.rounds()) {
				before[p] = true
			}
		}
	}
	s.k = len(before)
	left := time.Duration(max(r.opts.Processes-s.k+1, 1))
	s.until = r.spent() + (r.opts.Budget-r.spent())/left
	return s
}

// over reports whether the next process plays this round and those after it.
func (s share) over(round int) bool {
	r, n, most, done := s.r, s.r.opts.Processes, s.r.opts.Rounds, round-1
	switch {
	case done <= s.finished || n < 2:
		return false
	case most > 0 && done*n/most > (done-1)*n/most:
		return true // done is ceil(k×Rounds/Processes) for a k
	}
	// The next process needs time for a warm-up and a round.
	return s.k < n && r.opts.Budget > 0 && r.spent()+r.phaseCost() > s.until && r.fits(round-1, 2)
}

// extend adds the cells of the next phase, and reports whether there are any. After the
// end of the budget it adds only cells that a resumed run has played.
func (r *runner) extend() (more bool, err error) {
	over := r.opts.Budget > 0 && r.spent() >= r.opts.Budget
	resumed := slices.ContainsFunc(r.runs, (*comparisonRun).resumed)
	for _, c := range r.runs {
		c.first = len(c.cells)
		if c.NextCells == nil || over && !resumed {
			continue
		}
		played := slices.Clone(c.result().Cells[:len(c.cells)])
		if err := guard("more", func() error {
			cells, err := c.NextCells(played)
			return errors.Join(err, c.add(cells, ""))
		}); err != nil {
			return false, err
		}
		more = more || len(c.cells) > c.first
	}
	return more, nil
}

// certain is the number of rounds of a phase that are played regardless of the time.
func (s share) certain() int {
	if s.r.opts.Budget == 0 {
		return s.r.opts.Rounds
	}
	// A run resumed after a whole round needs a warm-up, so one more round costs two.
	if s.most > 0 && s.most == s.finished && s.r.fits(s.most, 2) {
		return s.most + 1
	}
	return max(s.most, 1)
}

// fits reports whether the budget allows this number of further rounds after the last
// one of the phase.
func (r *runner) fits(last, more int) bool {
	if r.opts.Budget == 0 || r.opts.Rounds > 0 && last >= r.opts.Rounds {
		return false
	}
	if r.opts.Profile != nil {
		more++
	}
	cost := r.phaseCost() * time.Duration(more)
	return cost > 0 && r.spent()+cost <= r.opts.Budget
}
