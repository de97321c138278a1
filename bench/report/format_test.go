package report

import (
	"math"
	"testing"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

func TestFigures(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{number(0), "0"}, {number(3), "3"}, {number(0.0000012), "<0.001"}, {number(0.04), "0.04"},
		{number(3.14159), "3.14"}, {number(31.4159), "31.4"}, {number(314.159), "314"}, {number(99.96), "100"}, {number(1234567), "1.235M"},
		{bytesCount(232.25), "232"}, {bytesCount(232000), "226.6Ki"},
		{nanoseconds(0), "0ns"}, {nanoseconds(999), "999ns"}, {nanoseconds(999.7), "1.00µs"}, {nanoseconds(1500), "1.50µs"},
		{nanoseconds(999700), "1.00ms"}, {nanoseconds(12e6), "12ms"}, {nanoseconds(2.5e9), "2.50s"},
		{times(1), "1.00×"}, {times(0.02), "0.0200×"}, {times(3.412), "3.41×"}, {times(34.12), "34.1×"}, {times(341.2), "341×"},
		{ratio(stats.Comparison{Ratio: 2, Testable: true, Significant: true}), "2.00×"},
		{ratio(stats.Comparison{Ratio: 2, Testable: true}), "no difference"},
		{ratio(stats.Comparison{Ratio: 2}), "2.00×?"},
		{ratio(stats.Comparison{Ratio: math.Inf(1), Testable: true, Significant: true}), "-"}, {times(math.NaN()), "-"},
		{number(math.NaN()), "-"}, {number(math.Inf(1)), "-"}, {decimal(math.NaN()), "-"}, {nanoseconds(math.Inf(1)), "-"}, {bytesCount(math.NaN()), "-"},
		{nanoseconds(9.98e-11), "<0.001ns"}, {perSecond(nil), "-"},
		{perSecond(stats.Samples{stats.UnitEventsPerSec: {1e6}}), "1.000M ±  ?"},
		{perSecond(stats.Samples{stats.UnitEventsPerSec: {1e6, 1.2e6}}), "1.100M ± 9%"},
		{seen(stats.Compare([]float64{1, 1, 1}, []float64{1, 1, 1})), "-"}, {seen(stats.Compare([]float64{1, 1.01, 0.99, 1}, []float64{1, 1.01, 0.99, 1})), "2.4 %"},
		{seen(stats.Compare([]float64{1, 3, 2, 1}, []float64{2, 1, 3, 1})), "392 %"},
		{interval(nil), "-"}, {interval(stats.Samples{stats.UnitEventsPerSec: {1e6, 2e6, 3e6, 4e6, 5e6, 6e6}}), "1.000M–6.000M"},
		{noteOf("relists", 2), "relists 2"}, {noteOf("drain-ns/event", 1500), "drain 1.50µs/event"}, {noteOf("B/queued-event", 2048), "2.000KiB/queued-event"},
		{noteOf("staleness-p99-events", 40), "staleness-p99-events 40"}, {noteOf("reads/s", 8600), "reads/s 8600"}, {noteOf("drift", -2.5), "drift -2.5"},
		{noteOf("lock-hold-floor-ns", 900), "lock-hold-floor 900ns"}, {noteOf("cycles/op", 1234567), "cycles/op 1.235M"},
		{lab.Escape("a|b_c*d~`"), "a\\|b\\_c\\*d\\~\\`"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
	for arg, want := range map[string]string{"plain-1.2/x=y": "plain-1.2/x=y", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := quoteAll([]string{arg})[0]; got != want {
			t.Errorf("%q is quoted as %s, want %s", arg, got, want)
		}
	}
}
