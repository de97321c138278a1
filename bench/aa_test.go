package bench_test

import (
	"math/rand/v2"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/impls"
)

const (
	// aaComparisons of a variant with itself, of aaRounds on each side.
	aaComparisons = 50
	aaRounds      = 10
	// plantedComparisons with a side that is slower, of at most plantedRounds.
	plantedComparisons = 5
	plantedRounds      = 160
	// plantedPart is one event in so many that the slower side plays in addition:
	// 5 % more work for the same number of events.
	plantedPart = 20
)

// BenchmarkAA asks the judge about itself, with a real queue on this machine: it
// compares a variant with itself 50 times, ten rounds on each side in random
// order, and tells how often a difference is found (differences/comparison: 0.05
// at most, but for chance); and 50 times with a side that has 5 % more to do, how
// often that is found (found/comparison). would-see is the median of the smallest
// changes that the rounds would have shown, as a share. Those that begin with cpu
// are of CPU time an event rather than of events a second: other programs on the
// machine move it less.
//
// Nothing is asserted: how much a machine wanders in a second is what it tells.
func BenchmarkAA(b *testing.B) {
	for _, planted := range []bool{false, true} {
		name, unit := "impl=ring/planted=none", "differences/comparison"
		if planted {
			name, unit = "impl=ring/planted=5%", "found/comparison"
		}
		b.Run(name, func(b *testing.B) {
			even := updatesOf(b, queueEvents)
			other := even
			if planted {
				other = updatesOf(b, queueEvents+queueEvents/plantedPart)
			}
			evenRound(b, even)
			rng := rand.New(rand.NewPCG(1, 2))
			found, seen := map[string]int{}, map[string][]float64{}
			n := 0
			for b.Loop() {
				for range aaComparisons {
					base, values := compareOnce(b, rng, even, other, aaRounds)
					n++
					for _, u := range aaUnits {
						if stats.Compare(base[u.unit], values[u.unit]).Significant {
							found[u.unit]++
						}
						if share, ok := stats.MinDetectable(base[u.unit], values[u.unit]); ok {
							seen[u.unit] = append(seen[u.unit], share)
						}
					}
				}
			}
			for _, u := range aaUnits {
				b.ReportMetric(float64(found[u.unit])/float64(n), u.prefix+unit)
				b.ReportMetric(stats.Median(seen[u.unit]), u.prefix+"would-see")
			}
		})
	}
}

// aaUnits are the figures that are compared, and what stands before their names.
var aaUnits = []struct{ unit, prefix string }{{stats.UnitEventsPerSec, ""}, {stats.UnitCPUPerOp, "cpu-"}}

// BenchmarkPlanted finds a side that has 5 % more to do, with as many rounds as
// that takes here: twice as many as before until they would show 5 % (would-see),
// or there are plantedRounds. The number of rounds doesn't depend on what they
// say of the two sides. found/comparison has to be 0.8 or more, but for chance,
// where would-see is 0.05 or less; ratio is the median of what was found.
func BenchmarkPlanted(b *testing.B) {
	const share = 1. / plantedPart
	for _, u := range aaUnits {
		b.Run("impl=ring/planted=5%/unit="+u.unit, func(b *testing.B) {
			even, other := updatesOf(b, queueEvents), updatesOf(b, queueEvents+queueEvents/plantedPart)
			evenRound(b, even)
			rng := rand.New(rand.NewPCG(3, 4))
			var found, n int
			var ratios, rounds, seen []float64
			for b.Loop() {
				for range plantedComparisons {
					base, values := stats.Samples{}, stats.Samples{}
					smallest := 1.
					for more := aaRounds; len(base[u.unit])+more <= plantedRounds && smallest > share; more = len(base[u.unit]) {
						moreBase, moreValues := compareOnce(b, rng, even, other, more)
						base[u.unit] = append(base[u.unit], moreBase[u.unit]...)
						values[u.unit] = append(values[u.unit], moreValues[u.unit]...)
						if see, ok := stats.MinDetectable(base[u.unit], values[u.unit]); ok {
							smallest = see
						}
					}
					n++
					c := stats.Compare(base[u.unit], values[u.unit])
					if c.Significant {
						found++
					}
					ratios = append(ratios, c.Ratio)
					rounds = append(rounds, float64(len(base[u.unit])))
					seen = append(seen, smallest)
				}
			}
			b.ReportMetric(float64(found)/float64(n), "found/comparison")
			b.ReportMetric(stats.Median(ratios), "ratio")
			b.ReportMetric(stats.Median(rounds), "rounds")
			b.ReportMetric(stats.Median(seen), "would-see")
		})
	}
}

// compareOnce plays the rounds of both sides, in an order that is drawn for each
// round.
func compareOnce(b *testing.B, rng *rand.Rand, even, other lab.Cell, rounds int) (base, values stats.Samples) {
	var sides [2][]cell.Result
	for range rounds {
		for _, side := range rng.Perm(2) {
			sides[side] = append(sides[side], evenRound(b, [2]lab.Cell{even, other}[side]))
		}
	}
	return stats.Collect(sides[0], ""), stats.Collect(sides[1], "")
}

// updatesOf returns a cell of a ring that plays so many updates.
func updatesOf(b *testing.B, events int) lab.Cell {
	b.Helper()
	comparisons, err := pipeline.Compare(pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: pipeline.QueuePipeline, Impls: []string{"ring"}, Modes: []string{"in-order"},
		Storm: updates(b, "uniform", events), Events: events,
	})
	if err != nil {
		b.Fatal(err)
	}
	return comparisons[0].Cells[0]
}

// evenRound plays one round. Its figures are those of queueEvents events, whatever was
// played.
func evenRound(b *testing.B, c lab.Cell) cell.Result {
	none := func() {}
	r := round(b, c, none, none)
	more := float64(r.EventsIn) / queueEvents
	r.EventsPerSecond /= more
	r.CPUSecondsPerEvent *= more
	return r
}
