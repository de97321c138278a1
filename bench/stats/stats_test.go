package stats_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"watchlab/bench/cell"
	"watchlab/bench/internal/golden"
	"watchlab/bench/stats"
)

func TestSummarize(t *testing.T) {
	for name, tc := range map[string]struct {
		values         []float64
		median, spread float64
		interval       []float64
	}{
		"none":        {nil, 0, math.NaN(), nil},
		"one":         {[]float64{7}, 7, math.NaN(), nil},
		"five":        {[]float64{5, 1, 3, 2, 4}, 3, 2.0 / 3, nil},
		"six rounds":  {[]float64{1, 2, 3, 4, 5, 6}, 3.5, 2.5 / 3.5, []float64{1, 6}},
		"one outlier": {[]float64{100, 100, 100, 100, 900}, 100, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.values)
			got := stats.Summarize(tc.values)
			if !slices.Equal(before, tc.values) {
				t.Errorf("the caller's values were changed to %v", tc.values)
			}
			if got.N != len(tc.values) || got.Median != tc.median {
				t.Errorf("n %d, median %v; want %d, %v", got.N, got.Median, len(tc.values), tc.median)
			}
			if (got.Spread == nil) != math.IsNaN(tc.spread) || got.Spread != nil && math.Abs(*got.Spread-tc.spread) > 1e-12 {
				t.Errorf("spread %v, want %v", got.Spread, tc.spread)
			}
			if (got.Lo == nil) != (tc.interval == nil) {
				t.Fatalf("interval %v %v, want %v", got.Lo, got.Hi, tc.interval)
			}
			if tc.interval != nil && (*got.Lo != tc.interval[0] || *got.Hi != tc.interval[1]) {
				t.Errorf("interval %v %v, want %v", *got.Lo, *got.Hi, tc.interval)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	low, high := []float64{10, 11, 12, 13, 14}, []float64{20, 21, 22, 23, 24}
	for name, tc := range map[string]struct {
		base, values          []float64
		ratio                 float64
		significant, testable bool
	}{
		"faster":        {low, high, 22.0 / 12, true, true},
		"3 rounds":      {low[:3], high[:3], 21.0 / 11, false, false},
		"4 rounds can":  {low[:4], high[:4], 21.5 / 11.5, true, true},
		"exactly equal": {[]float64{3, 3, 3, 3}, []float64{3, 3, 3, 3}, 1, false, true},
		"baseline of 0": {[]float64{0, 0, 0, 0}, low, math.NaN(), true, true},
		"nothing":       {low, nil, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := stats.Compare(tc.base, tc.values)
			if math.Abs(got.Ratio-tc.ratio) > 1e-12 || math.IsNaN(got.Ratio) != math.IsNaN(tc.ratio) {
				t.Errorf("ratio %v, want %v", got.Ratio, tc.ratio)
			}
			if got.Significant != tc.significant || got.Testable != tc.testable {
				t.Errorf("significant %v (p=%v), testable %v; want %v, %v", got.Significant, got.P, got.Testable, tc.significant, tc.testable)
			}
		})
	}
}

func TestHeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		have []cell.Boundary
		want cell.Boundary
	}{
		"none":          {nil, ""},
		"last intended": {[]cell.Boundary{"intended→popped", "intended→handled", "popped→handled"}, "intended→handled"},
		"none intended": {[]cell.Boundary{"x→y", "a→b"}, "a→b"},
		"not the last":  {[]cell.Boundary{"intended→c", "a→b"}, "intended→c"},
	} {
		t.Run(name, func(t *testing.T) {
			var r cell.Result
			for _, b := range tc.have {
				r.Latency = append(r.Latency, cell.Latency{Boundary: b})
			}
			if got := stats.Headline(r); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"Queue", "DeltaFIFO/impl=cond", "DeltaFIFO/impl=clientgo-realfifo/keys=10000/rate=1e-3"} {
		if err := stats.CheckName(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "queue", "Queue/", "Queue/impl", "Queue/impl=", "Queue/=x", "Queue/impl=a b", "Queue/impl=a=b", "Queue-2", "Queue/storm=a/b"} {
		if err := stats.CheckName(bad); !errors.Is(err, stats.ErrFormat) {
			t.Errorf("%q: error %v, want ErrFormat", bad, err)
		}
	}
}

// result returns a measurement whose figures all depend on speed.
func result(speed float64, paced bool) cell.Result {
	q := cell.Quantiles{Count: 1000, P50: 1500, P90: 2500, P99: time.Duration(speed), P999: 90000, Max: 123456}
	r := cell.Result{
		EventsIn: 10000, DeltasOut: 12500, Elapsed: time.Duration(10000 / speed * 1e9),
		EventsPerSecond: speed, DeltasPerEvent: 1.25, AllocsPerEvent: 3.5, BytesPerEvent: 232.25,
		CPUSecondsPerEvent: 2.5e-7, GCs: 3, GCPause: 41000, LockWait: 5000000,
		Latency: []cell.Latency{{Boundary: "intended→handled", Quantiles: q}, {Boundary: "popped→handled", Quantiles: q}},
		Notes:   []cell.Note{{Unit: "relists", Value: 2}},
	}
	if paced {
		r.Lag = &cell.Lag{Quantiles: q, Late: 5, LateShare: 0.005}
	}
	return r
}

var config = stats.Config{GOOS: "linux", GOARCH: "amd64", Pkg: "watchlab", CPU: "Some  CPU @ 2 GHz", Commit: "abc123", GOMAXPROCS: 2}

// write writes five rounds of two variants, interleaved like a run.
func write(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := stats.NewWriter(&b, config)
	for _, f := range []float64{1.02, 0.97, 1, 1.08, 0.99} {
		for _, c := range []struct {
			name  string
			speed float64
			paced bool
		}{
			{"DeltaFIFO/impl=clientgo-realfifo-8/delivery=in-order", 1e6, false},
			{"DeltaFIFO/impl=cond/delivery=in-order", 3.4e6, true},
		} {
			if err := w.Write(c.name, result(c.speed*f, c.paced)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes()
}

func TestWriteGolden(t *testing.T) {
	golden.Check(t, "bench.txt", string(write(t)))
}

func TestWriteReadRoundTrip(t *testing.T) {
	f, err := stats.Read(bytes.NewReader(write(t)), "bench.txt")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"DeltaFIFO/impl=clientgo-realfifo-8/delivery=in-order", "DeltaFIFO/impl=cond/delivery=in-order"}; !slices.Equal(f.Names, want) {
		t.Fatalf("names %q", f.Names)
	}
	if f.Config["cpu"] != "Some CPU @ 2 GHz" || f.Config["commit"] != "abc123" {
		t.Errorf("config %v", f.Config)
	}
	want := stats.Samples{}
	for _, x := range []float64{1.02, 0.97, 1, 1.08, 0.99} {
		want.Add(stats.Values(result(3.4e6*x, true)))
	}
	if diff := cmp.Diff(want, f.Samples[f.Names[1]]); diff != "" {
		t.Errorf("samples (-written +read):\n%s", diff)
	}
}

func TestReadErrorsNameLine(t *testing.T) {
	_, err := stats.Read(strings.NewReader("goos: linux\nBenchmarkX 1 ns/op\n"), "bad.txt")
	if !errors.Is(err, stats.ErrFormat) || !strings.Contains(err.Error(), "bad.txt:2") {
		t.Errorf("error %v, want ErrFormat at bad.txt:2", err)
	}
}

// TestValuesOmitsUnknown: memory and counters appear only if measured. The
// longest pause appears only with a collection.
func TestValuesOmitsUnknown(t *testing.T) {
	of := func(r cell.Result) map[string]float64 {
		out := map[string]float64{}
		for _, v := range stats.Values(r) {
			if _, ok := out[v.Unit]; ok {
				t.Errorf("%s appears twice", v.Unit)
			}
			out[v.Unit] = v.Value
		}
		return out
	}
	base := result(1e6, false)
	r := base
	r.GCPauseMax, r.Host.StealShare = 300*time.Microsecond, 0.03
	r.Memory = &cell.Memory{HeapBytes: 1000, PeakHeapBytes: 2500}
	r.Notes = []cell.Note{{Unit: "cycles/op", Value: 123}}
	full := of(r)
	for unit, want := range map[string]float64{
		stats.UnitGCPauseMax: 300000, stats.UnitSteal: 0.03, stats.UnitPeakHeap: 2500, stats.UnitHeapGrowth: 1500, "cycles/op": 123,
	} {
		if got, ok := full[unit]; !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v (%v), want %v", unit, got, ok, want)
		}
	}
	if _, ok := full[stats.UnitPeakRSS]; ok {
		t.Error("a resident size that the kernel did not report")
	}
	for _, unit := range []string{stats.UnitGCPauseMax, stats.UnitPeakHeap, stats.UnitHeapGrowth, stats.UnitPeakRSS} {
		if v, ok := of(base)[unit]; ok {
			t.Errorf("%s is %v but was not measured", unit, v)
		}
	}
	base.GCs = 0
	if v, ok := of(base)[stats.UnitGCPauseMax]; ok {
		t.Errorf("without a collection, the longest pause is %v", v)
	}
}
