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

// contest is a comparison in progress. Its cells come in batches: those it was
// planned with, then what More returns, each of which is played over all rounds
// before the next is asked for.
type contest struct {
	r            *runner
	index, first int
	Comparison
	tallies   []*tally
	baselines map[string]string
	warm      map[string]bool
	until     time.Duration
	closed    bool
	withheld  map[string][]Round
}

func (c *contest) result() *ComparisonResult { return &c.r.out.Comparisons[c.index] }

// take takes a batch of cells in. The last one repeats the cell named again, if
// that isn't empty. Where the outcome knows further cells already, as that of a
// run which is taken up again does, they have to be the same.
func (c *contest) take(cells []Cell, again string) error {
	for i, cl := range cells {
		if err := c.check(cl); err != nil {
			return err
		}
		result := CellResult{
			Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
			Baseline: cl.Baseline, Seed: c.r.opts.Seed, Verdict: judge(cl.Labels, nil),
		}
		if i == len(cells)-1 {
			result.Again = again
		}
		t := &tally{}
		if at, known := len(c.Cells), c.result().Cells; at < len(known) {
			if err := sameCell(known[at], result); err != nil {
				return err
			}
			t.restore(&known[at], c.withheld[known[at].BenchName()], c.Latency)
		} else {
			c.result().Cells = append(known, result)
		}
		c.Cells = append(c.Cells, cl)
		c.tallies = append(c.tallies, t)
		c.count(len(c.Cells) - 1)
	}
	return nil
}

// count counts the plays that the cell is going to have.
func (c *contest) count(i int) {
	t := c.tallies[i]
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

// check refuses a cell that cannot be measured or would be misread.
func (c *contest) check(cl Cell) error {
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
	// Of two baselines for the same knobs, none could be the one that ratios are
	// taken against.
	if key := benchName(cl.Name, without(cl.Labels, "impl")); cl.Baseline {
		if have, ok := c.baselines[key]; ok {
			return invalid("%s and %s are both the baseline of one table's row", have, name)
		}
		c.baselines[key] = name
	}
	return nil
}

// play plays batch after batch, and then what is profiled.
func (c *contest) play(ctx context.Context) error {
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

// ask asks for the next batch. When the time is over it asks for what had been
// asked for already only.
func (c *contest) ask() error {
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

// cold reports whether the cell has to be played once before it counts.
func (c *contest) cold(i int) bool {
	return c.r.opts.Fresh == nil && !c.warm[implOf(c.Cells[i].Labels)]
}

// playBatch plays the cells from first on, over all rounds.
func (c *contest) playBatch(ctx context.Context, batch, first int) error {
	if len(c.result().Cells) > len(c.Cells) {
		// The next batch had been asked for, so that this one was over.
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
		turns := c.turns(batch, first, round, last)
		if err := c.begin(turns); err != nil {
			return err
		}
		playRound := c.playInTurn
		if c.Together {
			playRound = c.playTogether
		}
		if err := playRound(ctx, turns); err != nil || c.r.out.Interrupted {
			return err
		}
	}
}

// certain is how many rounds are played whatever the time.
func (c *contest) certain(first int) int {
	if c.r.opts.Budget == 0 {
		return c.r.opts.Rounds
	}
	most, fewest := 0, math.MaxInt
	for _, t := range c.tallies[first:] {
		if !t.failed {
			most, fewest = max(most, len(t.rounds)), min(fewest, len(t.rounds))
		}
	}
	// A run that is taken up again after a whole round has to be warmed up for the
	// next, so that one more costs two.
	if most > 0 && most == fewest && c.fits(first, most, 2) {
		return most + 1
	}
	return max(most, 1)
}

// fits reports whether the budget allows so many rounds more after the last one.
func (c *contest) fits(first, last, more int) bool {
	if c.r.opts.Budget == 0 || c.r.opts.Rounds > 0 && last >= c.r.opts.Rounds {
		return false
	}
	if c.r.opts.Profile != nil {
		more++
	}
	cost := c.cost(c.tallies[first:], func(*tally) int { return more })
	return cost > 0 && c.r.spent()+cost <= c.until
}

// turns are the plays of a round, in the order drawn for it: of all cells that
// have not had it yet, and to warm up of those that lack any.
func (c *contest) turns(batch, first, round, last int) []*turn {
	var turns []*turn
	for place, i := range order(len(c.Cells)-first, c.r.opts.Seed, c.index, batch, round) {
		i += first
		t := c.tallies[i]
		switch {
		case t.closed || t.has(round):
		case round > 0 || c.cold(i) && len(t.rounds) < last:
			turns = append(turns, c.turn(i, round, place+1))
		}
	}
	return turns
}

// order draws the order of a round. Each round of each batch of each comparison
// has its own, whatever was played before it.
func order(n int, seed int64, comparison, batch, round int) []int {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(batch)<<48|uint64(comparison)<<32|uint64(round)))
	return rng.Perm(n)
}

// begin tells the comparison that a round begins.
func (c *contest) begin(turns []*turn) error {
	n := 0
	for _, t := range turns {
		if !t.tally.failed {
			n++
		}
	}
	if c.Begin == nil || n == 0 {
		return nil
	}
	return guard("begin", func() error { return c.Begin(n) })
}

// playInTurn plays the cells of a round one after the other.
func (c *contest) playInTurn(ctx context.Context, turns []*turn) error {
	for _, t := range turns {
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
			t.measured, t.err = play(ctx, c.Cells[t.cell], new(cell.Recorder), t.gate())
		}
		if err := t.settle(ctx); err != nil || c.r.out.Interrupted {
			return err
		}
	}
	return nil
}

// playProfiled plays each cell once more, for its profiles.
func (c *contest) playProfiled(ctx context.Context) error {
	if c.r.opts.Profile == nil {
		return nil
	}
	for i, cl := range c.Cells {
		if c.r.interrupted(ctx) {
			return nil
		}
		t := c.turn(i, profiled, i+1)
		t.progress.Round, t.progress.Profiling = 0, true
		if t.tally.closed || t.skip() {
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

// A cell is profiled until it was measured for profileFor, but profilePlays times at
// most: a sample every 10 ms says little of a cell that is over in 200.
const (
	profileFor   = time.Second
	profilePlays = 10
)

// profile plays the cell with profiles of what is measured. The error is the
// profiler's, which names the cell.
func (t *turn) profile(ctx context.Context, c *contest, cl Cell) error {
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
func (c *contest) playTogether(ctx context.Context, turns []*turn) error {
	if c.r.interrupted(ctx) {
		return nil
	}
	var cells sync.WaitGroup
	var playing []*turn
	for _, t := range turns {
		if !t.skip() {
			playing = append(playing, t)
		}
	}
	for _, t := range playing {
		t.start()
	}
	var gate func(context.Context) error
	if len(playing) > 0 {
		gate = playing[0].gate()
	}
	all := newMeeting(len(playing), gate)
	for _, t := range playing {
		cells.Go(func() {
			come := all.guest()
			defer come.leave(ctx)
			t.measured, t.err = play(ctx, c.Cells[t.cell], cell.Shared(), come.come())
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
