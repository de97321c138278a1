package trace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// facts are counted in the file itself, without this package.
type facts struct {
	Kind                         schema.GroupVersionKind
	Resource                     schema.GroupVersionResource
	Added, Modified, Deleted     int
	Initial, Keys, Peak, Remains int
	Last                         time.Duration
}

func factsOf(s *storm.Storm) facts {
	count := map[watch.EventType]int{}
	for _, e := range s.Events {
		count[e.Type]++
	}
	return facts{
		Kind: s.Kind, Resource: s.Resource,
		Added: count[watch.Added], Modified: count[watch.Modified], Deleted: count[watch.Deleted],
		Initial: s.Initial, Keys: s.Keys, Peak: s.Peak(), Remains: len(s.Final()),
		Last: s.Events[len(s.Events)-1].At.Round(time.Second),
	}
}

func TestRecordings(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	want := map[string]facts{
		"recorded-gang": {
			Kind: pod, Resource: pods,
			Added: 2000, Modified: 7200, Deleted: 1200, Initial: 800, Keys: 2000, Peak: 2000, Remains: 800,
			Last: 164 * time.Second,
		},
		"recorded-nodeloss": {
			Kind: pod, Resource: pods,
			Added: 960, Modified: 1120, Deleted: 160, Initial: 800, Keys: 960, Peak: 801, Remains: 800,
			Last: 95 * time.Second,
		},
		"recorded-nodeloss-leases": {
			Kind:     schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
			Resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			Added:    201, Modified: 1643, Deleted: 40, Initial: 201, Keys: 201, Peak: 201, Remains: 161,
			Last: 96 * time.Second,
		},
		"recorded-nodeloss-nodes": {
			Kind:     schema.GroupVersionKind{Version: "v1", Kind: "Node"},
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
			Added:    200, Deleted: 40, Initial: 200, Keys: 200, Peak: 200, Remains: 160,
			Last: 9 * time.Second,
		},
		"recorded-rollout": {
			Kind: pod, Resource: pods,
			Added: 1600, Modified: 9600, Deleted: 800, Keys: 1600, Peak: 1122, Remains: 800,
			Last: 198 * time.Second,
		},
	}
	got := map[string]facts{}
	for _, name := range Names() {
		if testing.Short() && want[name].Keys > 500 {
			delete(want, name)
			continue
		}
		s, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.Name != name {
			t.Errorf("%s is named %q", name, s.Name)
		}
		got[name] = factsOf(s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range Names() {
		b.Run("recording="+name, func(b *testing.B) {
			events := 0
			for b.Loop() {
				s, err := Load(name)
				if err != nil {
					b.Fatal(err)
				}
				events += len(s.Events)
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
