package telemetry

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"watchlab/bench/lab"
)

var ofRing = LabelsOf("deltafifo", lab.Labels{
	{Key: "impl", Value: "ring"}, {Key: "delivery", Value: "in-order"}, {Key: "pipeline", Value: "informer"}, {Key: "storm", Value: "gang"}, {Key: "source", Value: "memory"}, {Key: "encoding", Value: "protobuf"}, {Key: "decode", Value: "shared"}, {Key: "store", Value: "snapshot"}, {Key: "workqueue", Value: "sharded"}, {Key: "rate", Value: "1000"},
})

// everyMetric returns a registry with a value for every metric.
func everyMetric(t testing.TB) *Registry {
	t.Helper()
	r := New("test", "abc123")
	s := r.Set(ofRing)
	s.Sampler(func(int) *Sampling {
		return &Sampling{Every: 4, Trace: "0102030405060708090a0b0c0d0e0f10", Span: "0102030405060708"}
	})
	s.Begin(1)
	for stage := range stages {
		s.Count(stage, Modified, 10-uint64(stage))
	}
	for h := range series {
		s.Observe(Histogram(h), 0)
		s.Observe(Histogram(h), 1000)
	}
	s.ObserveEvent(IntendedHandled, 3_000_000, 8)
	s.ObserveEvent(IntendedHandled, 60e9, 12)
	s.Phase(Measure)
	s.Baseline(true)
	s.Judge(lab.Verdict{Status: lab.Noisy})
	s.Judge(lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator})
	for _, m := range counters {
		s.Add(m, 2, slices.Repeat([]string{"x"}, len(m.Labels))...)
	}
	s.Depth(func() (int, *int) { return 5, nil })
	s.Look()
	r.Set(LabelsOf("deltafifo", lab.Labels{{Key: "impl", Value: "cond"}}))
	r.Progress(2, 0.25)
	r.Objective("p99", time.Millisecond)
	r.Finish(ofRing, map[string]float64{EventsPerSecond.Name: 1}, map[string]float64{"0.99": 1})
	r.Finish(ofRing, map[string]float64{
		EventsPerSecond.Name: 999.5, CPUPerEvent.Name: 2e-6, BytesPerEvent.Name: 64,
	}, map[string]float64{"0.5": 0.001, "0.99": 0.002})
	unpaced := ofRing
	unpaced[rateLabel] = "max"
	r.Finish(unpaced, map[string]float64{EventsPerSecond.Name: 1e6}, nil)
	r.Withdraw(unpaced)
	return r
}

// TestEveryMetric: the registry has each metric of metrics.go, with its kind and
// labels, and no other watchlab metric.
func TestEveryMetric(t *testing.T) {
	r := everyMetric(t)
	families := must(r.Gather())(t)
	known := map[string]Metric{}
	for _, m := range Metrics() {
		known[m.Name] = m
	}
	runtimes := map[string]bool{}
	for _, f := range families {
		m, ok := known[f.GetName()]
		switch {
		case strings.HasPrefix(f.GetName(), "go_"), strings.HasPrefix(f.GetName(), "process_"):
			runtimes[f.GetName()] = true
			continue
		case !ok:
			t.Errorf("%s is not in metrics.go", f.GetName())
			continue
		case m.Kind != f.GetType():
			t.Errorf("%s is a %v", m.Name, f.GetType())
		}
		delete(known, m.Name)
		for _, s := range f.GetMetric() {
			if got, want := len(s.GetLabel()), len(m.AllLabels()); got != want {
				t.Errorf("%s has %d labels, want %d", m.Name, got, want)
			}
		}
	}
	for name := range known {
		t.Errorf("%s is missing", name)
	}
	for _, name := range []string{"go_sync_mutex_wait_total_seconds_total", "go_gc_pauses_seconds", "go_sched_latencies_seconds", "go_memory_classes_heap_objects_bytes", "process_cpu_seconds_total", "process_resident_memory_bytes"} {
		if !runtimes[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestLint: Prometheus's linter reports nothing. The exception: it reserves the label
// quantile for summaries, which cannot express medians over rounds.
func TestLint(t *testing.T) {
	problems := must(testutil.GatherAndLint(prometheus.GathererFunc(everyMetric(t).Gather)))(t)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "watchlab_") && p.Metric != latencyQuantile.Name {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// find returns the first series of a metric whose labels have all of some values; nil for none.
func find(t *testing.T, r *Registry, name string, values ...string) *dto.Metric {
	t.Helper()
	families := must(r.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := func(v string) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == v })
			}
			if f.GetName() == name && !slices.ContainsFunc(values, func(v string) bool { return !has(v) }) {
				return m
			}
		}
	}
	return nil
}

// TestHistogram: a latency has native and classic buckets, and exemplars of traced events. A negative one counts as zero.
func TestHistogram(t *testing.T) {
	r := everyMetric(t)
	r.Set(ofRing).Observe(IntendedHandled, -1)
	h := find(t, r, endToEndLatency.Name, "intended", "ring").GetHistogram()
	if h.GetSampleCount() != 5 || h.GetZeroCount() != 2 || h.GetSchema() != 3 || len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) < len(endToEndLatency.Buckets) {
		t.Errorf("histogram %v", h)
	}
	var traced []float64
	for _, b := range h.GetBucket() {
		if x := b.GetExemplar(); x != nil {
			traced = append(traced, x.GetValue())
		}
	}
	if !slices.Equal(traced, []float64{0.003, 60}) {
		t.Errorf("exemplars of %v", traced)
	}
}

// TestDepth: the depth is that of the last Look, and 0 after the round, even if a Look ends later.
func TestDepth(t *testing.T) {
	r := New("test", "")
	s := r.Set(ofRing)
	depth := func() float64 { return find(t, r, queueDepth.Name).GetGauge().GetValue() }
	var meanwhile func()
	s.Depth(func() (int, *int) {
		if meanwhile != nil {
			meanwhile()
		}
		return 5, nil
	})
	s.Look()
	if n := depth(); n != 5 {
		t.Errorf("depth %v", n)
	}
	stop := s.Clock()
	s.Look()
	stop()
	s.Look()
	if h := find(t, r, "watchlab_queued_events").GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 5 {
		t.Errorf("%v during the play, want one reading of 5", h)
	}
	meanwhile = func() { s.Depth(nil) }
	s.Look()
	s.Look()
	if n := depth(); n != 0 {
		t.Errorf("after the round: depth %v", n)
	}
}

// TestPlayTime: it is the time between the starts and the ends of plays.
func TestPlayTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("test", "")
		s := r.Set(ofRing)
		s.Depth(func() (int, *int) { return 0, nil })
		for _, want := range []float64{3, 6} {
			stop := s.Clock()
			time.Sleep(2 * time.Second)
			s.Look()
			if got := find(t, r, PlayTime.Name).GetCounter().GetValue(); got != want-1 {
				t.Errorf("%v during a play, want %v", got, want-1)
			}
			time.Sleep(time.Second)
			stop()
			time.Sleep(time.Minute)
			if got := find(t, r, PlayTime.Name).GetCounter().GetValue(); got != want {
				t.Errorf("%v after a play, want %v", got, want)
			}
		}
	})
}
