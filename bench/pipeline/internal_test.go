package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/impls"
	"watchlab/impls/merge"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// repeater is a queue that hands over the same object repeatedly.
type repeater struct {
	consumable
	obj  any
	left int
}

func (r *repeater) Pop(process cache.PopProcessFunc) (any, error) {
	if r.left == 0 {
		return nil, cache.ErrFIFOClosed
	}
	r.left--
	return r.obj, process(r.obj, false)
}

// repeaterInBatches is a repeater with PopBatch.
type repeaterInBatches struct {
	*repeater
	deltas []cache.Delta
}

func (r *repeaterInBatches) PopBatch(batch cache.ProcessBatchFunc, _ cache.PopProcessFunc) error {
	if r.left == 0 {
		return cache.ErrFIFOClosed
	}
	r.left--
	return batch(r.deltas, false)
}

// TestConsumerAllocatesNothing: while the clock runs, only the queue allocates.
func TestConsumerAllocatesNothing(t *testing.T) {
	s := nodeLoss(t)
	const handOvers = 1000
	deltas := cache.Deltas{{Type: cache.Updated, Object: s.Events[2].Object}}
	for title, queue := range map[string]func() consumable{
		"objects": func() consumable { return &repeater{obj: s.Events[2].Object, left: handOvers} },
		"deltas":  func() consumable { return &repeater{obj: deltas, left: handOvers} },
		"batches": func() consumable {
			return &repeaterInBatches{repeater: &repeater{left: handOvers}, deltas: deltas}
		},
	} {
		log := observe.NewConsumerLog(observe.NewStamps(observe.Options{Storm: s, Paced: true}), 6*handOvers)
		w := &fifo{handling: newHandling(0)}
		n := testing.AllocsPerRun(1, func() {
			w.queue = queue()
			if err := w.consume(t.Context(), log); err != nil {
				t.Error(err)
			}
		})
		if n > 20 || log.HandOvers() != 2*handOvers {
			t.Errorf("%s: %v allocations in %d hand-overs", title, n, log.HandOvers())
		}
	}
}

// TestHandling: the work takes about the cost, and no time while handling is off.
func TestHandling(t *testing.T) {
	short, long := newHandling(10*time.Microsecond), newHandling(100*time.Microsecond)
	if ratio := float64(long.turns) / float64(short.turns); ratio < 9.9 || ratio > 10.1 {
		t.Errorf("%d turns for 10 µs, %d for 100 µs", short.turns, long.turns)
	}
	if newHandling(0).costs() || !short.costs() {
		t.Error("a cost of 0 costs, or one of 10 µs doesn't")
	}
	// It would take an hour if handling were on.
	hour := newHandling(time.Hour)
	hour.do(1)
	x, y := uint64(seed), uint64(seed)
	spin(&x, 1000)
	spin(&y, 999)
	if x == y {
		t.Error("turns do nothing")
	}
}

func TestAwait(t *testing.T) {
	for title, tc := range map[string]struct {
		done, moves, cancel, settled bool
		want                         error
		after                        time.Duration
	}{
		"done":                    {done: true},
		"stalled":                 {want: errStalled, after: time.Second},
		"moving until cancelled":  {moves: true, cancel: true, want: context.Canceled, after: 5 * time.Second},
		"settled":                 {settled: true, after: settledLooks * look},
		"settled, but not so yet": {settled: true, moves: true, cancel: true, want: context.Canceled, after: 5 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var progress atomic.Uint64
				done := make(chan struct{})
				if tc.done {
					close(done)
				}
				start := time.Now()
				if tc.cancel {
					time.AfterFunc(5*time.Second, cancel)
				}
				if tc.moves {
					go func() {
						tick := time.NewTicker(look / 2)
						defer tick.Stop()
						for {
							select {
							case <-tick.C:
								progress.Add(1)
							case <-ctx.Done():
								return
							}
						}
					}()
				}
				var settled func() bool
				if tc.settled {
					settled = func() bool { return true }
				}
				err := await(ctx, done, progress.Load, time.Second, settled)
				if !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if took := time.Since(start); took < tc.after || took > tc.after+2*look {
					t.Errorf("after %v, want %v", took, tc.after)
				}
			})
		})
	}
}

// TestStaticPodsCheck: the checker finds each mistake of a merger with static pods.
func TestStaticPodsCheck(t *testing.T) {
	pod := func(name string, version int) *v1.Pod {
		p := manifestOf(name, version)
		p.UID = types.UID(p.Spec.Containers[0].Image)
		p.Name += "-" + storm.NodeName
		return &p
	}
	update := func(op merge.Op, source string, pods ...*v1.Pod) merge.PodUpdate {
		return merge.PodUpdate{Op: op, Source: source, Pods: pods}
	}
	first := []merge.PodUpdate{update(merge.ADD, merge.FileSource, pod("file-0", 1)), update(merge.ADD, merge.HTTPSource, pod("http-0", 1))}
	second := []merge.PodUpdate{
		update(merge.REMOVE, merge.FileSource, pod("file-0", 1)), update(merge.ADD, merge.FileSource, pod("file-0", 2)),
		update(merge.REMOVE, merge.HTTPSource, pod("http-0", 1)), update(merge.ADD, merge.HTTPSource, pod("http-0", 2)),
	}
	for name, test := range map[string]struct {
		updates []merge.PodUpdate
		want    error
	}{
		"all":                      {append(first[:2:2], second...), nil},
		"the first versions only":  {first, lab.ErrLost},
		"nothing of a source":      {[]merge.PodUpdate{first[0], second[0], second[1]}, lab.ErrLost},
		"a pod that isn't removed": {append(first[:2:2], second[1:]...), lab.ErrLost},
		"a version twice":          {append(first[:2:2], append(second[:4:4], second[1])...), lab.ErrDuplicated},
		"a pod removed twice":      {append(first[:2:2], append(second[:1:1], second...)...), lab.ErrDuplicated},
		"an old version again":     {append(first[:2:2], append(second[:4:4], second[0], update(merge.ADD, merge.FileSource, pod("file-0", 1)))...), lab.ErrReordered},
		"an update":                {append(first[:2:2], append(second[:4:4], update(merge.UPDATE, merge.FileSource, pod("file-0", 2)))...), lab.ErrDiverged},
		"a pod of another source":  {append(first[:2:2], append(second[:4:4], update(merge.ADD, "other", pod("file-0", 3)))...), lab.ErrDiverged},
		"a pod without a manifest": {append(first[:2:2], append(second[:4:4], update(merge.ADD, merge.FileSource, &v1.Pod{}))...), lab.ErrDiverged},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newStaticPods(1)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			if err := s.change(0); err != nil {
				t.Fatal(err)
			}
			for _, u := range test.updates {
				s.take(u)
			}
			var v observe.Violations
			s.check(&v)
			switch err := v.Err(); {
			case test.want == nil && err != nil:
				t.Error(err)
			case test.want != nil && !errors.Is(err, test.want):
				t.Errorf("%v, want %v", err, test.want)
			}
			settled := s.settled()
			// The run waits for lost pods and for old versions, so these cases stall.
			if waits := test.want == lab.ErrLost || test.want == lab.ErrReordered; settled == waits { //nolint:errorlint // It is itself.
				t.Errorf("settled: %v", settled)
			}
		})
	}
}

// TestSyncLoop: each operation changes the pods, a deletion is an update, and SET and unknown operations are errors.
func TestSyncLoop(t *testing.T) {
	updates := make(chan merge.PodUpdate)
	st := observe.NewStamps(observe.Options{Storm: &storm.Storm{}, Paced: true})
	loop := newSyncLoop(updates, st, observe.NewNotices(st), 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		loop.run(t.Context())
	}()
	sent := 0
	for _, step := range []struct {
		op    merge.Op
		names string
	}{
		{merge.ADD, "a b c"}, {merge.UPDATE, "a"}, {merge.RECONCILE, "b"}, {merge.REMOVE, "b"}, {merge.DELETE, "c"},
		{merge.SET, "d"}, {merge.Op(17), "e"}, {merge.Op(-1), ""}, {merge.ADD, "f"},
	} {
		u := merge.PodUpdate{Op: step.op, Source: merge.APISource}
		for n := range strings.FieldsSeq(step.names) {
			u.Pods = append(u.Pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n)}})
		}
		updates <- u
		sent++
	}
	close(updates)
	<-done
	if got := slices.Sorted(maps.Keys(loop.pods)); !slices.Equal(got, []types.UID{"a", "c", "f"}) || loop.errors != 3 || loop.notices.Len() != sent {
		t.Errorf("pods %v, %d errors, %d of %d updates in the log", got, loop.errors, loop.notices.Len(), sent)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&syncLoop{}).run(ctx) // ends with the context
}

// TestFreshObjects: by default no two events share an object or the memory of its names; a merger's
// pods share nothing at all. A storm of a profile shares both, and laps share those of the lap before.
func TestFreshObjects(t *testing.T) {
	t.Parallel()
	base := nodeLoss(t)
	for name, c := range map[string]struct {
		Config
		names, specs bool // share memory
	}{
		"fresh, queue":      {Config{Family: impls.DeltaFIFO, Storm: base.Metadata()}, false, false},
		"fresh, informer":   {Config{Family: impls.DeltaFIFO, Storm: base}, false, true},
		"fresh, merge":      {Config{Family: impls.Merge, Storm: base}, false, false},
		"decoded anyway":    {Config{Family: impls.DeltaFIFO, Storm: base, Source: source.APIServerName}, true, true},
		"fresh, two halves": {Config{Family: impls.Queue, Storm: base.Metadata(), Producers: 2}, false, false},
	} {
		if c.Source == "" {
			c.Source = source.MemoryName
		}
		c.Events, c.Seed, c.Producers = 2*len(base.Events), 1, max(1, c.Producers)
		m := &preparedStorm{Config: c.Config}
		s := m.at(pace.Pace{}).Storm
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		names, specs := map[*byte]bool{}, map[*v1.Container]bool{}
		sharedNames, sharedSpecs := false, false
		for i := range s.Events {
			o, err := meta.Accessor(s.Events[i].Object)
			if err != nil {
				t.Fatal(err)
			}
			at := unsafe.StringData(o.GetName())
			sharedNames, names[at] = sharedNames || names[at], true
			if pod, ok := s.Events[i].Object.(*v1.Pod); ok && len(pod.Spec.Containers) > 0 {
				at := &pod.Spec.Containers[0]
				sharedSpecs, specs[at] = sharedSpecs || specs[at], true
			}
		}
		if sharedNames != c.names || sharedSpecs != c.specs {
			t.Errorf("%s: names share memory %v, specs %v; want %v, %v", name, sharedNames, sharedSpecs, c.names, c.specs)
		}
	}
}

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
		m := &preparedStorm{Config: Config{Storm: base, Share: of, Events: events, Duration: time.Second, Seed: 1, Producers: 1}}
		sc := m.at(p)
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
	for _, text := range []string{"max", "3000", "poisson:3000", "trace:10x"} {
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
			t.Errorf("at %s: %d different events, want %d", text, len(got), len(want))
		}
	}
}

// TestSharesAreCompared: shares of one storm have a common digest. Their cells have equal names, as their results are merged.
func TestSharesAreCompared(t *testing.T) {
	t.Parallel()
	var input, names string
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
			names, input = all, c.Input
		} else if all != names {
			t.Errorf("share %d has cells %s, the other %s", i, all, names)
		}
		if c.Input == "" || c.Input != input {
			t.Errorf("share %d plays %q, the other %q", i, c.Input, input)
		}
		if !strings.Contains(names, "rate=1000") {
			t.Errorf("cells %s, whose rate is that of both", names)
		}
	}
}
