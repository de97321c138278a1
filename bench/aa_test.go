package bench_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/impls"
)

const (
	// aaComparisons is the number of A/A comparisons, with aaRounds rounds on each side.
	aaComparisons = 50
	aaRounds      = 10
	// plantedComparisons is the number of comparisons with a slower side, of at most
	// plantedRounds rounds.
	plantedComparisons = 5
	plantedRounds      = 160
	// plantedPart: the slower side plays one additional event in 20, which is 5 % more
	// work for the same number of events.
	plantedPart = 20
)

// BenchmarkAA measures the error rates of the statistics with a real queue on this
// machine. It compares a variant with itself 50 times, with ten rounds on each side in
// random order. differences/comparison is the share of false positives, at most 0.05
// apart from chance. Another 50 comparisons have a side with 5 % more work;
// found/comparison is the share that is detected. precision is the median half-width of the
// intervals, as a share. The units that begin with cpu are of CPU time
// per event, which other programs on the machine disturb less than events per second.
//
// It asserts nothing: the result shows how stable the machine is.
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
			found, precisions := map[string]int{}, map[string][]float64{}
			n := 0
			for b.Loop() {
				for range aaComparisons {
					base, values := compareOnce(b, rng, even, other, aaRounds)
					n++
					for _, u := range aaUnits {
						c := stats.Compare(base[u.unit], values[u.unit])
						if c.Significant {
							found[u.unit]++
						}
						precisions[u.unit] = append(precisions[u.unit], precision(c))
					}
				}
			}
			for _, u := range aaUnits {
				b.ReportMetric(float64(found[u.unit])/float64(n), u.prefix+unit)
				b.ReportMetric(stats.Median(precisions[u.unit]), u.prefix+"precision")
			}
		})
	}
}

// aaUnits are the compared units with the prefixes of their names.
var aaUnits = []struct{ unit, prefix string }{{stats.UnitEventsPerSec, ""}, {stats.UnitCPUPerOp, "cpu-"}}

// precision is half the width of the interval of a ratio, as a share.
func precision(c stats.Comparison) float64 { return math.Sqrt(c.Hi/c.Lo) - 1 }

// BenchmarkPlanted detects a side with 5 % more work, with as many rounds as this machine needs. It
// doubles the rounds until half the interval is narrower than 5 % (precision) or plantedRounds is
// reached. The number of rounds does not depend on the difference of the sides. ratio is the median of
// the measured ratios.
func BenchmarkPlanted(b *testing.B) {
	const share = 1. / plantedPart
	for _, u := range aaUnits {
		b.Run("impl=ring/planted=5%/unit="+u.unit, func(b *testing.B) {
			even, other := updatesOf(b, queueEvents), updatesOf(b, queueEvents+queueEvents/plantedPart)
			evenRound(b, even)
			rng := rand.New(rand.NewPCG(3, 4))
			var found, n int
			var ratios, rounds, precisions []float64
			for b.Loop() {
				for range plantedComparisons {
					base, values := stats.Samples{}, stats.Samples{}
					var c stats.Comparison
					for more := aaRounds; len(base[u.unit])+more <= plantedRounds && !(precision(c) < share); more = len(base[u.unit]) {
						moreBase, moreValues := compareOnce(b, rng, even, other, more)
						base[u.unit] = append(base[u.unit], moreBase[u.unit]...)
						values[u.unit] = append(values[u.unit], moreValues[u.unit]...)
						c = stats.Compare(base[u.unit], values[u.unit])
					}
					n++
					if c.Significant {
						found++
					}
					ratios = append(ratios, c.Ratio)
					rounds = append(rounds, float64(len(base[u.unit])))
					precisions = append(precisions, precision(c))
				}
			}
			b.ReportMetric(float64(found)/float64(n), "found/comparison")
			b.ReportMetric(stats.Median(ratios), "ratio")
			b.ReportMetric(stats.Median(rounds), "rounds")
			b.ReportMetric(stats.Median(precisions), "precision")
		})
	}
}

// compareOnce plays the rounds of both sides, in a random order for each round.
func compareOnce(b *testing.B, rng *rand.Rand, even, other lab.Cell, rounds int) (base, values stats.Samples) {
	sides := [2]stats.Samples{{}, {}}
	for range rounds {
		for _, side := range rng.Perm(2) {
			sides[side].Add(stats.Values(evenRound(b, [2]lab.Cell{even, other}[side])))
		}
	}
	return sides[0], sides[1]
}

// updatesOf returns a cell of the ring variant with a number of updates.
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

// evenRound plays one round. It scales the figures to queueEvents events.
func evenRound(b *testing.B, c lab.Cell) cell.Result {
	none := func() {}
	r := round(b, c, none, none)
	more := float64(r.EventsIn) / queueEvents
	r.EventsPerSecond /= more
	r.CPUSecondsPerEvent *= more
	return r
}
