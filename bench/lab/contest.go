package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// contest is a comparison in progress. Its cells come in batches: those it was
// planned with, then what More returns, each of which is played over all rounds
// before the next is asked for.
type contest struct {
	r *runner
	// index is the comparison's place in the outcome.
	index int
	// Comparison with all cells so far; tallies are theirs.
	Comparison
	tallies []*tally
	// baselines are the names of the cells that ratios are taken against, by the
	// knobs that they are baselines for.
	baselines map[string]string
	// warm are the variants that have been played in this process.
	warm map[string]bool
}

func (c *contest) result() *ComparisonResult { return &c.r.out.Comparisons[c.index] }

// take takes a batch of cells in.
func (c *contest) take(cells []Cell) error {
	for _, cl := range cells {
		if err := c.check(cl); err != nil {
			return err
		}
		c.Cells = append(c.Cells, cl)
		c.tallies = append(c.tallies, &tally{})
		c.result().Cells = append(c.result().Cells, CellResult{
			Name: cl.Name, Labels: cl.Labels, Guarantees: cl.Guarantees, Class: cl.Class,
			Baseline: cl.Baseline, Seed: c.r.opts.Seed, Verdict: judge(cl.Labels, nil),
		})
		c.r.total += c.r.opts.Rounds
		if c.coldCell(len(c.Cells) - 1) {
			c.r.total++
		}
	}
	return nil
}

// check refuses a cell that cannot be measured or would be misread.
func (c *contest) check(cl Cell) error {
	name := benchName(cl.Name, cl.Labels)
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

// play plays batch after batch.
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
	return nil
}

// ask asks for the next batch.
func (c *contest) ask() error {
	if c.More == nil {
		return nil
	}
	for i := range c.Cells {
		c.warm[implOf(c.Cells[i].Labels)] = true
	}
	return guard("more", func() error { return c.take(c.More(slices.Clone(c.result().Cells))) })
}

func implOf(labels []Label) string { return labelOf(labels, "impl") }

// coldCell reports whether the cell has to be played once before it counts.
func (c *contest) coldCell(i int) bool { return !c.warm[implOf(c.Cells[i].Labels)] }

// playBatch plays the cells from first on, over all rounds.
func (c *contest) playBatch(ctx context.Context, batch, first int) error {
	for round := 0; round <= c.r.opts.Rounds; round++ {
		turns := c.turns(batch, first, round)
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
	return nil
}

// turns are the plays of a round, in the order drawn for it.
func (c *contest) turns(batch, first, round int) []*turn {
	var turns []*turn
	for place, i := range order(len(c.Cells)-first, c.r.opts.Seed, c.index, batch, round) {
		if i += first; round > 0 || c.coldCell(i) {
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
		t.measured, t.err = play(ctx, c.Cells[t.cell], new(cell.Recorder))
		if err := t.settle(ctx); err != nil || c.r.out.Interrupted {
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
	for _, t := range playing {
		cells.Go(func() { t.measured, t.err = play(ctx, c.Cells[t.cell], cell.Shared()) })
	}
	cells.Wait()
	for _, t := range playing {
		if err := t.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}
