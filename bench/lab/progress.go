package lab

import "time"

// Progress reports the state of a run.
type Progress struct {
	Family, Title, Cell string // current comparison and cell
	Round, Rounds       int    // Round 0 is the warm-up; Rounds is 0 with a budget
	Profiling           bool   // the round takes pprof profiles
	// Done counts finished plays, including skipped cells and the rounds of a resumed
	// run. Total is 0 with a budget, and grows when [Comparison].More adds cells.
	Done, Total       int
	Left              time.Duration // estimated remaining time, or the rest of the budget; 0 while unknown
	Finished, Skipped bool          // Finished: false before the play, true after; Skipped: the cell was invalid
	Verdict           Verdict       // of the cell so far
}

// took sums up the times of plays.
type took struct {
	plays int
	time  time.Duration
}

func (t *took) add(d time.Duration) {
	t.plays++
	t.time += d
}

// mean is the mean time of these plays, or of others if there are none.
func (t took) mean(others took) time.Duration {
	switch {
	case t.plays > 0:
		return t.time / time.Duration(t.plays)
	case others.plays > 0:
		return others.time / time.Duration(others.plays)
	}
	return 0
}

// left estimates the remaining time.
func (r *runner) left() time.Duration {
	if r.opts.Budget > 0 {
		return max(r.opts.Budget-r.spent(), 0)
	}
	if r.all.plays == 0 {
		return 0
	}
	var left time.Duration
	for _, c := range r.runs {
		left += c.cost(c.cellRuns, func(t *cellRun) int { return t.left })
	}
	return left
}

// cost estimates the time to play each cell times(cell) times. Cells that are played
// together cost the time of the slowest.
func (c *comparisonRun) cost(cells []*cellRun, times func(*cellRun) int) time.Duration {
	var cost time.Duration
	for _, t := range cells {
		if t.failed {
			continue
		}
		own := time.Duration(times(t)) * t.took.mean(c.r.all)
		if c.Together {
			cost = max(cost, own)
		} else {
			cost += own
		}
	}
	return cost
}
