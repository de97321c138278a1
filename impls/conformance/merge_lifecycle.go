package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls"
	"watchlab/impls/merge"
)

// open returns the channel of a source.
func (r *rig) open(ctx context.Context, source string) chan<- merge.PodUpdate {
	r.Helper()
	in, err := r.Channel(ctx, source)
	if err != nil {
		r.Fatal(err)
	}
	return in
}

// seenAllSources: the caller must have seen every source with a channel, and each
// must have sent a SET.
func (r *rig) seenAllSources() {
	check := func(want bool, seen ...string) {
		r.Helper()
		if got := r.SeenAllSources(sets.New(seen...)); got != want {
			r.Errorf("SeenAllSources(%v) = %v", seen, got)
		}
	}
	check(true)
	check(true, "api")
	r.open(r.ctx, "api")
	r.open(r.ctx, "file")
	check(false)
	check(false, "api", "file")
	r.merge("api", merge.SET)
	check(false, "api", "file")
	r.merge("file", merge.ADD, newPod("a"))
	check(false, "api", "file")
	r.merge("file", merge.SET)
	check(true, "api", "file")
	check(true, "api", "file", "http")
	check(false, "api")
	check(false)
	r.merge("file", merge.REMOVE, newPod("a"))
	check(true, "api", "file")
	r.open(r.ctx, "http")
	check(false, "api", "file", "http")
}

// refused: an invalid update returns an error and changes nothing.
func (r *rig) refused() {
	pod := newPod("a")
	r.merge("api", merge.SET, pod)
	for _, tt := range []struct {
		source string
		update merge.PodUpdate
		want   error
	}{
		{"api", merge.PodUpdate{Op: merge.RECONCILE, Pods: []*v1.Pod{changed(pod, newMessage)}}, merge.ErrOp},
		{"api", merge.PodUpdate{Op: 17}, merge.ErrOp},
		{"api", merge.PodUpdate{Op: -1, Pods: []*v1.Pod{newPod("b")}}, merge.ErrOp},
		{"api", merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("b"), nil}}, merge.ErrPod},
		{"api", merge.PodUpdate{Op: merge.REMOVE, Pods: []*v1.Pod{nil}}, merge.ErrPod},
		{"", merge.PodUpdate{Op: merge.SET}, merge.ErrSource},
	} {
		if err := r.Merge(r.ctx, tt.source, tt.update); !errors.Is(err, tt.want) {
			r.Errorf("%v from %q: error %v, want %v", tt.update.Op, tt.source, err, tt.want)
		}
		r.expect(r.sent())
	}
	r.expect(r.collect(r.Sync), "SET * a")
	r.expect(r.merge("api", merge.SET, pod))
	if _, err := r.Channel(r.ctx, ""); !errors.Is(err, merge.ErrSource) {
		r.Errorf("Channel of no source: %v, want %v", err, merge.ErrSource)
	}
}

// refusedOnChannel: an invalid update on a channel is reported, and the source continues.
func (r *rig) refusedOnChannel() {
	var rejected []string
	m := r.with(func(o *merge.Options) {
		o.Rejected = func(source string, update merge.PodUpdate, err error) {
			rejected = append(rejected, fmt.Sprint(source, " ", update.Op, " ", errors.Is(err, merge.ErrOp) || errors.Is(err, merge.ErrPod)))
		}
	})
	m.expect(m.push(m.open(m.ctx, "api"),
		merge.PodUpdate{Op: merge.RECONCILE, Pods: []*v1.Pod{newPod("a")}},
		merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{nil}},
		merge.PodUpdate{Op: 17},
		merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("b")}}),
		"ADD api b")
	if want := "[api RECONCILE true api SET true api Op(17) true]"; fmt.Sprint(rejected) != want {
		m.Errorf("Rejected received %v, want %s", rejected, want)
	}
	// Without Rejected, the source continues as well.
	r.expect(r.push(r.open(r.ctx, "api"),
		merge.PodUpdate{Op: 17},
		merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("b")}}),
		"ADD api b")
}

// channel: one channel per source until it ends.
func (r *rig) channel() {
	ctx, cancel := context.WithCancel(r.ctx)
	in := r.open(ctx, "api")
	if r.open(r.ctx, "api") != in {
		r.Error("a second call returns another channel")
	}
	if r.open(r.ctx, "file") == in {
		r.Error("two sources have one channel")
	}
	r.expect(r.push(in,
		merge.PodUpdate{Op: merge.SET, Source: "elsewhere", Pods: []*v1.Pod{newPod("a")}},
		merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("b")}}),
		"ADD api a", "ADD api b")

	cancel()
	synctest.Wait()
	again := r.open(r.ctx, "api")
	r.expect(r.push(again, merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("c")}}), "ADD api c")
	close(again)
	synctest.Wait()
	r.expect(r.push(r.open(r.ctx, "api"), merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("c")}}),
		"REMOVE api a b")
}

// add returns an update with one new pod.
func add(i int) merge.PodUpdate {
	return merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod(strconv.Itoa(i))}}
}

// capacity: exactly that many notifications are sent without a receiver.
func (r *rig) capacity() {
	want := cmp.Or(r.options.Capacity, merge.DefaultCapacity)
	var merged atomic.Int64
	all := Async(func() (err error) {
		for i := range want + 2 {
			err = errors.Join(err, r.Merge(r.ctx, "api", add(i)))
			merged.Add(1)
		}
		return err
	})
	synctest.Wait()
	if got := merged.Load(); got != int64(want) {
		r.Errorf("%d notifications were sent without a receiver, want %d", got, want)
	}
	for i, update := range r.sent() {
		if len(update.Pods) != 1 || string(update.Pods[0].UID) != strconv.Itoa(i) {
			r.Fatalf("number %d is %s", i, show([]merge.PodUpdate{update}))
		}
	}
	if err := all.Wait(); err != nil || merged.Load() != int64(want+2) {
		r.Errorf("%d of %d updates were merged: %v", merged.Load(), want+2, err)
	}
}

// idle: a merger without work sleeps until there is work. In the bubble, a
// goroutine that spins or polls prevents the clock from standing still.
func (r *rig) idle() {
	for range 3 {
		start := time.Now()
		for _, source := range []string{"api", "file", "http"} {
			in := r.open(r.ctx, source)
			r.expect(r.push(in, add(int(start.UnixNano()))), fmt.Sprintf("ADD %s %d", source, start.UnixNano()))
		}
		r.collect(r.Sync)
		synctest.Wait()
		if !time.Now().Equal(start) {
			r.Error("something moved the clock")
		}
		advance(time.Hour)
		r.expect(r.sent())
	}
}

// goroutinesEnd: goroutines end with ctx or the channel, also without a receiver.
// Otherwise the bubble would not end.
func (r *rig) goroutinesEnd() {
	m := r.with(func(*merge.Options) {})
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	for i := range 4 {
		in := m.open(ctx, fmt.Sprint("source", i))
		m.push(in, merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("a")}})
		if i == 0 {
			close(in)
		}
	}
	blocked := m.open(ctx, "blocked")
	for i := range m.options.Capacity + 2*merge.DefaultCapacity {
		select {
		case blocked <- add(i):
			continue
		case <-time.After(time.Second):
		}
		cancel()
		synctest.Wait()
		if m.open(m.ctx, "blocked") == blocked {
			m.Error("the goroutine of a source outlives its ctx")
		}
		m.sent()
		return
	}
	m.Fatal("no update waits for a receiver")
}

// closed: Close ends all waits, and later calls fail. Sent notifications can be received.
func (r *rig) closed() {
	in := r.open(r.ctx, "api")
	r.push(in, merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("a")}})
	r.Close()
	r.refuses()
	if !r.SeenAllSources(sets.New("api")) {
		r.Error("SeenAllSources has forgotten the sources")
	}

	m := r.with(func(*merge.Options) {})
	sent := m.fill()
	var waiting sync.WaitGroup
	calls := 1
	if unlocked(m.setup) {
		calls = 3
	}
	for i := range calls {
		waiting.Go(func() {
			err := m.Merge(m.ctx, fmt.Sprint("source", i), add(i))
			if !errors.Is(err, merge.ErrClosed) && !m.FixedCapacity {
				m.Errorf("Merge that waits: %v, want %v", err, merge.ErrClosed)
			}
		})
	}
	if calls > 1 {
		waiting.Go(m.Sync)
		synctest.Wait()
	}
	m.Close()
	waiting.Wait()
	for i := range sent {
		if update, open := <-m.Updates(); !open || len(update.Pods) != 1 || string(update.Pods[0].UID) != strconv.Itoa(i) {
			m.Fatalf("notification %d, which was sent before Close: %v (open %v)", i, update, open)
		}
	}
	m.refuses()
}

// fill adds pods from the source fill until the channel is full, and returns
// their number. A channel with capacity 0 is full at once.
func (r *rig) fill() int {
	n := cap(r.Updates())
	for i := range n {
		r.must("fill", add(i))
	}
	return n
}

// refuses checks a closed merger.
func (r *rig) refuses() {
	r.Helper()
	if update, open := <-r.Updates(); open {
		r.Errorf("a %v comes from a closed merger", update.Op)
	}
	if err := r.Merge(r.ctx, "api", add(1)); !errors.Is(err, merge.ErrClosed) {
		r.Errorf("Merge: %v, want %v", err, merge.ErrClosed)
	}
	if _, err := r.Channel(r.ctx, "api"); !errors.Is(err, merge.ErrClosed) {
		r.Errorf("Channel: %v, want %v", err, merge.ErrClosed)
	}
	r.Sync()
	r.Close()
}

// testOptions: unsupported options are refused.
func (s MergeSuite) testOptions(t *testing.T, v merge.Variant) {
	for _, tt := range []struct {
		opts      merge.Options
		supported bool
	}{
		{merge.Options{}, true},
		{merge.Options{Capacity: merge.DefaultCapacity}, true},
		{merge.Options{Capacity: 3}, !s.FixedCapacity},
		{merge.Options{Capacity: -1}, false},
	} {
		m, err := v.New(tt.opts)
		switch {
		case tt.supported && err == nil:
			m.Close()
		case tt.supported:
			t.Errorf("options %+v: %v", tt.opts, err)
		case !errors.Is(err, impls.ErrOptions) || m != nil:
			t.Errorf("options %+v: %v and error %v, want %v", tt.opts, m, err, impls.ErrOptions)
		}
	}
}
