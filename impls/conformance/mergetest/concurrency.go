package mergetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
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

// seenAllSources: every source for which there is a channel must have been
// seen by the caller and have sent a SET.
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
	r.merge(merge.SET)
	check(false, "api", "file")
	r.mergeFrom("file", merge.ADD, newPod("a"))
	check(false, "api", "file")
	r.mergeFrom("file", merge.SET)
	check(true, "api", "file")
	check(true, "api", "file", "http")
	check(false, "api")
	check(false)
	r.mergeFrom("file", merge.REMOVE, newPod("a"))
	check(true, "api", "file")
	r.open(r.ctx, "http")
	check(false, "api", "file", "http")
}

// refused: what can't be merged is an error and changes nothing.
func (r *rig) refused() {
	pod := newPod("a")
	r.merge(merge.SET, pod)
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
	r.expectHeld("api/a")
	r.expect(r.merge(merge.SET, pod))
	if _, err := r.Channel(r.ctx, ""); !errors.Is(err, merge.ErrSource) {
		r.Errorf("Channel of no source: %v, want %v", err, merge.ErrSource)
	}
}

// refusedOnChannel: what can't be merged and came through a channel is told,
// and the source goes on.
func (r *rig) refusedOnChannel() {
	var told []string
	m := newRig(r.T, r.variant, merge.Options{Rejected: func(source string, update merge.PodUpdate, err error) {
		told = append(told, fmt.Sprint(source, " ", update.Op, " ", errors.Is(err, merge.ErrOp) || errors.Is(err, merge.ErrPod)))
	}})
	in := m.open(m.ctx, "api")
	in <- merge.PodUpdate{Op: merge.RECONCILE, Pods: []*v1.Pod{newPod("a")}}
	in <- merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{nil}}
	in <- merge.PodUpdate{Op: 17}
	in <- merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("b")}}
	m.expect(m.sent(), "ADD api b")
	if want := "[api RECONCILE true api SET true api Op(17) true]"; fmt.Sprint(told) != want {
		m.Errorf("Rejected was told %v, want %s", told, want)
	}
	// Without anybody to tell, the source goes on as well.
	in = r.open(r.ctx, "api")
	in <- merge.PodUpdate{Op: 17}
	in <- merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("b")}}
	r.expect(r.sent(), "ADD api b")
}

// sourcesApart: sources don't see each other's pods, whatever their UID.
func (r *rig) sourcesApart() {
	r.expect(r.mergeFrom("api", merge.SET, newPod("a")), "ADD api a")
	r.expect(r.mergeFrom("file", merge.SET, changed(newPod("a"), newImage)), "ADD file a")
	r.expect(r.mergeFrom("http", merge.REMOVE, newPod("a")))
	r.expect(r.mergeFrom("file", merge.SET), "REMOVE file a")
	r.expectHeld("api/a")
	r.expect(r.mergeFrom("api", merge.SET, newPod("a")))
}

// channel: one channel a source, until it ends.
func (r *rig) channel() {
	ctx, cancel := context.WithCancel(r.ctx)
	in := r.open(ctx, "api")
	if r.open(r.ctx, "api") != in {
		r.Error("a second call returns another channel")
	}
	if r.open(r.ctx, "file") == in {
		r.Error("two sources have one channel")
	}
	in <- merge.PodUpdate{Op: merge.SET, Source: "elsewhere", Pods: []*v1.Pod{newPod("a")}}
	in <- merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("b")}}
	r.expect(r.sent(), "ADD api a", "ADD api b")

	cancel()
	synctest.Wait()
	again := r.open(r.ctx, "api")
	again <- merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod("c")}}
	r.expect(r.sent(), "ADD api c")
	close(again)
	synctest.Wait()
	r.open(r.ctx, "api") <- merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("c")}}
	r.expect(r.sent(), "REMOVE api a b")
}

// concurrentSources: every change of every source is told, in the source's
// order.
func (r *rig) concurrentSources() {
	const sources, rounds = 6, 150
	type last struct{ adds, statuses int }
	got := make(map[string]*last)
	received := make(chan struct{})
	go func() {
		defer close(received)
		for update := range r.Updates() {
			if update.Source == merge.AllSource {
				if update.Op != merge.SET {
					r.Errorf("Sync sent a %v", update.Op)
				}
				if len(got) == sources && len(update.Pods) == sources {
					done := true
					for _, l := range got {
						done = done && l.statuses == rounds
					}
					if done {
						return
					}
				}
				continue
			}
			l := got[update.Source]
			if l == nil {
				l = &last{}
				got[update.Source] = l
			}
			switch update.Op {
			case merge.ADD:
				l.adds++
			case merge.RECONCILE:
				l.statuses++
				if message := update.Pods[0].Status.Message; message != strconv.Itoa(l.statuses) {
					r.Errorf("%s: status %s came as number %d", update.Source, message, l.statuses)
				}
			default:
				r.Errorf("%s: a %v", update.Source, update.Op)
			}
			for _, pod := range update.Pods {
				scribble(pod)
			}
		}
	}()

	var senders sync.WaitGroup
	for i := range sources {
		source := fmt.Sprint("source", i)
		in := r.open(r.ctx, source)
		senders.Go(func() {
			send := func(update merge.PodUpdate) {
				if i%2 == 0 {
					in <- update
					return
				}
				if err := r.Merge(r.ctx, source, update); err != nil {
					r.Errorf("%s: %v", source, err)
				}
			}
			send(merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("a")}})
			for n := range rounds {
				// Not a copy of the last: kubelet may be writing to that.
				pod := newPod("a")
				pod.Status.Message = strconv.Itoa(n + 1)
				send(merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{pod}})
				if n%50 == 0 {
					r.Sync()
					r.SeenAllSources(sets.New(source))
				}
			}
			// Taken when the last has been merged.
			in <- merge.PodUpdate{Op: merge.REMOVE}
		})
	}
	senders.Wait()
	r.Sync()
	select {
	case <-received:
	case <-time.After(time.Minute):
		r.Fatal("something never came")
	}
	for source, l := range got {
		if l.adds != 1 {
			r.Errorf("%s: %d ADDs", source, l.adds)
		}
	}
}

// givenUpMerge: a Merge that is given up for want of a receiver has merged
// nevertheless, and what it had to say comes later, in order.
func (r *rig) givenUpMerge() {
	const limit = 1000
	merged := 0
	for ; merged < limit; merged++ {
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		err := r.Merge(ctx, "api", merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod(strconv.Itoa(merged))}})
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				r.Fatalf("error %v, want ctx's", err)
			}
			merged++
			break
		}
	}
	if merged == limit {
		r.Fatalf("%d updates and nobody to receive them, yet none waits", limit)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Merge(r.ctx, "api", merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{newPod(strconv.Itoa(merged))}}); err != nil {
			r.Error(err)
		}
		r.Sync()
	}()
	next := 0
	for update := range r.Updates() {
		if update.Source == merge.AllSource {
			if len(update.Pods) != merged+1 {
				r.Errorf("%d pods are held, want %d", len(update.Pods), merged+1)
			}
			break
		}
		for _, pod := range update.Pods {
			if string(pod.UID) != strconv.Itoa(next) {
				r.Errorf("pod %s came as number %d", pod.UID, next)
			}
			next++
		}
	}
	<-done
	if next != merged+1 {
		r.Errorf("%d pods were told, want %d", next, merged+1)
	}
}

// unlocked: while a receiver doesn't come, updates of other sources take
// effect, and callers can give up their wait for a turn.
func (r *rig) unlocked() {
	m := newRig(r.T, r.variant, merge.Options{Capacity: 1})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for i := range 3 {
			if err := m.Merge(m.ctx, "api", merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod(strconv.Itoa(i))}}); err != nil {
				m.Error(err)
			}
		}
	})
	synctest.Wait()

	m.open(m.ctx, "file")
	ctx, cancel := context.WithTimeout(m.ctx, time.Second)
	defer cancel()
	err := m.Merge(ctx, "file", merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("f")}})
	if !errors.Is(err, context.DeadlineExceeded) {
		m.Errorf("error %v, want ctx's", err)
	}
	if !m.SeenAllSources(sets.New("file")) {
		m.Error("the update of another source didn't take effect")
	}
	m.expect(m.sent(),
		"ADD api 0",
		"REMOVE api 0",
		"ADD api 1",
		"ADD file f",
		"REMOVE api 1",
		"ADD api 2")
	waiting.Wait()
}

// goroutinesEnd: with ctx or the channel, even while the receiver doesn't
// come. The bubble would not end otherwise.
func (r *rig) goroutinesEnd() {
	ctx, cancel := context.WithCancel(r.ctx)
	for i := range 4 {
		in := r.open(ctx, fmt.Sprint("source", i))
		in <- merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod("a")}}
		if i == 0 {
			close(in)
		}
	}
	blocked := r.open(ctx, "blocked")
	for i := range 200 {
		select {
		case blocked <- merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod(strconv.Itoa(i))}}:
		case <-time.After(time.Second):
			cancel()
			synctest.Wait()
			r.sent()
			return
		}
	}
	cancel()
	r.Fatal("200 updates and nobody to receive them, yet none waits")
}

// options: what isn't supported is refused, and the error says what is.
func (s Suite) options(t *testing.T, v merge.Variant) {
	refused := []merge.Options{{Mode: "loud"}, {Capacity: -1}}
	taken := []merge.Options{{}, {Mode: merge.Incremental}, {Mode: merge.Snapshot}, {Mode: merge.SnapshotAndUpdates, Capacity: merge.DefaultCapacity}}
	other := merge.Options{Capacity: 3}
	if s.FixedCapacity {
		refused = append(refused, other)
	} else {
		taken = append(taken, other)
	}
	for _, opts := range refused {
		if m, err := v.New(opts); !errors.Is(err, impls.ErrOptions) || m != nil {
			t.Errorf("options %+v: %v and error %v, want nothing and %v", opts, m, err, impls.ErrOptions)
		}
	}
	for _, opts := range taken {
		m, err := v.New(opts)
		if err != nil {
			t.Errorf("options %+v: %v", opts, err)
			continue
		}
		if c, ok := m.(interface{ Close() }); ok {
			c.Close()
		}
	}
}
