package cell_test

import (
	"math"
	"runtime"
	"testing"
	"time"

	"watchlab/bench/cell"
)

// TestPricedCPU: garbage costs the same whether its collection falls into the round or not.
func TestPricedCPU(t *testing.T) {
	const ns = 1e-9
	for name, c := range map[string]struct {
		r    cell.Result
		want float64
	}{
		"no price":             {cell.Result{CPUSecondsPerEvent: 300 * ns, BytesPerEvent: 1000}, 0},
		"no CPU time":          {cell.Result{GCNsPerByte: 0.5, BytesPerEvent: 1000}, 0},
		"cells played at once": {cell.Result{GCNsPerByte: 0.5, BytesPerEvent: 1000, CPUSecondsPerEvent: 1, Shared: true}, 0},
		"no garbage":           {cell.Result{GCNsPerByte: 0.5, CPUSecondsPerEvent: 300 * ns}, 300 * ns},
		"no collection":        {cell.Result{GCNsPerByte: 0.5, CPUSecondsPerEvent: 300 * ns, BytesPerEvent: 1000}, 800 * ns},
		"half of it collected": {cell.Result{GCNsPerByte: 0.5, CPUSecondsPerEvent: 550 * ns, BytesPerEvent: 1000, PaidBytesPerEvent: 500}, 800 * ns},
		"all of it collected":  {cell.Result{GCNsPerByte: 0.5, CPUSecondsPerEvent: 800 * ns, BytesPerEvent: 1000, PaidBytesPerEvent: 1000}, 800 * ns},
	} {
		if got := c.r.PricedCPUSecondsPerEvent(); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestPaidBytes(t *testing.T) {
	for _, c := range []struct {
		collections  uint32
		before, last uint64
		gogc, want   float64
	}{
		{0, 100, 100, 100, 0},
		{1, 100, 130, 100, 130},
		{3, 100, 130, 100, 110 + 120 + 130},
		{3, 100, 100, 50, 150}, // at GOGC=50 a collection comes after half as many bytes
		{2, 100, 100, 0, 0},    // the collector is off: the program forced them
	} {
		if got := cell.PaidBytes(c.collections, c.before, c.last, c.gogc); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: paid %v", c, got)
		}
	}
}

// TestCollectionsPay: what the runtime collects in a measurement is what it allocates, once there are
// many collections.
func TestCollectionsPay(t *testing.T) {
	keep := make([]*[1 << 10]byte, 8<<10)
	for i := range keep {
		keep[i] = new([1 << 10]byte)
	}
	var rec cell.Recorder
	rec.Begin()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := 0; now.NumGC < before.NumGC+8; i++ {
		keep[i%len(keep)] = new([1 << 10]byte)
		if i%1024 == 0 {
			runtime.ReadMemStats(&now)
		}
	}
	rec.End()
	rec.Count(1, 1)
	r, err := rec.Result()
	runtime.KeepAlive(keep)
	if err != nil {
		t.Fatal(err)
	}
	if share := r.PaidBytesPerEvent / r.BytesPerEvent; share < 0.4 || share > 1.6 {
		t.Errorf("%d collections paid for %.2f of the bytes, want about all", r.GCs, share)
	}
}

func TestMeasureGCPrice(t *testing.T) {
	began := time.Now()
	p := cell.MeasureGCPrice()
	if p.NsPerByte < 0 || math.IsNaN(p.NsPerByte) || math.IsInf(p.NsPerByte, 0) || p.Measured == "" {
		t.Errorf("%+v", p)
	}
	if again := cell.MeasureGCPrice(); again != p {
		t.Errorf("%+v, then %+v: it is measured once a process", p, again)
	}
	t.Logf("%.3f ns/B in %v: %s", p.NsPerByte, time.Since(began), p.Measured)
}
