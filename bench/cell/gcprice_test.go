package cell_test

import (
	"math"
	"testing"

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

func TestMeasureGCPrice(t *testing.T) {
	p := cell.MeasureGCPrice()
	if p.NsPerByte < 0 || math.IsNaN(p.NsPerByte) || math.IsInf(p.NsPerByte, 0) || p.Measured == "" {
		t.Errorf("%+v", p)
	}
	if again := cell.MeasureGCPrice(); again != p {
		t.Errorf("%+v, then %+v: it is measured once a process", p, again)
	}
}
