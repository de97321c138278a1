package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/host"
	"watchlab/bench/stats"
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

// Progress tells how far a run is.
type Progress struct {
	// Family and Title of the comparison that is played, and the cell's name as
	// benchmarks have it.
	Family, Title, Cell string
	// Round that is played, of Rounds; 0 is the warm-up.
	Round, Rounds int
	// Done of Total cells have been played, over all rounds. Cells that are
	// skipped since they became invalid count as played.
	Done, Total int
	// Finished is false before the cell is played and true afterwards; then
	// Verdict is the cell's so far. Skipped is true where an invalid cell was
	// passed over.
	Finished, Skipped bool
	Verdict           Verdict
}

// Run plays comparisons. It returns an error, and no outcome, only before
// anything was played: one wrapping [ErrOptions] or [ErrExists], or that of the
// file system. An error of a file in mid-run ends the run and comes with the
// outcome so far.
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
	r := &runner{opts: opts, out: newOutcome(comparisons, opts, env)}
	for _, c := range comparisons {
		r.total += len(c.Cells) * (opts.Rounds + 1)
	}
	var err error
	if r.folder, err = createFolder(opts.Dir, r.out); err != nil {
		return nil, err
	}
	err = r.playAll(ctx, comparisons)

	ended := opts.Now()
	r.out.Ended = &ended
	r.out.Env.finish(host.Root())
	return r.out, errors.Join(err, r.folder.close(r.out))
}

// validate refuses what cannot be measured or would be misread.
func validate(comparisons []Comparison, opts Options) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	if opts.Rounds < 1 {
		return fail("Rounds %d (want at least 1)", opts.Rounds)
	}
	if len(comparisons) == 0 {
		return fail("nothing to compare")
	}
	seen := map[string]bool{}
	for _, c := range comparisons {
		if len(c.Cells) == 0 {
			return fail("comparison %s (%s) has no cells", c.Family, c.Title)
		}
		baselines := map[string]string{}
		for _, cl := range c.Cells {
			name := benchName(cl.Name, cl.Labels)
			if err := stats.CheckName(name); err != nil {
				return fmt.Errorf("%w: %w", ErrOptions, err)
			}
			keys := map[string]bool{}
			for _, l := range cl.Labels {
				if keys[l.Key] {
					return fail("cell %s has the label %q twice", name, l.Key)
				}
				keys[l.Key] = true
			}
			switch {
			case cl.New == nil:
				return fail("cell %s has no workload", name)
			case seen[name]:
				return fail("cell %s stands there twice: its rounds could not be told apart", name)
			}
			seen[name] = true
			// Of two baselines for the same knobs, none could be the one that
			// ratios are taken against.
			if key := benchName(cl.Name, without(cl.Labels, "impl")); cl.Baseline {
				if have, ok := baselines[key]; ok {
					return fail("%s and %s are both the baseline of one table's row", have, name)
				}
				baselines[key] = name
			}
		}
	}
	return nil
}

func newOutcome(comparisons []Comparison, opts Options, env Env) *Outcome {
	o := &Outcome{
		Format: Format, Name: opts.Name, Started: env.Started,
		Seed: opts.Seed, Rounds: opts.Rounds, Env: env,
	}
	for _, c := range comparisons {
		cr := ComparisonResult{Family: c.Family, Title: c.Title, Latency: c.Latency}
		for _, cl := range c.Cells {
			cr.Cells = append(cr.Cells, CellResult{
				Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees,
				Baseline: cl.Baseline, Seed: opts.Seed, Verdict: judge(cl.Labels, nil),
			})
		}
		o.Comparisons = append(o.Comparisons, cr)
	}
	return o
}

// runner is a run in progress.
type runner struct {
	opts   Options
	out    *Outcome
	folder *folder

	done, total int
}

func (r *runner) playAll(ctx context.Context, comparisons []Comparison) error {
	for ci, c := range comparisons {
		played := make([]tally, len(c.Cells))
		for round := 0; round <= r.opts.Rounds; round++ {
			if err := begin(c, played); err != nil {
				return err
			}
			playRound := r.playInTurn
			if c.Together {
				playRound = r.playTogether
			}
			if err := playRound(ctx, ci, c, played, round); err != nil || r.out.Interrupted {
				return err
			}
		}
	}
	return nil
}

// begin tells a comparison that a round begins.
func begin(c Comparison, played []tally) error {
	if c.Begin == nil {
		return nil
	}
	n := 0
	for _, t := range played {
		if !t.failed {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return guard("begin", func() error { return c.Begin(n) })
}

// interrupted notes that ctx has ended. It is no error: what is finished is kept,
// and the outcome says so.
func (r *runner) interrupted(ctx context.Context) bool {
	if ctx.Err() != nil {
		r.out.Interrupted = true
	}
	return r.out.Interrupted
}

// playInTurn plays the cells of a round one after the other, in random order.
func (r *runner) playInTurn(ctx context.Context, ci int, c Comparison, played []tally, round int) error {
	for place, i := range order(len(c.Cells), r.opts.Seed, ci, round) {
		if r.interrupted(ctx) {
			return nil
		}
		turn := r.turn(ci, i, &played[i], round, place+1)
		if turn.skip() {
			continue
		}
		turn.tell(false)
		started := r.opts.Now()
		measured, err := play(ctx, c.Cells[i], new(cell.Recorder))
		if err := turn.settle(ctx, started, measured, err); err != nil || r.out.Interrupted {
			return err
		}
	}
	return nil
}

// playTogether plays the cells of a round at the same time.
func (r *runner) playTogether(ctx context.Context, ci int, c Comparison, played []tally, round int) error {
	if r.interrupted(ctx) {
		return nil
	}
	type outcome struct {
		turn     turn
		measured cell.Result
		err      error
	}
	var outcomes []*outcome
	for place, i := range order(len(c.Cells), r.opts.Seed, ci, round) {
		if t := r.turn(ci, i, &played[i], round, place+1); !t.skip() {
			t.tell(false)
			outcomes = append(outcomes, &outcome{turn: t})
		}
	}
	started := r.opts.Now()
	var cells sync.WaitGroup
	for _, o := range outcomes {
		cells.Go(func() { o.measured, o.err = play(ctx, c.Cells[o.turn.cell], cell.Shared()) })
	}
	cells.Wait()
	for _, o := range outcomes {
		if err := o.turn.settle(ctx, started, o.measured, o.err); err != nil {
			return err
		}
	}
	return nil
}

// order draws the order of a round. Each round of each comparison has its own,
// whatever was played before it.
func order(n int, seed int64, comparison, round int) []int {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(comparison)<<32|uint64(round)))
	return rng.Perm(n)
}

// tally is what a cell has measured so far. It is kept apart from the outcome,
// which never holds a figure of an invalid cell: a paced cell's verdict may
// yet turn with the next round.
type tally struct {
	failed bool
	rounds []Round
}

// turn is a cell's play in a round.
type turn struct {
	r                *runner
	comparison, cell int
	tally            *tally
	round, place     int
	result           *CellResult
	progress         Progress
}

func (r *runner) turn(ci, i int, t *tally, round, place int) turn {
	comparison := &r.out.Comparisons[ci]
	result := &comparison.Cells[i]
	return turn{
		r: r, comparison: ci, cell: i, tally: t, round: round, place: place, result: result,
		progress: Progress{
			Family: comparison.Family, Title: comparison.Title, Cell: result.BenchName(),
			Round: round, Rounds: r.opts.Rounds, Total: r.total,
		},
	}
}

func (t *turn) tell(finished bool) {
	if t.r.opts.Progress == nil {
		return
	}
	t.progress.Done, t.progress.Finished, t.progress.Verdict = t.r.done, finished, t.result.Verdict
	t.r.opts.Progress(t.progress)
}

// skip passes over a cell that is invalid.
func (t *turn) skip() bool {
	if !t.tally.failed {
		return false
	}
	t.progress.Skipped = true
	t.r.done++
	t.tell(true)
	return true
}

// settle keeps what a play measured. The error is of the results folder;
// whatever befell the workload is in the verdict.
func (t *turn) settle(ctx context.Context, started time.Time, measured cell.Result, err error) error {
	r, result, kept := t.r, t.result, t.tally
	switch {
	case err != nil && ctx.Err() != nil && !breaksInvariant(err):
		// Dropped; playAll sees that ctx ended and stops.
		r.out.Interrupted = true
		return nil
	case err != nil:
		kept.failed, kept.rounds = true, nil
		result.Verdict = broken(err)
	case t.round > 0:
		kept.rounds = append(kept.rounds, Round{Round: t.round, Place: t.place, Started: started, Result: measured})
		result.Verdict = judge(result.Labels, kept.rounds)
	}
	r.done++
	wasShown := len(result.Rounds) > 0
	publish(result, kept.rounds, r.out.Comparisons[t.comparison].Latency)
	// The warm-up of a sound cell leaves nothing to write.
	if t.round > 0 || kept.failed {
		err = r.folder.cellPlayed(r.out, t.comparison, t.cell, wasShown)
	} else {
		err = nil
	}
	t.tell(true)
	return err
}

// breaksInvariant: what was broken before ctx ended stays broken.
func breaksInvariant(err error) bool {
	for _, inv := range invariants {
		if errors.Is(err, inv.err) {
			return true
		}
	}
	return false
}

// publish puts the rounds into the outcome, or takes them out of it.
func publish(result *CellResult, rounds []Round, headline cell.Boundary) {
	result.Lag = medianLag(rounds)
	result.Rounds, result.Latency, result.Medians = nil, nil, nil
	if result.Verdict.Status == Invalid || len(rounds) == 0 {
		return
	}
	result.Rounds = rounds
	result.Latency = pool(rounds)
	result.Medians = result.Samples(headline).Summaries()
}

// pool adds the rounds' latencies up. A boundary whose histograms cannot be
// added, which only a workload of another kind in each round could bring about,
// is left out.
func pool(rounds []Round) []cell.Latency {
	var pooled []cell.Latency
	for _, first := range rounds[0].Result.Latency {
		parts := make([]cell.Quantiles, 0, len(rounds))
		for _, r := range rounds {
			if l, ok := r.Result.At(first.Boundary); ok {
				parts = append(parts, l.Quantiles)
			}
		}
		if sum, err := cell.MergeHistograms(parts...); err == nil {
			pooled = append(pooled, cell.Latency{Boundary: first.Boundary, Quantiles: sum})
		}
	}
	return pooled
}
