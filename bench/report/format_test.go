package report

import (
	"math"
	"testing"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

func TestFigures(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{ratio(stats.Comparison{Ratio: 2, Testable: true, Significant: true}), "2.00×"},
		{ratio(stats.Comparison{Ratio: 2, Testable: true}), "no difference"},
		{ratio(stats.Comparison{Ratio: 2}), "2.00×?"},
		{ratio(stats.Comparison{Ratio: math.Inf(1), Testable: true, Significant: true}), "-"},
		{perSecond(nil), "-"},
		{perSecond(stats.Samples{stats.UnitEventsPerSec: {1e6}}), "1.000M ±  ?"},
		{perSecond(stats.Samples{stats.UnitEventsPerSec: {1e6, 1.2e6}}), "1.100M ± 9%"},
		{span(stats.Comparison{}), "-"}, {span(stats.Comparison{Lo: 0.982, Hi: 1.021}), "0.98–1.02×"},

		{unitFormat("drain-ns/event")(1500), "1.50µs"}, {unitFormat("B/queued-event")(2048), "2.000Ki"}, {unitFormat("gc-pause-ns/run")(1500), "1.50µs"},
		{unitFormat("events/s")(2e6), "2M"}, {unitFormat("staleness-p99-events")(40), "40"}, {unitFormat("cycles/op")(1234567), "1.235M"},
		{chart.Escape("a|b_c*d~`"), "a\\|b\\_c\\*d\\~\\`"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
	for arg, want := range map[string]string{"plain-1.2/x=y": "plain-1.2/x=y", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := lab.CommandLine([]string{arg}); got != want {
			t.Errorf("%q is quoted as %s, want %s", arg, got, want)
		}
	}
}
