package lab

import "time"

// Progress reports how far a run is.
type Progress struct {
	Family, Title, Cell string        // of the current comparison and cell
	Round, Rounds       int           // 0 is the warm-up; Rounds is 0 with a budget
	Profiling           bool          // this round is for profiles
	Done, Total         int           // plays so far, skipped ones included; Total is 0 with a budget and may grow
	Left                time.Duration // estimated; 0 while unknown
	Finished, Skipped   bool          // false before a play, true after; Skipped: the cell was invalid
	Verdict             Verdict       // so far
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

// cost estimates the time for so many plays of each cell.
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
