package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// The names in the fixture; bench/e2e/browser uses the same.
var (
	// fixtureImpls are the variants of the first comparison; the first is its baseline.
	fixtureImpls = []string{"clientgo-realfifo-batch", "cond", "ring", "sharded"}
	// lossy is a variant of the first comparison that lost an event. The report must
	// show none of its figures.
	lossy = "lossy"
	// fixtureRates are the rates of the paced cells in the first comparison.
	fixtureRates = []string{"10000", "50000", "200000"}
	// poison is the value of every figure of lossy.
	poison = 7654321.0
)

var started = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// whole builds the run once: histograms are slow to build.
var whole = sync.OnceValue(build)

// fixture returns a small run with everything that a report can show: two comparisons,
// knees and scalings. No figure was measured. Every call returns an equal
// run; the caller owns it, down to the rounds' latencies.
func fixture() *lab.Outcome {
	o := *whole()
	o.Comparisons = slices.Clone(o.Comparisons)
	for i := range o.Comparisons {
		cells := slices.Clone(o.Comparisons[i].Cells)
		o.Comparisons[i].Cells = cells
		for j := range cells {
			cells[j].Labels = slices.Clone(cells[j].Labels)
			cells[j].Latency = slices.Clone(cells[j].Latency)
			cells[j].Rounds = slices.Clone(cells[j].Rounds)
			for k := range cells[j].Rounds {
				r := &cells[j].Rounds[k].Result
				r.Latency = slices.Clone(r.Latency)
			}
		}
	}
	return &o
}

func build() *lab.Outcome {
	ended := started.Add(5*time.Minute + 12*time.Second)
	limit, cpus, steal := int64(4<<30), 2.0, 0.004
	o := &lab.Outcome{
		Format: lab.Format, Name: "fixture", Started: started, Ended: &ended, Seed: 7, Rounds: 6,
		Comparisons: []lab.ComparisonResult{deltaFIFO(), merge()},
		Env: lab.Env{
			Started: started, Args: []string{"run", "--family", "deltafifo", "--storm", "gang", "--pace", "max,10000,50000,200000"},
			Build: lab.Build{Commit: "0123456789ab"}, GoVersion: "go1.26.8", GOOS: "linux", GOARCH: "amd64",
			CPU: "Some CPU @ 2 GHz", Cores: 2, GOMAXPROCS: 2, GOGC: "100", GCNsPerByte: 0.5, GCPriceOf: "the least of 5 collections", Kernel: "6.18.0", Governor: "performance",
			LoadAverage: []float64{0.5, 0.25, 1}, Limits: cell.Limits{CgroupVersion: 2, MemoryBytes: &limit, CPUs: &cpus}, StealShare: &steal,
		},
	}
	o.Knees, o.Scalings = knees(), scalings()
	return o
}

// shape describes the figures of a variant.
type shape struct {
	impl       string
	perSecond  float64
	allocs     float64
	p50        time.Duration
	tail       float64
	saturation float64
	verdict    lab.Verdict
}

func deltaFIFO() lab.ComparisonResult {
	const guarantees = "order total, coalesces none, unbounded, one consumer, handler unlocked, cache.QueueWithBatch"
	c := lab.ComparisonResult{Family: "deltafifo", Title: "queue pipeline on gang", Input: "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"}
	noisy := lab.Verdict{Status: lab.Noisy, Detail: "events/s of the rounds lie 14 % apart (allowed: 10 %)"}
	lost := lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event of default/pod-7"}
	for _, m := range []shape{
		{fixtureImpls[0], 1.6e6, 3.2, 12 * time.Microsecond, 1.3, 260_000, lab.Verdict{}},
		{fixtureImpls[1], 6.1e6, 0.02, 5 * time.Microsecond, 0.9, 900_000, lab.Verdict{}},
		{fixtureImpls[2], 9.4e6, 0.011, 4 * time.Microsecond, 0.8, 1_200_000, noisy},
		{fixtureImpls[3], 1.62e6, 0.3, 9 * time.Microsecond, 1.1, 700_000, lab.Verdict{}},
		{lossy, poison, poison, time.Duration(poison), 1, 1, lost},
	} {
		for _, rate := range append([]string{lab.Unpaced}, fixtureRates...) {
			c.Cells = append(c.Cells, m.cell("DeltaFIFO", guarantees, "total", rate, m.impl == fixtureImpls[0]))
		}
	}
	again := shape{fixtureImpls[0], 1.59e6, 3.2, 12 * time.Microsecond, 1.3, 260_000, lab.Verdict{}}.cell("DeltaFIFO", guarantees, "total", lab.Unpaced, false)
	again.Repeats = again.BenchName()
	again.Labels[0].Value += "-again"
	c.Cells = append(c.Cells, again)
	return c
}

func merge() lab.ComparisonResult {
	c := lab.ComparisonResult{Family: "merge", Title: "kubelet pipeline on nodeloss <110 pods>"}
	slow := lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator, Detail: "at rate 400, 14.7 % of the releases were more than 1ms late in the median round (allowed: 1 %)"}
	for _, m := range []shape{
		{"reference", 2.2e3, 1268, 450 * time.Microsecond, 0.6, 2000, slow},
		{"cond", 9.1e4, 40, 20 * time.Microsecond, 0.7, 80_000, lab.Verdict{}},
	} {
		c.Cells = append(c.Cells, m.cell("Kubelet", "order total", "", "400", m.impl == "reference"))
	}
	return c
}

func (m shape) cell(name, guarantees, class, rate string, baseline bool) lab.CellResult {
	c := lab.CellResult{
		Name: name, Guarantees: guarantees, Class: class, Baseline: baseline, Verdict: m.verdict,
		Labels: []lab.Label{{Key: "impl", Value: m.impl}, {Key: "delivery", Value: "in-order"}, {Key: "storm", Value: "gang"}, {Key: "rate", Value: rate}},
	}
	if c.Verdict.Status == "" {
		c.Verdict.Status = lab.Valid
	}
	if c.Verdict.Status == lab.Invalid {
		return c
	}
	random := rand.New(rand.NewPCG(7, uint64(len(m.impl))))
	for i := range 6 {
		c.Rounds = append(c.Rounds, lab.Round{Round: i + 1, Place: 1, Started: started.Add(time.Duration(i) * time.Second), Result: m.result(random, rate)})
	}
	for _, l := range c.Rounds[0].Result.Latency {
		if l.Histogram == "" {
			c.Latency = append(c.Latency, l)
			continue
		}
		var parts []cell.Quantiles
		for _, r := range c.Rounds {
			p, _ := r.Result.At(l.Boundary)
			parts = append(parts, p.Quantiles)
		}
		all, err := cell.MergeHistograms(parts...)
		if err != nil {
			panic(err) // The histograms come from above.
		}
		c.Latency = append(c.Latency, cell.Latency{Boundary: l.Boundary, Quantiles: all})
	}
	c.Medians = c.Samples().Summaries()
	return c
}

func (m shape) result(random *rand.Rand, rate string) cell.Result {
	const events = 4000
	perSecond := m.perSecond * (1 + 0.03*random.NormFloat64())
	p50 := float64(m.p50)
	var released float64
	if _, err := fmt.Sscan(rate, &released); err == nil {
		perSecond = released
		p50 /= max(0.05, 1-released/m.saturation)
	} else {
		p50 *= 200
	}
	r := cell.Result{
		EventsIn: events, DeltasOut: events, Elapsed: time.Duration(events / perSecond * 1e9), EventsPerSecond: perSecond, DeltasPerEvent: 1,
		AllocsPerEvent: m.allocs, BytesPerEvent: m.allocs * 77.7, CPUSecondsPerEvent: 1.1 / m.perSecond,
		PaidBytesPerEvent: m.allocs * 7.7, GCNsPerByte: 0.5,
		GCs: 4, GCPause: 120 * time.Microsecond, GCPauseMax: 50 * time.Microsecond, LockWait: 3 * time.Millisecond,
		Memory: &cell.Memory{HeapBytes: 8 << 20, PeakHeapBytes: uint64(64 << 20 * (1 + m.allocs/4)), PeakRSSBytes: uint64(110 << 20 * (1 + m.allocs/4))},
	}
	wait := make([]float64, events)
	for i := range wait {
		wait[i] = p50*math.Exp(m.tail*random.NormFloat64()) + 2000
	}
	// Stages have quantiles but no histograms.
	for _, stage := range []struct {
		boundary cell.Boundary
		share    float64
	}{{"released→enqueued", 0.2}, {"enqueued→popped", 0.5}, {"popped→handled", 0.3}} {
		r.Latency = append(r.Latency, cell.Latency{Boundary: stage.boundary, Quantiles: cell.Quantiles{
			Count: events, Mean: time.Duration(p50 * stage.share * math.Exp(m.tail*m.tail/2)), P50: time.Duration(p50 * stage.share),
			P99: time.Duration(5 * p50 * stage.share), Max: time.Duration(9 * p50 * stage.share),
		}})
	}
	if released > 0 {
		r.Latency = append(r.Latency, cell.Latency{Boundary: "intended→handled", Quantiles: quantiles(wait)})
		r.Lag = &cell.Lag{Quantiles: cell.Quantiles{Count: events, P99: 20 * time.Microsecond}, Budget: time.Millisecond}
	}
	return r
}

func quantiles(values []float64) cell.Quantiles {
	h := hdrhistogram.New(1, int64(time.Hour), 3)
	longest := int64(0)
	for _, v := range values {
		longest = max(longest, int64(v))
		if err := h.RecordValue(int64(v)); err != nil {
			panic(err) // The values come from above.
		}
	}
	encoded, err := h.EncodeV2()
	if err != nil {
		panic(err)
	}
	at := func(p float64) time.Duration { return time.Duration(min(h.ValueAtPercentile(p), longest)) }
	return cell.Quantiles{
		Count: uint64(h.TotalCount()), Mean: time.Duration(h.Mean()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: time.Duration(longest), Histogram: string(encoded),
	}
}

func knees() []stats.Knee {
	var out []stats.Knee
	for i, capacity := range []float64{240_000, 800_000, 1_100_000} {
		k := stats.Knee{
			Cell: "DeltaFIFO/impl=" + fixtureImpls[i] + "/delivery=in-order/storm=gang", Impl: fixtureImpls[i],
			Objective: stats.Objective{Unit: stats.UnitP99, Most: time.Millisecond}, Limit: "latency",
		}
		for rate := 50_000.0; ; rate *= 2 {
			p := stats.KneePoint{Rate: rate, Rounds: 5}
			if rate < capacity {
				p.Holds = 5
				p.Latency = map[string]float64{stats.UnitP99: 40_000 / (1 - rate/capacity)}
				k.Held = rate
			} else {
				p.Latency = map[string]float64{stats.UnitP99: 5e7}
				k.Failed = rate
			}
			k.Points = append(k.Points, p)
			if k.Failed > 0 {
				break
			}
		}
		out = append(out, k)
	}
	return out
}

func scalings() []stats.Scaling {
	var out []stats.Scaling
	for i, kappa := range []float64{0.05, 0.004} {
		s := stats.Scaling{Cell: "DeltaFIFO/impl=" + fixtureImpls[i] + "/storm=gang", Impl: fixtureImpls[i], Over: "producers"}
		const lambda, sigma = 1.2e6, 0.2
		at := func(x float64) float64 { return lambda * x / (1 + sigma*(x-1) + kappa*x*(x-1)) }
		for _, n := range []float64{1, 2, 4, 8, 16} {
			s.Points = append(s.Points, stats.ScalePoint{N: n, EventsPerSecond: []float64{at(n) * 0.98, at(n), at(n) * 1.03}})
		}
		peak := math.Sqrt((1 - sigma) / kappa)
		s.Fit = &stats.USL{
			Lambda: stats.Estimate{Value: lambda, Lo: lambda * 0.97, Hi: lambda * 1.04}, Sigma: stats.Estimate{Value: sigma, Lo: 0.18, Hi: 0.23},
			Kappa: stats.Estimate{Value: kappa, Lo: kappa * 0.9, Hi: kappa * 1.1}, Peak: peak, PeakRate: at(peak), RMSE: 0.012,
		}
		out = append(out, s)
	}
	return append(out, stats.Scaling{
		Cell: "DeltaFIFO/impl=" + fixtureImpls[2] + "/storm=gang", Impl: fixtureImpls[2], Over: "keys", Why: "keys are no workers, so the law does not apply",
		Points: []stats.ScalePoint{{N: 100, EventsPerSecond: []float64{9e6}}, {N: 1000, EventsPerSecond: []float64{8e6}}, {N: 10000, EventsPerSecond: []float64{5e6}}},
	})
}
