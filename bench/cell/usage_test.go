package cell_test

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"watchlab/bench/cell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMeasuringCostsNothing: no figure includes the recorder's own allocations, even
// with heap samples.
func TestMeasuringCostsNothing(t *testing.T) {
	for name, recorder := range map[string]func() *cell.Recorder{
		"among others": func() *cell.Recorder { return new(cell.Recorder) }, "alone": func() *cell.Recorder { return &cell.Recorder{Alone: true} },
	} {
		t.Run(name, func(t *testing.T) {
			// The runtime sometimes starts a thread. Take the minimum of 100 runs:
			// allocations of the recorder would be in each.
			least := cell.Result{AllocsPerEvent: math.Inf(1)}
			for range 100 {
				rec := recorder()
				rec.Begin()
				time.Sleep(5 * time.Millisecond) // samples, if alone
				rec.End()
				rec.Count(1, 1)
				got := must(rec.Result())(t)
				if got.AllocsPerEvent < least.AllocsPerEvent {
					least = got
				}
				if least.AllocsPerEvent == 0 {
					return
				}
			}
			t.Errorf("%v allocations of %v B in an empty measurement", least.AllocsPerEvent, least.BytesPerEvent)
		})
	}
}

// TestMemoryAlone: the peak includes garbage that is created and freed during the measurement.
func TestMemoryAlone(t *testing.T) {
	const size = 64 << 20
	rec := &cell.Recorder{Alone: true}
	rec.Begin()
	block := make([]byte, size)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	for rec.SampledPeak() < size {
		time.Sleep(time.Millisecond)
	}
	runtime.KeepAlive(block) // until here
	runtime.GC()
	rec.End()
	rec.Count(1, 1)
	got := must(rec.Result())(t)
	m := got.Memory
	if m == nil || m.HeapBytes == 0 || m.HeapBytes > size || m.PeakHeapBytes < size || m.PeakHeapBytes > 2*size {
		t.Fatalf("memory %+v; 64 MB were live when a sample was taken", m)
	}
	if runtime.GOOS == "linux" && m.PeakRSSBytes < size {
		t.Errorf("resident at most %d B; 64 MB were touched", m.PeakRSSBytes)
	}
	if got.GCPauseMax <= 0 || got.GCPauseMax > 2*got.Elapsed { // the upper bound of a bucket
		t.Errorf("the longest of %d collections' pauses took %v", got.GCs, got.GCPauseMax)
	}
}

func TestMemoryOnlyAlone(t *testing.T) {
	rec := new(cell.Recorder)
	rec.Begin()
	rec.End()
	rec.Count(1, 1)
	got, err := rec.Result()
	if err != nil {
		t.Fatal(err)
	}
	if got.Memory != nil {
		t.Errorf("memory %+v of a process with other cells", got.Memory)
	}
}

// TestBefore: no figure includes start and stop. stop is called even if the measurement fails.
func TestBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		call := func(name string) {
			calls = append(calls, name)
			time.Sleep(time.Hour)
		}
		around := func() func() {
			call("start")
			return func() { call("stop") }
		}
		begin := func(starts ...func() func()) *cell.Recorder {
			rec := new(cell.Recorder)
			for _, start := range starts {
				rec.Before(start)
			}
			rec.Begin()
			return rec
		}
		rec := begin(around, func() func() {
			call("beside")
			return func() { call("over") }
		})
		time.Sleep(time.Second)
		rec.End()
		rec.Abandon()
		rec.Count(1, 1)
		if got, err := rec.Result(); err != nil || got.Elapsed != time.Second {
			t.Errorf("elapsed %v, %v", got.Elapsed, err)
		}
		alone := &cell.Recorder{Alone: true}
		alone.Begin()
		if _, err := alone.Result(); err == nil { // It leaves no goroutine (goleak checks).
			t.Error("a result without End")
		}
		left := begin(around)
		left.Abandon()
		left.Abandon()
		if want := []string{"start", "beside", "stop", "over", "start", "stop"}; !slices.Equal(calls, want) {
			t.Errorf("called %v, want %v", calls, want)
		}
	})
}
