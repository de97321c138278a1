package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// nodeLoss is a small storm with an initial list.
func nodeLoss(t *testing.T) *storm.Storm {
	t.Helper()
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		t.Fatal(err)
	}
	p.Resize(0, 300, 0)
	set, err := p.Set(1)
	if err != nil {
		t.Fatal(err)
	}
	return set.Storms[0]
}

// TestSharesPlayTheStorm: all shares together play the events of one process at the same
// intended times, for each number of laps and each pace.
func TestSharesPlayTheStorm(t *testing.T) {
	t.Parallel()
	base := nodeLoss(t).Metadata()
	played := func(of storm.Share, p pace.Pace, events int) map[string]int {
		m := &material{Config: Config{Storm: base, Share: of, Events: events, Duration: time.Second, Seed: 1, Producers: 1}}
		sc := m.score(p)
		out := map[string]int{}
		for i, e := range sc.Events {
			at := time.Duration(-1)
			if i >= sc.Initial {
				at = sc.schedule.Intended(i - sc.Initial)
			}
			out[fmt.Sprintf("%s %s %v %v", e.Type, e.Key, e.At, at)]++
		}
		return out
	}
	for _, text := range []string{"max", "3000", "poisson:3000", "ramp:1000..5000/500ms", "trace:10x"} {
		p, err := pace.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		const shares, events = 3, 2500
		want := played(storm.Share{}, p, events)
		got := map[string]int{}
		for i := range shares {
			for k, n := range played(storm.Share{Index: i, Count: shares}, p, events) {
				got[k] += n
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("at %s: %d different events, want %d; such as %.3q", text, len(got), len(want), unlike(got, want))
		}
	}
}

// unlike returns the keys whose counts differ.
func unlike(a, b map[string]int) []string {
	var out []string
	for _, k := range slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))) {
		if a[k] != b[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), 6)]
}

// TestSharesAreCompared: shares of one storm have a common digest and different own
// digests. Their cells have equal names, as their results are merged.
func TestSharesAreCompared(t *testing.T) {
	t.Parallel()
	inputs := map[string]bool{}
	var whole, names string
	for i := range 2 {
		comparisons, err := Compare(Config{
			Family: impls.Queue, Pipeline: QueuePipeline, Storm: nodeLoss(t), Share: storm.Share{Index: i, Count: 2}, Seed: 1,
			Paces: []pace.Pace{pace.Rate(1000).Pace()},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := comparisons[0]
		var cells []string
		for _, cl := range c.Cells {
			cells = append(cells, cl.BenchName())
		}
		if all := strings.Join(cells, " "); names == "" {
			names, whole = all, c.Whole
		} else if all != names {
			t.Errorf("share %d has cells %s, the other %s", i, all, names)
		}
		if c.Whole == "" || c.Whole != whole || inputs[c.Input] || c.Input == c.Whole {
			t.Errorf("share %d plays %q of %q, the other has %q", i, c.Input, c.Whole, whole)
		}
		inputs[c.Input] = true
		if !strings.Contains(names, "rate=1000") {
			t.Errorf("cells %s, whose rate is that of both", names)
		}
	}
}

// TestTooManyShares: a share with too few events is rejected before the play.
func TestTooManyShares(t *testing.T) {
	one := nodeLoss(t).Select(0, func(key string) bool { return true })
	only := one.Events[0].Key
	tiny := nodeLoss(t).Select(0, func(key string) bool { return key == only }).Storm
	_, err := Compare(Config{Family: impls.Queue, Pipeline: QueuePipeline, Storm: tiny, Share: storm.Share{Index: 0, Count: 2}, Events: 1000})
	_, other := Compare(Config{Family: impls.Queue, Pipeline: QueuePipeline, Storm: tiny, Share: storm.Share{Index: 1, Count: 2}, Events: 1000})
	if err == nil {
		err = other
	}
	if err == nil || !strings.Contains(err.Error(), "fewer shares") {
		t.Errorf("the storm of one object was shared by two: %v", err)
	}
}
