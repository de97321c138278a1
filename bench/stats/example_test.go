package stats_test

import (
	"fmt"

	"watchlab/bench/stats"
)

func ExampleCompare() {
	baseline := []float64{1.00e6, 1.02e6, 0.99e6, 1.01e6, 0.98e6}
	contestant := []float64{3.40e6, 3.35e6, 3.47e6, 3.38e6, 3.41e6}
	c := stats.Compare(baseline, contestant)
	fmt.Printf("%.1f times as fast, p=%.3f, significant: %v\n", c.Ratio, c.P, c.Significant)

	c = stats.Compare(baseline[:3], contestant[:3])
	fmt.Printf("three rounds can tell: %v\n", c.Testable)
	// Output:
	// 3.4 times as fast, p=0.008, significant: true
	// three rounds can tell: false
}

func ExampleMinDetectable() {
	quiet := []float64{1.00e6, 1.02e6, 0.99e6, 1.01e6, 0.98e6}
	loud := []float64{1.00e6, 1.20e6, 0.90e6, 1.10e6, 0.80e6}
	for _, rounds := range [][]float64{quiet, loud} {
		share, _ := stats.MinDetectable(rounds, rounds)
		fmt.Printf("no difference; would see %.0f %%\n", share*100)
	}
	// Output:
	// no difference; would see 4 %
	// no difference; would see 46 %
}

func ExampleFitUSL() {
	var points []stats.ScalePoint
	for n, perSecond := range map[float64]float64{1: 1.00e6, 2: 1.87e6, 4: 3.20e6, 8: 4.55e6, 16: 4.92e6} {
		points = append(points, stats.ScalePoint{N: n, EventsPerSecond: []float64{perSecond}})
	}
	law, err := stats.FitUSL(points)
	if err != nil {
		panic(err)
	}
	fmt.Printf("contention %.2f, coherency %.4f: %.1fM events/s at most, with %.0f workers\n",
		law.Sigma.Value, law.Kappa.Value, law.PeakRate/1e6, law.Peak)
	// Output:
	// contention 0.06, coherency 0.0054: 5.0M events/s at most, with 13 workers
}
