package storm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/loadgen/storm"
)

func profile(t testing.TB, name string) *storm.Profile {
	t.Helper()
	p := must(storm.NewProfile(name))(t)
	return p
}

// small returns the profile of that name with a small cluster.
func small(t testing.TB, name string) *storm.Profile {
	t.Helper()
	p := profile(t, name)
	switch name {
	case "leases", "hotkey":
		p.Resize(0, 0, 0.02)
	case "ceiling":
		p.Resize(0, 300, 0)
	default:
		p.Resize(0, 600, 0)
	}
	return p
}

func setOf(t testing.TB, p *storm.Profile, seed int64) *storm.Set {
	t.Helper()
	s := must(p.Set(seed))(t)
	return s
}

// TestProfiles: every profile generates storms that an API server could send and that match
// its summary.
func TestProfiles(t *testing.T) {
	want := map[string]struct{ resources, types string }{
		"steady":    {"pods leases nodes", "ADDED DELETED MODIFIED"},
		"rollout":   {"pods endpointslices", "ADDED DELETED MODIFIED"},
		"gang":      {"pods jobs", "ADDED DELETED MODIFIED"},
		"leases":    {"leases", "MODIFIED"},
		"nodeloss":  {"pods nodes leases", "ADDED DELETED MODIFIED"},
		"relist":    {"pods", "MODIFIED relist"},
		"hotkey":    {"leases endpointslices", "MODIFIED"},
		"endpoints": {"endpointslices", "MODIFIED"},
		"resync":    {"pods", "MODIFIED resync"},
		"ceiling":   {"pods", "MODIFIED"},
	}
	if diff := cmp.Diff(len(want), len(storm.Names())); diff != "" {
		t.Fatal(diff)
	}
	for _, name := range storm.Names() {
		t.Run(name, func(t *testing.T) {
			set := setOf(t, small(t, name), 1)
			for _, s := range set.Storms {
				noError(t, s.Validate())
			}
			var resources []string
			for _, s := range set.Storms {
				resources = append(resources, s.Resource.Resource)
				if len(s.Events) == s.Initial {
					t.Errorf("%s: no events", s.Resource.Resource)
				}
			}
			if got := strings.Join(resources, " "); got != want[name].resources {
				t.Errorf("resources %s, want %s", got, want[name].resources)
			}
			seen := map[string]bool{}
			objects := map[any]bool{}
			first := set.Storms[0]
			for i, e := range first.Events {
				if objects[e.Object] {
					t.Fatalf("event %d shares its object", e.Seq)
				}
				if objects[e.Object] = true; i >= first.Initial {
					seen[string(e.Type)] = true
				}
			}
			for _, m := range first.Marks {
				seen[string(m.Type)] = true
			}
			if got := strings.Join(slices.Sorted(maps.Keys(seen)), " "); got != want[name].types {
				t.Errorf("types %s, want %s", got, want[name].types)
			}
			if slices.Equal(times(set), times(setOf(t, small(t, name), 2))) {
				t.Error("the storms of two seeds have the same times and keys")
			}
			end := set.Phases[len(set.Phases)-1].To
			if last := first.Events[len(first.Events)-1].At; last >= end {
				t.Errorf("the last event is at %v, the last phase ends at %v", last, end)
			}
		})
	}
}

// TestProfileRates: the defaults have realistic rates; the documentation of each profile names
// the origin.
func TestProfileRates(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	for _, tc := range []struct {
		profile     string
		nodes, pods int
		resource    string
		typ         watch.EventType
		want        float64 // events per second in the storm phase
	}{
		{"steady", 500, 0, "pods", watch.Added, 2},
		{"steady", 500, 0, "leases", watch.Modified, 50},
		{"rollout", 0, 0, "pods", watch.Added, 100},
		{"leases", 0, 0, "leases", watch.Modified, 500},
		{"gang", 0, 2_600, "pods", watch.Added, 17.3},
		{"endpoints", 0, 5_000, "endpointslices", watch.Modified, 105},
	} {
		p := profile(t, tc.profile)
		p.Resize(tc.nodes, tc.pods, 0)
		n := 0
		for _, s := range setOf(t, p, 1).Storms {
			for _, e := range s.Events[s.Initial:] {
				if s.Resource.Resource == tc.resource && e.Type == tc.typ && e.At >= p.Baseline && e.At < p.Baseline+p.Storm {
					n++
				}
			}
		}
		if got := float64(n) / p.Storm.Seconds(); math.Abs(got-tc.want) > 0.06*tc.want {
			t.Errorf("%s: %.1f %s %s a second, want %.1f", tc.profile, got, tc.resource, tc.typ, tc.want)
		}
	}
}

// times returns the time and the key index of each event, without names.
func times(set *storm.Set) []string {
	s := set.Storms[0]
	var out []string
	for _, e := range s.Events[s.Initial:] {
		out = append(out, fmt.Sprint(e.Type, e.At, e.KeyIndex))
	}
	return out
}

// TestNodeLoss checks the lifecycle of the pods of a lost node.
func TestNodeLoss(t *testing.T) {
	p := profile(t, "nodeloss")
	p.Resize(10, 0, 0)
	pods := setOf(t, p, 1).Storms[0]
	onNode, lives := map[string]int{}, map[string]string{}
	for i, e := range pods.Events {
		pod := e.Object.(*v1.Pod)
		state := string(pod.Status.Phase)
		switch {
		case i < pods.Initial:
			onNode[pod.Spec.NodeName]++
			continue
		case pod.DeletionTimestamp != nil:
			state = "evicted"
		case pod.Spec.NodeName == "":
			state = "unbound"
		}
		lives[e.Key] += string(e.Type) + " " + state + ", "
	}
	if n := slices.Collect(maps.Values(onNode)); len(n) != 10 || slices.Min(n) != 110 || slices.Max(n) != 110 {
		t.Errorf("pods on the nodes: %v", onNode)
	}
	count := map[string]int{}
	for _, life := range lives {
		count[life]++
	}
	for _, life := range []string{
		"MODIFIED Running, MODIFIED evicted, DELETED evicted, ",
		"ADDED unbound, MODIFIED unbound, MODIFIED Pending, MODIFIED Pending, MODIFIED Pending, MODIFIED Running, ",
	} {
		if count[life] != 220 {
			t.Errorf("%d pods had the lifecycle %q, want 220", count[life], life)
		}
	}
	// The view of one kubelet.
	node := must(pods.ForNode(110))(t)
	if err := node.Validate(); err != nil || node.Initial != 110 || node.Keys != 220 {
		t.Errorf("a node has %d pods, then %d in all: %v", node.Initial, node.Keys, err)
	}
}

// TestSizes: pods have about the requested sizes, leases 0.5 kB, nodes 13 kB.
func TestSizes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	p := profile(t, "nodeloss")
	p.Resize(10, 0, 0)
	want := map[string][]int{"pods": p.PodBytes, "nodes": {13_000}, "leases": {500}}
	seen := map[int]bool{}
	for _, s := range setOf(t, p, 1).Storms {
		for _, e := range s.Events[:s.Initial] {
			b := must(json.Marshal(e.Object))(t)
			sizes := want[s.Resource.Resource]
			i := slices.IndexFunc(sizes, func(w int) bool { return math.Abs(float64(len(b)-w)) < 0.06*float64(w)+30 })
			if i < 0 {
				t.Fatalf("%s has %d bytes, want %v: %s", e.Key, len(b), sizes, b)
			}
			seen[sizes[i]] = true
		}
	}
	if len(seen) != 5 {
		t.Errorf("sizes %v", seen)
	}
}

// TestSkew: with zipf, a few keys have most of the updates; with uniform, none does.
func TestSkew(t *testing.T) {
	share := func(skew storm.Skew) float64 {
		p := profile(t, "ceiling")
		p.Pods, p.Events, p.Skew = 1000, 50_000, skew
		s := setOf(t, p, 1).Storms[0]
		n := make([]int, s.Keys)
		for _, e := range s.Events[s.Initial:] {
			n[e.KeyIndex]++
		}
		slices.Sort(n)
		hot := 0
		for _, c := range n[len(n)-10:] {
			hot += c
		}
		return float64(hot) / 50_000
	}
	if got := share(0); got > 0.02 {
		t.Errorf("uniform: the ten hottest of 1000 keys have %.0f %% of the updates", got*100)
	}
	// The sum of 1/r^1.1 over ten ranks, divided by the sum over a thousand ranks.
	var ten, all float64
	for r := 1; r <= 1000; r++ {
		w := math.Pow(float64(r), -1.1)
		if all += w; r <= 10 {
			ten += w
		}
	}
	if got, want := share(1.1), ten/all; math.Abs(got-want) > 0.02 {
		t.Errorf("zipf: the ten hottest of 1000 keys have %.3f of the updates, want %.3f", got, want)
	}
}

func TestParseSkew(t *testing.T) {
	for in, want := range map[string]string{"uniform": "uniform", "zipf:1.1": "zipf:1.1", "zipf:2": "zipf:2"} {
		if s, err := storm.ParseSkew(in); err != nil || s.String() != want {
			t.Errorf("ParseSkew(%q) = %v, %v", in, s, err)
		}
	}
	for _, in := range []string{"", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:11", "zipf:1e1", "zipf:nan", "Uniform", "zipf:0x1"} {
		if s, err := storm.ParseSkew(in); !errors.Is(err, storm.ErrSkew) {
			t.Errorf("ParseSkew(%q) = %v, %v", in, s, err)
		}
	}
}

// TestValidProfiles: all sizes that pass Validate generate valid storms.
func TestValidProfiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := storm.NewProfile(rapid.SampledFrom(storm.Names()).Draw(t, "profile"))
		if err != nil {
			t.Fatal(err)
		}
		p.Resize(rapid.IntRange(1, 20).Draw(t, "nodes"), rapid.IntRange(1, 60).Draw(t, "pods"), 0)
		if p.Name() == "hotkey" {
			p.Leases, p.Endpoints, p.UpdatesPerSecond = 50, 20, 20
		}
		set, err := p.Set(rapid.Int64().Draw(t, "seed"))
		if p.Validate() != nil {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range set.Storms {
			noError(t, s.Validate())
		}
	})
}

func TestResize(t *testing.T) {
	for _, tc := range []struct {
		nodes, pods int
		scale       float64
		want        string
	}{
		{0, 0, 0, "5000 nodes, 150000 pods, 20 churn, 100 updates"},
		{1000, 0, 0, "1000 nodes, 30000 pods, 4 churn, 20 updates"},
		{0, 30, 0, "1 nodes, 30 pods, 0.004 churn, 0.02 updates"},
		{1, 110, 0, "1 nodes, 110 pods, 0.0146667 churn, 0.0733333 updates"},
		{0, 0, 0.5, "2500 nodes, 75000 pods, 10 churn, 50 updates"},
		{100, 0, 2, "200 nodes, 6000 pods, 0.8 churn, 4 updates"},
	} {
		p := profile(t, "steady")
		p.Resize(tc.nodes, tc.pods, tc.scale)
		got := fmt.Sprintf("%d nodes, %d pods, %v churn, %v updates", p.Nodes, p.Pods, p.ChurnPerSecond, p.UpdatesPerSecond)
		if got != tc.want {
			t.Errorf("Resize(%d, %d, %v): %s, want %s", tc.nodes, tc.pods, tc.scale, got, tc.want)
		}
	}
}

// BenchmarkSet reports the cost of an event with its own object: time and retained memory.
func BenchmarkSet(b *testing.B) {
	for _, name := range []string{"nodeloss", "leases", "endpoints"} {
		b.Run("profile="+name, func(b *testing.B) {
			p := must(storm.NewProfile(name))(b)
			p.Resize(0, 0, 0.1)
			events, heap := 0, 0.0
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				set := setOf(b, p, 1)
				runtime.GC()
				runtime.ReadMemStats(&after)
				n := 0
				for _, s := range set.Storms {
					n += len(s.Events)
				}
				events += n
				heap += float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
				runtime.KeepAlive(set)
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(heap/float64(b.N), "heap-B/event")
		})
	}
}

func TestMarkFaults(t *testing.T) {
	p := profile(t, "relist")
	p.Resize(0, 500, 0)
	p.Relists = 2
	set := setOf(t, p, 1)
	s := set.Storms[0]
	got := set.MarkFaults(1)
	if len(got) != 2 || len(s.Marks) != 2 {
		t.Fatalf("%d faults, %d marks", len(got), len(s.Marks))
	}
	for i, f := range got {
		if err := f.Validate(); err != nil {
			t.Error(err)
		}
		// The middle of each half of the storm phase, which starts at 5 s and lasts 20 s.
		if at, want := time.Duration(f.At), time.Duration(10*i+10)*time.Second; at > want || at < want-2*time.Second {
			t.Errorf("relist %d at %v, want the last event before %v", i, at, want)
		}
	}
	if got := setOf(t, small(t, "resync"), 1).MarkFaults(1); got != nil {
		t.Errorf("a resync is no fault: %v", got)
	}
}

func TestTooManyEvents(t *testing.T) {
	p := profile(t, "relist")
	p.UpdatesPerSecond = 1e9
	if _, err := p.Set(1); err == nil || !strings.Contains(err.Error(), "events: 2147483647 (allowed: 0 to 100000000)") {
		t.Errorf("too many events: %v", err)
	}
}
