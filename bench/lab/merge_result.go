package lab

import (
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/cell"
)

// mergeResults adds up results of several processes that ran at the same time. It is
// associative except for rounding of per-event figures. The sum has no memory: a pod does not
// play its cells alone.
func mergeResults(parts []cell.Result) (cell.Result, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	var sum cell.Result
	for _, p := range parts {
		sum.EventsIn += p.EventsIn
		sum.DeltasOut += p.DeltasOut
		sum.Elapsed = max(sum.Elapsed, p.Elapsed)
		sum.GCs += p.GCs
		sum.GCPause += p.GCPause
		sum.GCPauseMax = max(sum.GCPauseMax, p.GCPauseMax)
		sum.LockWait += p.LockWait
		sum.Host.StealShare = max(sum.Host.StealShare, p.Host.StealShare)
		sum.Host.Throttled = max(sum.Host.Throttled, p.Host.Throttled)
		sum.Host.GCLimited = sum.Host.GCLimited || p.Host.GCLimited
	}
	n := float64(sum.EventsIn)
	sum.EventsPerSecond = n / sum.Elapsed.Seconds()
	sum.DeltasPerEvent = float64(sum.DeltasOut) / n
	sum.AllocsPerEvent = weighted(parts, func(r cell.Result) float64 { return r.AllocsPerEvent })
	sum.BytesPerEvent = weighted(parts, func(r cell.Result) float64 { return r.BytesPerEvent })
	sum.CPUSecondsPerEvent = weighted(parts, func(r cell.Result) float64 { return r.CPUSecondsPerEvent })
	sum.PaidBytesPerEvent = weighted(parts, func(r cell.Result) float64 { return r.PaidBytesPerEvent })
	sum.GCNsPerByte = weighted(parts, func(r cell.Result) float64 { return r.GCNsPerByte })
	sum.Notes = mergeNotes(parts)
	var err error
	if sum.Latency, err = mergeLatencies(parts); err != nil {
		return cell.Result{}, fmt.Errorf("%w: %w", ErrShares, err)
	}
	sum.Lag, err = mergeLags(parts)
	return sum, err
}

func noteOf(notes []cell.Note, unit string) (float64, bool) {
	at := slices.IndexFunc(notes, func(n cell.Note) bool { return n.Unit == unit })
	if at < 0 {
		return 0, false
	}
	return notes[at].Value, true
}

// mergeNotes merges each unit over the parts that have it.
// The unit decides how:
//
//   - per second ("reads/s"): added up;
//   - per anything else ("wire-B/event", "objects/read"): weighted by events;
//   - a quantile, a maximum, or any other time or size ("staleness-p99-events"):
//     the largest, as these cannot be added;
//   - a count ("relists"): added up.
func mergeNotes(parts []cell.Result) []cell.Note {
	var out []cell.Note
	for _, p := range parts {
		for _, n := range p.Notes {
			if _, done := noteOf(out, n.Unit); done {
				continue
			}
			var with []cell.Result
			var values []float64
			sum := 0.0
			for _, q := range parts {
				if v, ok := noteOf(q.Notes, n.Unit); ok {
					with, values = append(with, q), append(values, v)
					sum += v
				}
			}
			_, per, ratio := strings.Cut(n.Unit, "/")
			switch {
			case ratio && per != "s" && per != "sec":
				sum = weighted(with, func(r cell.Result) float64 { v, _ := noteOf(r.Notes, n.Unit); return v })
			case !ratio && isQuantile(n.Unit):
				sum = slices.Max(values)
			}
			out = append(out, cell.Note{Unit: n.Unit, Value: sum})
		}
	}
	return out
}

func isQuantile(unit string) bool {
	words := strings.Split(unit, "-")
	for _, w := range words {
		if w == "max" || len(w) > 1 && w[0] == 'p' && strings.Trim(w[1:], "0123456789.") == "" {
			return true
		}
	}
	last := words[len(words)-1]
	return last == "ns" || last == "B"
}

// mergeLatencies adds up each boundary over the parts that have it.
func mergeLatencies(parts []cell.Result) ([]cell.Latency, error) {
	var out []cell.Latency
	for _, p := range parts {
		for _, l := range p.Latency {
			if slices.ContainsFunc(out, func(o cell.Latency) bool { return o.Boundary == l.Boundary }) {
				continue
			}
			var all []cell.Quantiles
			for _, q := range parts {
				if at, ok := q.At(l.Boundary); ok {
					all = append(all, at.Quantiles)
				}
			}
			sum, err := cell.MergeHistograms(all...)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Boundary, err)
			}
			out = append(out, cell.Latency{Boundary: l.Boundary, Quantiles: sum})
		}
	}
	return out, nil
}

// mergeLags adds up the generators' lags; nil if one part has none.
func mergeLags(parts []cell.Result) (*cell.Lag, error) {
	var sum cell.Lag
	var all []cell.Quantiles
	for _, p := range parts {
		if p.Lag == nil {
			return nil, nil
		}
		all = append(all, p.Lag.Quantiles)
		sum.Budget = max(sum.Budget, p.Lag.Budget)
		sum.Late += p.Lag.Late
		sum.Missed += p.Lag.Missed
	}
	var err error
	if sum.Quantiles, err = cell.MergeHistograms(all...); err != nil {
		return nil, fmt.Errorf("%w: lag: %w", ErrShares, err)
	}
	if sum.Count > 0 {
		sum.LateShare = float64(sum.Late) / float64(sum.Count)
	}
	return &sum, nil
}

// worstLag returns the lag with the larger share of late releases; nil if both are nil.
func worstLag(a, b *cell.Lag) *cell.Lag {
	if a == nil || b != nil && b.LateShare > a.LateShare {
		return b
	}
	return a
}

// weighted returns the mean of a per-event figure, weighted by the events of each part.
func weighted(parts []cell.Result, of func(cell.Result) float64) float64 {
	var sum, events float64
	for _, p := range parts {
		sum += of(p) * float64(p.EventsIn)
		events += float64(p.EventsIn)
	}
	return sum / events
}
