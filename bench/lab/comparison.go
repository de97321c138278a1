package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/profile"
	"watchlab/bench/stats"
)

// comparisonRun is a comparison in progress. Its cells come in batches: first the
// planned ones, then those that More returns. A batch finishes all its rounds before
// the next begins.
type comparisonRun struct {
	r            *runner
	index, first int // index in the outcome; position of its first play in the run ([Play])
	Comparison
	cellRuns  []*cellRun         // parallel to Comparison.Cells
	baselines map[string]string  // baseline cells, by the name without the variant
	warm      map[string]bool    // variants that were played in this process
	until     time.Duration      // end of its share of the budget, as time since the start of the run
	reserve   time.Duration      // part of the budget that the first batch leaves for cells of More
	closed    bool               // the resumed run had finished this comparison
	withheld  map[string][]Round // rounds of the resumed run that run.json does not show
}

func (c *comparisonRun) result() *ComparisonResult { return &c.r.out.Comparisons[c.index] }

// take adds a batch of cells. If again is not empty, the last cell repeats the cell of
// that name. Cells that a resumed run knows must be the same.
func (c *comparisonRun) take(cells []Cell, again string) error {
	for i, cl := range cells {
		if err := c.check(cl); err != nil {
			return err
		}
		result := CellResult{
			Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
			Baseline: cl.Baseline, Seed: c.r.opts.Seed, Verdict: judge(cl.Labels, nil),
		}
		if i == len(cells)-1 {
			result.Repeats = again
		}
		t := &cellRun{}
		if at, known := len(c.Cells), c.result().Cells; at < len(known) {
			if err := sameCell(known[at], result); err != nil {
				return err
			}
			t.restore(&known[at], c.withheld[known[at].BenchName()], c.Latency)
		} else {
			c.result().Cells = append(known, result)
		}
		c.Cells = append(c.Cells, cl)
		c.cellRuns = append(c.cellRuns, t)
		c.count(len(c.Cells) - 1)
	}
	return nil
}

// count adds the cell's plays to the totals.
func (c *comparisonRun) count(i int) {
	t := c.cellRuns[i]
	if t.closed || c.closed {
		t.left = 0
	} else if t.left = max(c.r.opts.Rounds-len(t.rounds), 0); t.left > 0 && c.cold(i) {
		t.left++
	}
	if c.r.opts.Profile != nil && !t.closed && !c.closed {
		t.left++
	}
	for _, r := range t.rounds {
		if r.Took > 0 {
			t.took.add(r.Took)
			c.r.all.add(r.Took)
		}
	}
	c.r.done += len(t.rounds)
	c.r.total += len(t.rounds) + t.left
}

// check rejects a cell without a workload, with a bad or duplicate name, or with a
// second baseline for the same knobs.
func (c *comparisonRun) check(cl Cell) error {
	name := cl.BenchName()
	if err := stats.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	keys := map[string]bool{}
	for _, l := range cl.Labels {
		if keys[l.Key] {
			return invalid("cell %s has the label %q twice", name, l.Key)
		}
		keys[l.Key] = true
	}
	switch {
	case cl.New == nil:
		return invalid("cell %s has no workload", name)
	case c.r.names[name]:
		return invalid("cell %s stands there twice: its rounds could not be told apart", name)
	}
	c.r.names[name] = true
	// Ratios need exactly one baseline for the same knobs.
	if key := benchName(cl.Name, without(cl.Labels, "impl")); cl.Baseline {
		if have, ok := c.baselines[key]; ok {
			return invalid("%s and %s are both the baseline of one table's row", have, name)
		}
		c.baselines[key] = name
	}
	return nil
}

// play plays all batches, then the plays for profiles.
func (c *comparisonRun) play(ctx context.Context) error {
	for batch, first := 0, 0; first < len(c.Cells); batch++ {
		if err := c.playBatch(ctx, batch, first); err != nil || c.r.out.Interrupted {
			return err
		}
		first = len(c.Cells)
		if err := c.ask(); err != nil {
			return err
		}
	}
	if n := len(c.result().Cells) - len(c.Cells); n > 0 {
		return fmt.Errorf("%w: comparison %s (%s) had asked for %d cells more than it does now", ErrResume, c.Family, c.Title, n)
	}
	return c.playProfiled(ctx)
}

// ask adds the next batch. After the end of the budget it adds only cells that were
// played before the run was resumed.
func (c *comparisonRun) ask() error {
	over := c.r.opts.Budget > 0 && c.r.spent() >= c.until
	if c.More == nil || over && len(c.result().Cells) == len(c.Cells) {
		return nil
	}
	for i := range c.Cells {
		c.warm[implOf(c.Cells[i].Labels)] = true
	}
	played := slices.Clone(c.result().Cells[:len(c.Cells)])
	return guard("more", func() error { return c.take(c.More(played), "") })
}

func implOf(labels []Label) string { return labelOf(labels, "impl") }

// cold reports whether the cell's variant needs a warm-up.
func (c *comparisonRun) cold(i int) bool {
	return c.r.opts.Fresh == nil && !c.warm[implOf(c.Cells[i].Labels)]
}

// playBatch plays all rounds of the cells from first on.
func (c *comparisonRun) playBatch(ctx context.Context, batch, first int) error {
	if len(c.result().Cells) > len(c.Cells) {
		// The next batch exists, so this one is finished.
		return nil
	}
	last := c.certain(first)
	for round := 0; ; round++ {
		if round > last {
			if !c.fits(first, last, 1) {
				return nil
			}
			last++
		}
		c.result().Rounds = max(c.result().Rounds, last)
		c.r.out.Rounds = max(c.r.out.Rounds, last)
		plays := c.plan(batch, first, round, last)
		if err := c.begin(plays); err != nil {
			return err
		}
		playRound := c.playInOrder
		if c.Together {
			playRound = c.playTogether
		}
		if err := playRound(ctx, plays); err != nil || c.r.out.Interrupted {
			return err
		}
	}
}

// certain is the number of rounds that are played regardless of the time.
func (c *comparisonRun) certain(first int) int {
	if c.r.opts.Budget == 0 {
		return c.r.opts.Rounds
	}
	most, fewest := 0, math.MaxInt
	for _, t := range c.cellRuns[first:] {
		if !t.failed {
			most, fewest = max(most, len(t.rounds)), min(fewest, len(t.rounds))
		}
	}
	// A run resumed after a whole round needs a warm-up, so one more round costs two.
	if most > 0 && most == fewest && c.fits(first, most, 2) {
		return most + 1
	}
	return max(most, 1)
}

// fits reports whether the budget allows this number of further rounds after the last
// one.
func (c *comparisonRun) fits(first, last, more int) bool {
	if c.r.opts.Budget == 0 || c.r.opts.Rounds > 0 && last >= c.r.opts.Rounds {
		return false
	}
	if c.r.opts.Profile != nil {
		more++
	}
	until := c.until
	if first == 0 && c.More != nil {
		until -= c.reserve
	}
	cost := c.cost(c.cellRuns[first:], func(*cellRun) int { return more })
	return cost > 0 && c.r.spent()+cost <= until
}

// plan returns the plays of a round in its drawn order. A warm-up has the cold cells
// that lack a round; any other round has the cells without it.
func (c *comparisonRun) plan(batch, first, round, last int) []*cellPlay {
	var plays []*cellPlay
	for place, i := range order(len(c.Cells)-first, c.r.opts.Seed, c.index, batch, round) {
		i += first
		t := c.cellRuns[i]
		switch {
		case t.closed || t.has(round):
		case round > 0 || c.cold(i) && len(t.rounds) < last:
			plays = append(plays, c.newPlay(i, round, place+1))
		}
	}
	return plays
}

// order draws the order of a round from the seed. Each round of each batch has its own
// order, independent of earlier plays.
func order(n int, seed int64, comparison, batch, round int) []int {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(batch)<<48|uint64(comparison)<<32|uint64(round)))
	return rng.Perm(n)
}

// begin calls the comparison's Begin before a round.
func (c *comparisonRun) begin(plays []*cellPlay) error {
	n := 0
	for _, t := range plays {
		if !t.cellRun.failed {
			n++
		}
	}
	if c.Begin == nil || n == 0 {
		return nil
	}
	return guard("begin", func() error { return c.Begin(n) })
}

// playInOrder plays the cells of a round one after the other.
func (c *comparisonRun) playInOrder(ctx context.Context, plays []*cellPlay) error {
	for _, t := range plays {
		if c.r.interrupted(ctx) {
			return nil
		}
		if t.skip() {
			continue
		}
		t.start()
		if fresh := c.r.opts.Fresh; fresh != nil {
			t.measured, t.err = fresh(ctx, t.found().original())
		} else {
			t.measured, t.err = play(ctx, c.Cells[t.cell], new(cell.Recorder), t.hook())
		}
		if err := t.settle(ctx); err != nil || c.r.out.Interrupted {
			return err
		}
	}
	return nil
}

// playProfiled plays each cell again for its profiles.
func (c *comparisonRun) playProfiled(ctx context.Context) error {
	if c.r.opts.Profile == nil {
		return nil
	}
	for i, cl := range c.Cells {
		if c.r.interrupted(ctx) {
			return nil
		}
		t := c.newPlay(i, profiled, i+1)
		t.progress.Round, t.progress.Profiling = 0, true
		if t.cellRun.closed || t.skip() {
			continue
		}
		t.start()
		err := t.profile(ctx, c, cl)
		if err := errors.Join(err, t.settle(ctx)); err != nil || c.r.out.Interrupted {
			return err
		}
	}
	return nil
}

// A cell is profiled for profileFor, but at most profilePlays times: with a sample
// every 10 ms, a play of 200 ms shows little.
const (
	profileFor   = time.Second
	profilePlays = 10
)

// profile plays the cell with profiles. The error is the profiler's, which names the
// cell.
func (t *cellPlay) profile(ctx context.Context, c *comparisonRun, cl Cell) error {
	labelled := profile.With(ctx, c.Family, implOf(cl.Labels), labelOf(cl.Labels, "storm"))
	var measured time.Duration
	for range profilePlays {
		var (
			stop func() error
			err  error
		)
		rec := cell.Around(
			func() { stop, err = c.r.opts.Profile.Start(t.progress.Cell) },
			func() {
				if err == nil {
					err = stop()
				}
			})
		profile.Do(labelled, "", func(ctx context.Context) { t.measured, t.err = play(ctx, cl, rec, nil) })
		rec.Abandon()
		measured += t.measured.Elapsed
		if err != nil || t.err != nil || measured >= profileFor {
			return err
		}
	}
	return nil
}

// playTogether plays the cells of a round at the same time.
func (c *comparisonRun) playTogether(ctx context.Context, plays []*cellPlay) error {
	if c.r.interrupted(ctx) {
		return nil
	}
	var cells sync.WaitGroup
	var playing []*cellPlay
	for _, t := range plays {
		if !t.skip() {
			playing = append(playing, t)
		}
	}
	for _, t := range playing {
		t.start()
	}
	var hook func(context.Context) error
	if len(playing) > 0 {
		hook = playing[0].hook()
	}
	start := newLatch(len(playing), hook)
	for _, t := range playing {
		cells.Go(func() {
			wait, done := start.join()
			defer done(ctx)
			t.measured, t.err = play(ctx, c.Cells[t.cell], cell.Shared(), wait)
		})
	}
	cells.Wait()
	for _, t := range playing {
		if err := t.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}
