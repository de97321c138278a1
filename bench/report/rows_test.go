package report

import (
	"slices"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// TestStages checks that a sum of other boundaries is not a stage, in any order.
func TestStages(t *testing.T) {
	for name, tc := range map[string]struct{ measured, want []cell.Boundary }{
		"paced":   {[]cell.Boundary{"intended→handled", "released→enqueued", "enqueued→popped"}, []cell.Boundary{"released→enqueued", "enqueued→popped"}},
		"unpaced": {[]cell.Boundary{"released→enqueued", "enqueued→popped", "popped→handled", "released→handled"}, []cell.Boundary{"released→enqueued", "enqueued→popped", "popped→handled"}},
		"over HTTP": {
			[]cell.Boundary{"intended→handled", "released→wire", "wire→decoded", "decoded→enqueued", "released→enqueued", "enqueued→popped", "popped→stored", "stored→handled", "released→handled"},
			[]cell.Boundary{"released→wire", "wire→decoded", "decoded→enqueued", "enqueued→popped", "popped→stored", "stored→handled"},
		},
		"a queue":     {[]cell.Boundary{"released→enqueued", "enqueued→popped", "released→handled"}, []cell.Boundary{"released→enqueued", "enqueued→popped"}},
		"whole alone": {[]cell.Boundary{"intended→handled"}, []cell.Boundary{"intended→handled"}},
		"in a circle": {[]cell.Boundary{"a→b", "b→a"}, []cell.Boundary{"a→b", "b→a"}},
		"no boundary": {[]cell.Boundary{"list"}, nil},
	} {
		var latency []cell.Latency
		for _, b := range tc.measured {
			latency = append(latency, cell.Latency{Boundary: b})
		}
		if got := stagesOf(latency); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestRatio checks the comparison of a row with its baseline.
func TestRatio(t *testing.T) {
	sampled := func(impl, class string, baseline bool, values ...float64) row {
		c := &lab.CellResult{Labels: []lab.Label{{Key: "impl", Value: impl}}, Class: class, Baseline: baseline, Verdict: lab.Verdict{Status: lab.Valid}}
		return row{throughput: c, latency: c, fast: stats.Samples{stats.UnitEventsPerSec: values}, slow: stats.Samples{stats.UnitP99: values}}
	}
	base := sampled("base", "total", true, 100, 101, 102, 103, 104)
	paced := func(r row) row {
		cl := *r.throughput
		cl.Labels = append(slices.Clone(cl.Labels), lab.Label{Key: "rate", Value: "50000"})
		r.throughput, r.latency = &cl, &cl
		return r
	}
	ring := sampled("ring", "total", false, 201, 202, 204, 206, 208)
	for name, tc := range map[string]struct {
		rows            []row
		throughput, p99 string
	}{
		"faster":    {[]row{base, ring}, "2.00×", "2.00×"},
		"by chance": {[]row{base, sampled("ring", "total", false, 101, 101, 102.5, 103, 105)}, "no difference", "no difference"},
		"too few":   {[]row{base, sampled("ring", "total", false, 204)}, "2.00×?", "2.00×?"},
		"unequal":   {[]row{base, sampled("ring", "per-key", false, 201, 202, 204, 206, 208)}, "unequal", "unequal"},
		"no figure": {[]row{sampled("base", "total", true), ring}, "-", "-"},
		"set rate":  {[]row{paced(base), paced(ring)}, "-", "2.00×"},
		"two rates": {[]row{base, paced(ring)}, "-", "-"},
	} {
		link(tc.rows)
		r := tc.rows[len(tc.rows)-1]
		if throughput, p99 := r.ratio(stats.UnitEventsPerSec), r.ratio(stats.UnitP99); throughput != tc.throughput || p99 != tc.p99 {
			t.Errorf("%s: %s and %s, want %s and %s", name, throughput, p99, tc.throughput, tc.p99)
		}
	}
}

func TestAxisLabels(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{lab.RateText(lab.Unpaced), "unpaced"}, {lab.RateText("100"), "at 100 events/s"}, {lab.RateText("poisson:5"), "at pace poisson:5"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

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
