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
