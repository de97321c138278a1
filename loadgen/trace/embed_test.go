package trace

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
)

// TestRecordings: the built-in recordings are valid and have the facts that were counted in the files, without this
// package.
func TestRecordings(t *testing.T) {
	got := map[string]string{}
	for _, name := range Names() {
		s := must(Load(name))(t)
		if err := s.Validate(); err != nil || s.Name != name {
			t.Errorf("%s is named %q: %v", name, s.Name, err)
		}
		count := map[watch.EventType]int{}
		for _, e := range s.Events {
			count[e.Type]++
		}
		got[name] = fmt.Sprintf("%s: %d added, %d modified, %d deleted; %d initial, %d keys, peak %d, %d remain; %v", s.Kind.Kind,
			count[watch.Added], count[watch.Modified], count[watch.Deleted], s.Initial, s.Keys, s.Peak(), len(s.Final()), s.Events[len(s.Events)-1].At.Round(time.Second))
	}
	want := map[string]string{
		"recorded-gang":            "Pod: 2000 added, 7200 modified, 1200 deleted; 800 initial, 2000 keys, peak 2000, 800 remain; 2m44s",
		"recorded-nodeloss":        "Pod: 960 added, 1120 modified, 160 deleted; 800 initial, 960 keys, peak 801, 800 remain; 1m35s",
		"recorded-nodeloss-leases": "Lease: 201 added, 1643 modified, 40 deleted; 201 initial, 201 keys, peak 201, 161 remain; 1m36s",
		"recorded-nodeloss-nodes":  "Node: 200 added, 0 modified, 40 deleted; 200 initial, 200 keys, peak 200, 160 remain; 9s",
		"recorded-rollout":         "Pod: 1600 added, 9600 modified, 800 deleted; 0 initial, 1600 keys, peak 1122, 800 remain; 3m18s",
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
				s := must(Load(name))(b)
				events += len(s.Events)
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
