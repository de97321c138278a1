package mergetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls/merge"
)

// statusOf returns a SET of pod a with a number as its status.
func statusOf(n int) merge.PodUpdate {
	// It is no copy of the last pod, because kubelet may be writing to that.
	pod := newPod("a")
	pod.Status.Message = strconv.Itoa(n)
	return merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{pod}}
}

// checker checks the notifications of each source: an ADD, and then the statuses
// from 1 on, each once and in order.
type checker struct {
	*rig
	statuses map[string]int
	// asked counts the calls of sync, snapshots the received snapshots.
	asked, snapshots atomic.Int64
}

func (r *rig) newChecker() *checker { return &checker{rig: r, statuses: make(map[string]int)} }

func (l *checker) sync() {
	l.asked.Add(1)
	l.Sync()
}

// note checks a notification that is not a snapshot.
func (l *checker) note(update merge.PodUpdate) {
	last, known := l.statuses[update.Source]
	switch {
	case update.Op == merge.ADD && !known && len(update.Pods) == 1:
		l.statuses[update.Source] = 0
	case update.Op == merge.RECONCILE && known && len(update.Pods) == 1:
		l.statuses[update.Source] = last + 1
		if message := update.Pods[0].Status.Message; message != strconv.Itoa(last+1) {
			l.Errorf("%s: status %s came as number %d", update.Source, message, last+1)
		}
	default:
		l.Errorf("%s: %v of %d pods after %d statuses", update.Source, update.Op, len(update.Pods), last)
	}
}

// receive checks notifications until the merger is closed. It calls before ahead
// of each receive.
func (l *checker) receive(before func()) (received <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			before()
			update, open := <-l.Updates()
			if !open {
				return
			}
			if update = l.take(update); update.Source != merge.AllSource {
				l.note(update)
				continue
			}
			if update.Op != merge.SET {
				l.Errorf("Sync sent a %v", update.Op)
			}
			l.snapshots.Add(1)
		}
	}()
	return done
}

// finish checks, after all calls have ended, the number of sources and of
// statuses. A final snapshot flushes unsent notifications.
func (l *checker) finish(received <-chan struct{}, sources, rounds int) {
	l.Helper()
	l.sync()
	for range 1000 {
		if l.snapshots.Load() == l.asked.Load() {
			break
		}
		advance(time.Minute)
	}
	l.Close()
	<-received
	if snapshots, asked := l.snapshots.Load(), l.asked.Load(); snapshots != asked {
		l.Errorf("%d snapshots came, %d were asked for", snapshots, asked)
	}
	for source, n := range l.statuses {
		if n != rounds {
			l.Errorf("%s: %d statuses came, want %d", source, n, rounds)
		}
	}
	if len(l.statuses) != sources {
		l.Errorf("%d sources were told of, want %d", len(l.statuses), sources)
	}
}

// concurrentSources: every change of every source is sent, in the order of the
// source, from channels and from calls.
func (r *rig) concurrentSources() {
	const sources, rounds = 6, 60
	l := r.newChecker()
	received := l.receive(func() {})
	var senders sync.WaitGroup
	for i := range sources {
		source := fmt.Sprint("source", i)
		in := r.open(r.ctx, source)
		senders.Go(func() {
			for n := range rounds + 1 {
				if i%2 == 0 {
					in <- statusOf(n)
				} else if err := r.Merge(r.ctx, source, statusOf(n)); err != nil {
					r.Errorf("%s: %v", source, err)
				}
				if n%20 == 0 {
					l.sync()
					r.SeenAllSources(sets.New(source))
				}
			}
			in <- noop
		})
	}
	senders.Wait()
	l.finish(received, sources, rounds)
}

// stallingReceiver: the same with a receiver that stalls at random.
func (r *rig) stallingReceiver() {
	const sources, rounds = 4, 30
	random := rand.New(rand.NewPCG(1, 1))
	l := r.newChecker()
	received := l.receive(func() {
		if random.IntN(4) == 0 {
			advance(time.Duration(random.IntN(1000)) * time.Millisecond)
		}
	})
	var senders sync.WaitGroup
	for i := range sources {
		source := fmt.Sprint("source", i)
		in := r.open(r.ctx, source)
		pause := rand.New(rand.NewPCG(2, uint64(i)))
		senders.Go(func() {
			for n := range rounds + 1 {
				if pause.IntN(5) == 0 {
					advance(time.Duration(pause.IntN(1000)) * time.Millisecond)
				}
				if i%2 == 0 {
					in <- statusOf(n)
				} else if err := r.Merge(r.ctx, source, statusOf(n)); err != nil {
					r.Errorf("%s: %v", source, err)
				}
			}
			in <- noop
		})
	}
	senders.Wait()
	l.finish(received, sources, rounds)
}

// impatientCallers: the notifications of canceled calls are still sent, in order.
func (r *rig) impatientCallers() {
	const sources, rounds = 4, 40
	random := rand.New(rand.NewPCG(3, 1))
	l := r.newChecker()
	received := l.receive(func() {
		advance(time.Duration(random.IntN(300)) * time.Millisecond)
	})
	var callers sync.WaitGroup
	for i := range sources {
		source := fmt.Sprint("source", i)
		patience := rand.New(rand.NewPCG(4, uint64(i)))
		callers.Go(func() {
			for n := range rounds + 1 {
				ctx, cancel := context.WithTimeout(r.ctx, time.Duration(patience.IntN(400))*time.Millisecond)
				if err := r.Merge(ctx, source, statusOf(n)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					r.Errorf("%s: %v", source, err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	l.finish(received, sources, rounds)
}

// snapshotsAmidUpdates: a snapshot has exactly the updates sent before it.
func (r *rig) snapshotsAmidUpdates() {
	const sources, rounds = 3, 40
	var told map[string]string
	apply := func(update merge.PodUpdate) {
		for _, pod := range update.Pods {
			if update.Op == merge.REMOVE {
				delete(told, placeOf(pod))
			} else {
				told[placeOf(pod)] = pod.Status.Message
			}
		}
	}
	compare := func(update merge.PodUpdate) {
		for _, pod := range update.Pods {
			if have, ok := told[placeOf(pod)]; !ok || have != pod.Status.Message {
				r.Errorf("%s is in a snapshot with status %q, and was told with %q (%v)", placeOf(pod), pod.Status.Message, have, ok)
			}
		}
		if len(told) != len(update.Pods) {
			r.Errorf("a snapshot has %d pods, %d have been told", len(update.Pods), len(told))
		}
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		told = make(map[string]string)
		for update := range r.Updates() {
			if update = r.take(update); update.Source == merge.AllSource {
				compare(update)
			} else {
				apply(update)
			}
		}
	}()

	var callers sync.WaitGroup
	for i := range sources {
		source := fmt.Sprint("source", i)
		callers.Go(func() {
			for n := range rounds {
				pods := []*v1.Pod{newPod("a"), newPod(strconv.Itoa(n % 3))}
				pods[0].Status.Message = strconv.Itoa(n)
				if err := r.Merge(r.ctx, source, merge.PodUpdate{Op: merge.SET, Pods: pods}); err != nil {
					r.Error(err)
				}
			}
		})
		callers.Go(func() {
			for range rounds / 4 {
				r.Sync()
			}
		})
	}
	callers.Wait()
	r.Close()
	<-received
}

// closeAmidCalls: Close ends all concurrent calls. Notifications sent before are
// in order.
func (r *rig) closeAmidCalls() {
	const sources = 4
	m := r.with(func(*merge.Options) {})
	l := m.newChecker()
	var all sync.WaitGroup
	enough := make(chan struct{})
	all.Go(func() {
		received := 0
		for update := range m.Updates() {
			if update = m.take(update); update.Source != merge.AllSource {
				l.note(update)
			}
			if received++; received == 50 {
				close(enough)
			}
		}
	})
	for i := range sources {
		source := fmt.Sprint("source", i)
		in := m.open(m.ctx, source)
		all.Go(func() {
			for n := 0; ; n++ {
				if i%2 == 0 {
					select {
					case in <- statusOf(n):
					case <-enough:
						return // Nobody may be there to take it.
					}
				} else if err := m.Merge(m.ctx, source, statusOf(n)); err != nil {
					if !errors.Is(err, merge.ErrClosed) {
						m.Errorf("%s: %v", source, err)
					}
					return
				}
				if n%8 == i {
					m.Sync()
				}
			}
		})
	}
	<-enough
	for range 2 {
		all.Go(m.Close)
	}
	all.Wait()
	m.refuses()
}

// givenUpMerge: a Merge that is canceled without a receiver has taken effect. Its
// notifications are sent later, in order.
func (r *rig) givenUpMerge() {
	const limit = 3000
	merged := 0
	for ; merged < limit; merged++ {
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		err := r.Merge(ctx, "api", add(merged))
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
		if err := r.Merge(r.ctx, "api", add(merged)); err != nil {
			r.Error(err)
		}
		r.Sync()
	}()
	next := 0
	for update := range r.Updates() {
		update = r.take(update)
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

// givenUpBeforehand: the same for a Merge whose ctx has ended before the call.
func (r *rig) givenUpBeforehand() {
	n := r.fill()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if err := r.Merge(r.ctx, "file", add(-1)); err != nil {
			r.Error(err)
		}
	})
	synctest.Wait()
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	for i := range 3 {
		if err := r.Merge(ended, "fill", add(n+i)); !errors.Is(err, context.Canceled) {
			r.Errorf("error %v, want ctx's", err)
		}
	}
	r.open(r.ctx, "http")
	if err := r.Merge(ended, "http", merge.PodUpdate{Op: merge.SET}); !errors.Is(err, context.Canceled) {
		r.Errorf("error %v, want ctx's", err)
	}
	if !r.SeenAllSources(sets.New("http")) {
		r.Error("an update that was given up isn't in the state")
	}
	got := r.sent()
	waiting.Wait()
	got = append(got, r.collect(r.Sync)...)
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint("ADD fill ", i))
	}
	want = append(want, "ADD file -1")
	for i := range 3 {
		want = append(want, fmt.Sprint("ADD fill ", n+i))
	}
	want = append(want, "ADD http")
	r.expect(got[:len(got)-1], want...)
	if last := got[len(got)-1]; last.Source != merge.AllSource || len(last.Pods) != n+4 {
		r.Errorf("last comes a %v from %s of %d pods", last.Op, last.Source, len(last.Pods))
	}
}

// unlocked: without a receiver, updates of other sources take effect, and waiting
// callers can cancel.
func (r *rig) unlocked() {
	m := r.with(func(o *merge.Options) { o.Capacity = 1 })
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
