package cell_test

import (
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/cell"
)

// sink prevents the compiler from removing allocations.
var sink []*[64]byte

func TestResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 1000
		var rec cell.Recorder
		rec.Begin()
		for range events {
			sink = append(sink[:0], new([64]byte))
		}
		time.Sleep(2 * time.Second) // the bubble's clock: no time is lost
		rec.End()
		time.Sleep(time.Hour) // after End: not measured
		rec.Count(events, 1500)
		for i := 1; i <= events; i++ {
			rec.Latency("intended→handled", time.Duration(i)*time.Microsecond)
			rec.Latency("popped→handled", time.Duration(i))
		}
		for i := range 100 {
			rec.Lag(time.Duration(i)*20*time.Microsecond, 0) // 0 … 1.98 ms
		}
		rec.Note("relists", 3)

		got := must(rec.Result())(t)
		if got.EventsIn != events || got.DeltasOut != 1500 || got.Elapsed != 2*time.Second {
			t.Errorf("in %d, out %d, elapsed %v", got.EventsIn, got.DeltasOut, got.Elapsed)
		}
		if got.EventsPerSecond != 500 || got.DeltasPerEvent != 1.5 {
			t.Errorf("%v events/s, %v deltas/event", got.EventsPerSecond, got.DeltasPerEvent)
		}
		if got.AllocsPerEvent < 1 || got.AllocsPerEvent > 1.5 || got.BytesPerEvent < 64 || got.BytesPerEvent > 128 {
			t.Errorf("%v allocs and %v B per event, want 1 of 64 B", got.AllocsPerEvent, got.BytesPerEvent)
		}
		if len(got.Latency) != 2 || got.Latency[0].Boundary != "intended→handled" {
			t.Fatalf("boundaries: %+v", got.Latency)
		}
		l := got.Latency[0]
		for _, q := range []struct {
			name      string
			got, want time.Duration
		}{
			{"p50", l.P50, 500 * time.Microsecond}, {"p90", l.P90, 900 * time.Microsecond},
			{"p99", l.P99, 990 * time.Microsecond}, {"p99.9", l.P999, 999 * time.Microsecond},
			{"mean", l.Mean, 500500 * time.Nanosecond},
		} {
			if off := math.Abs(float64(q.got-q.want)) / float64(q.want); off > 0.001 {
				t.Errorf("%s = %v, want %v to three digits", q.name, q.got, q.want)
			}
		}
		if l.Count != events || l.Max != time.Millisecond {
			t.Errorf("count %d, max %v", l.Count, l.Max)
		}
		if got.Lag == nil || got.Lag.Late != 49 || got.Lag.LateShare != 0.49 {
			t.Errorf("lag %+v, want 49 of 100 later than 1 ms", got.Lag)
		}
		if len(got.Notes) != 1 || got.Notes[0] != (cell.Note{Unit: "relists", Value: 3}) {
			t.Errorf("notes %+v", got.Notes)
		}
		if _, ok := got.At("popped→handled"); !ok {
			t.Error("At does not find a boundary")
		}
	})
}

func TestCPUAndGC(t *testing.T) {
	var rec cell.Recorder
	rec.Begin()
	// Work until the system's CPU clock, which may tick every 10 ms, has moved, and the collector has run.
	before := cell.CPUTime()
	x := 1.0
	for cell.CPUTime() == before {
		for range 1000 {
			x = math.Sqrt(x + 1)
			sink = append(sink, new([64]byte))
		}
		sink = sink[:0]
	}
	runtime.GC()
	rec.End()
	rec.Count(1, uint64(x))
	got := must(rec.Result())(t)
	if got.CPUSecondsPerEvent <= 0 {
		t.Errorf("no CPU time in %v of work", got.Elapsed)
	}
	if got.GCs == 0 || got.GCPause <= 0 || got.GCPauseMax <= 0 {
		t.Errorf("%d collections, pause %v, longest %v; %v B were allocated", got.GCs, got.GCPause, got.GCPauseMax, got.BytesPerEvent)
	}
}

func TestHistogramKeepsExtremes(t *testing.T) {
	rec := startedAndEnded()
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, time.Hour, 3 * time.Hour, math.MaxInt64} {
		rec.Latency("a→b", d)
	}
	rec.Latency("e→f", -7)
	rec.Latency("c→d", 142857142) // the upper edge of its bucket is 142868479
	got := must(rec.Result())(t)
	if l := got.Latency[1]; l.Min != -7 || l.Max != -7 || l.Mean != 0 || l.P50 != 0 || l.Negative != 1 {
		t.Errorf("%+v of one value below zero", l.Quantiles)
	}
	if l := got.Latency[2]; l.P50 != l.Max || l.P999 != 142857142 {
		t.Errorf("%+v: a quantile of one value differs from it", l.Quantiles)
	}
	l := got.Latency[0]
	if l.Count != 6 || l.Clamped != 2 || l.Negative != 1 || l.Max != math.MaxInt64 || l.Min != -time.Second || l.Sum != uint64(3*time.Hour)+1 {
		t.Errorf("%+v, want all 6 counted, 2 clamped, 1 negative", l.Quantiles)
	}
}

// TestSchedule: Lag counts releases beyond the budget and releases after the end of the schedule.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec cell.Recorder
		rec.Begin()
		time.Sleep(time.Second)
		rec.End()
		rec.Count(100, 100)
		rec.Schedule(5*time.Millisecond, 99*time.Millisecond)
		for i := range 100 {
			// Each release is 100 µs later than the one before.
			rec.Lag(time.Duration(i)*100*time.Microsecond, time.Duration(i)*time.Millisecond)
		}
		got := must(rec.Result())(t)
		// 49 releases are later than 5 ms: 5.1 to 9.9 ms. The schedule ends at 104 ms,
		// which i·1.1 ms exceeds from i = 95 on.
		if l := got.Lag; l.Budget != 5*time.Millisecond || l.Late != 49 || l.LateShare != 0.49 || l.Missed != 5 {
			t.Errorf("budget %v, %d late, %d missed, want 5ms, 49, 5", l.Budget, l.Late, l.Missed)
		}
	})
}

func TestMisuse(t *testing.T) {
	for name, tc := range map[string]struct {
		use  func(*cell.Recorder)
		want string
	}{
		"nothing":  {func(*cell.Recorder) {}, "Begin or End was not called"},
		"no End":   {func(r *cell.Recorder) { r.Begin() }, "Begin or End was not called"},
		"no Count": {func(r *cell.Recorder) { r.Begin(); r.End() }, "no events"},
		"no time":  {func(r *cell.Recorder) { r.Begin(); r.End(); r.Count(1, 1) }, "no time passed"},
		"Note NaN": {func(r *cell.Recorder) { r.Note("x", math.NaN()) }, "NaN"},
	} {
		synctest.Test(t, func(t *testing.T) { // In a bubble no time passes.
			var rec cell.Recorder
			tc.use(&rec)
			if got, err := rec.Result(); !errors.Is(err, cell.ErrMisuse) || !strings.Contains(err.Error(), tc.want) || got.EventsIn != 0 {
				t.Errorf("%s: error %v, want one with %q; result %+v", name, err, tc.want, got)
			}
		})
	}
}

func TestResultJSON(t *testing.T) {
	rec := startedAndEnded()
	rec.Latency("a→b", 5)
	res := must(rec.Result())(t)
	data := must(json.Marshal(res))(t)
	for _, want := range []string{`"eventsPerSecond"`, `"boundary":"a→b"`, `"p999Ns":5`, `"histogram":"` + res.Latency[0].Histogram} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
}

// startedAndEnded returns a recorder with a count and a short real duration.
func startedAndEnded() *cell.Recorder {
	rec := new(cell.Recorder)
	rec.Begin()
	for start := time.Now(); !time.Now().After(start); {
	}
	rec.End()
	rec.Count(1, 1)
	return rec
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
