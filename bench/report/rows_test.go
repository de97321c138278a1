package report

import (
	"slices"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// TestFewEvents checks that a quantile needs a minimum number of events.
func TestFewEvents(t *testing.T) {
	for count, want := range map[uint64][]string{
		0: {"-", "-", "-", "-"}, 99: {"max", "5ns", "-", "-"}, 100: {"max", "5ns", "6ns", "-"}, 1000: {"max", "5ns", "6ns", "7ns"},
	} {
		r := row{wait: cell.Quantiles{Count: count, P50: 5, P99: 6, P999: 7}, throughput: &lab.CellResult{}, latency: &lab.CellResult{}}
		if got := r.quantiles(); !slices.Equal(got, want) {
			t.Errorf("%d events: %q, want %q", count, got, want)
		}
	}
}
