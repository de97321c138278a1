package live

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
)

var labels = Labels{Family: "deltafifo", Variant: "ring", Delivery: "in-order", Pipeline: "informer", Storm: "gang", Source: "memory", Encoding: "protobuf", Decode: "shared", Store: "snapshot", Workqueue: "sharded", Rate: "1000"}

// played returns a registry with a value for every metric.
func played(t testing.TB) *Registry {
	t.Helper()
	r := New("test", "abc123")
	s := r.Set(labels)
	s.Sampler(func(int) *Sampling {
		return &Sampling{Every: 4, IDs: func(uint64) (string, string) {
			return "0102030405060708090a0b0c0d0e0f10", "0102030405060708"
		}}
	})
	s.Begin(1)
	s.Update(func(f *Figures) {
		for stage := range stages {
			f.Count(stage, Modified, 10-int(stage))
		}
		f.Count(Popped, Replaced, 3)
		f.Observe(BatchSize, 7)
		f.Observe(GeneratorLag, 2_000_000)
		for h := range series {
			h := Histogram(h)
			f.Observe(h, 0)
			f.Observe(h, 1000)
		}
		f.ObserveEvent(IntendedHandled, 3_000_000, 8)
		f.ObserveEvent(IntendedHandled, 60e9, 12)
		f.Phase, f.Baseline = Measure, true
		f.Judge(Verdict{Status: "valid"})
		f.Judge(Verdict{Status: "noisy"})
		f.Judge(Verdict{Status: "valid"})
		f.Judge(Verdict{Status: "invalid", Cause: "generator"})
		for _, m := range counters {
			f.Add(m, 2, slices.Repeat([]string{"x"}, len(m.Labels))...)
		}
	})
	s.Depth(func() int { return 5 })
	s.Look()
	r.Set(Labels{Family: "deltafifo", Variant: "cond"})
	r.Progress(2, 0.25)
	r.Objective("p99", time.Millisecond)
	r.Finish(labels, map[string]float64{EventsPerSecond.Name: 1}, map[string]float64{"0.99": 1})
	r.Finish(labels, map[string]float64{
		EventsPerSecond.Name: 999.5, CPUPerEvent.Name: 2e-6, BytesPerEvent.Name: 64,
	}, map[string]float64{"0.5": 0.001, "0.99": 0.002})
	unpaced := labels
	unpaced.Rate = "max"
	r.Finish(unpaced, map[string]float64{EventsPerSecond.Name: 1e6}, nil)
	r.Withdraw(unpaced)
	i := r.upstream.Informer(labels.UpstreamName(), schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	i.Queued.Set(3)
	i.Version.Set(42)
	i.Processing.Observe(0.002)
	return r
}

// TestEveryMetric: the registry has each metric of metrics.go, with its kind and
// labels, and no other watchlab metric.
func TestEveryMetric(t *testing.T) {
	r := played(t)
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "q", MetricsProvider: r.upstream})
	q.Add("a")
	q.ShutDown()
	r.upstream.NewRetriesMetric("q").Inc()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]Metric{}
	for _, m := range append(Metrics(), ClientGoMetrics()...) {
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
	problems, err := testutil.GatherAndLint(prometheus.GathererFunc(played(t).Gather))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "watchlab_") && p.Metric != latencyQuantile.Name {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestClassicAndNativeBuckets: a protobuf scrape has native and classic buckets with equal
// counts, and exemplars in both.
func TestClassicAndNativeBuckets(t *testing.T) {
	families, err := played(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != endToEndLatency.Name {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			if len(h.GetPositiveSpan()) == 0 || h.GetSchema() != nativeSchema {
				t.Errorf("no native buckets: %v", h)
			}
			bounds := len(endToEndLatency.Buckets)
			if got := len(h.GetBucket()); got < bounds || got > bounds+1 {
				t.Errorf("%d classic buckets, want %d, and +Inf for an exemplar", got, bounds)
			}
			// Only the 60 s are above the last bound.
			last := h.GetBucket()[bounds-1].GetCumulativeCount()
			switch f := m.GetLabel()[slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "from" })].GetValue(); f {
			case "intended":
				if h.GetSampleCount() != 4 || last != 3 || len(h.GetExemplars()) != 2 {
					t.Errorf("intended: %d of %d, %d exemplars", last, h.GetSampleCount(), len(h.GetExemplars()))
				}
				for _, b := range h.GetBucket() {
					x := b.GetExemplar()
					if has := b.GetUpperBound() == math.Exp2(-8) || math.IsInf(b.GetUpperBound(), 1); has != (x != nil) {
						t.Errorf("the bucket to %v has exemplar %v", b.GetUpperBound(), x)
					}
				}
			default:
				if h.GetSampleCount() != last {
					t.Errorf("%s: %d of %d", f, last, h.GetSampleCount())
				}
			}
		}
	}
}

// TestFindSets: repeated calls for a variant return one set.
func TestFindSets(t *testing.T) {
	r := New("test", "")
	other := labels
	other.Variant = "cond"
	a, b := r.Set(labels), r.Set(other)
	if a == b || r.Set(labels) != a || len(r.Sets()) != 2 {
		t.Errorf("sets %v", r.Sets())
	}
}
