package conformance

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

// checker checks the notifications of each source: an ADD, and then the statuses from 1 on, each once and
// in order. A snapshot has exactly what was sent before it.
type checker struct {
	*rig
	statuses map[string]int
	// synced counts the calls of sync, snapshots the received snapshots.
	synced, snapshots atomic.Int64
}

func (r *rig) newChecker() *checker { return &checker{rig: r, statuses: make(map[string]int)} }

func (l *checker) sync() {
	l.synced.Add(1)
	l.Sync()
}

// check checks a notification.
func (l *checker) check(update merge.PodUpdate) {
	last, known := l.statuses[update.Source]
	switch {
	case update.Source == merge.AllSource:
		l.snapshots.Add(1)
		if update.Op != merge.SET || len(update.Pods) != len(l.statuses) {
			l.Errorf("Sync sent a %v of %d pods, %d have been sent", update.Op, len(update.Pods), len(l.statuses))
		}
		for _, pod := range update.Pods {
			if n, known := l.statuses[pod.Annotations[merge.ConfigSourceAnnotation]]; !known || pod.Status.Message != strconv.Itoa(n) {
				l.Errorf("%s is in a snapshot with status %q, and was sent with %d (%v)", placeOf(pod), pod.Status.Message, n, known)
			}
		}
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

// receive checks the notifications until the merger is closed, in a goroutine of its own.
func (r *rig) receive(check func(merge.PodUpdate)) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for update := range r.Updates() {
			check(r.take(update))
		}
	}()
	return func() { <-done }
}

// load is concurrent sources that send numbered statuses, and a receiver.
type load struct {
	sources, rounds int
	// stall and sourceStall are the longest pauses of the receiver and of a source, each
	// before one call in four.
	stall, sourceStall time.Duration
	send               func(i, n int, source string) // sends a status of source number i
}

// playLoad checks that every status of every source is sent once, in order. A final
// snapshot flushes unsent notifications.
func (r *rig) playLoad(d load) {
	r.Helper()
	pause := func(random *rand.Rand, longest time.Duration) {
		if longest > 0 && random.IntN(4) == 0 {
			advance(time.Duration(random.Int64N(int64(longest))))
		}
	}
	l := r.newChecker()
	random := rand.New(rand.NewPCG(1, 1))
	wait := r.receive(func(update merge.PodUpdate) {
		l.check(update)
		pause(random, d.stall)
	})
	var senders sync.WaitGroup
	for i := range d.sources {
		source := fmt.Sprint("source", i)
		random := rand.New(rand.NewPCG(2, uint64(i)))
		senders.Go(func() {
			for n := range d.rounds + 1 {
				pause(random, d.sourceStall)
				d.send(i, n, source)
				if n%4 == 0 {
					l.sync()
					r.SeenAllSources(sets.New(source))
				}
			}
			r.open(r.ctx, source) <- noop
		})
	}
	senders.Wait()
	l.sync()
	for range 1000 {
		if l.snapshots.Load() == l.synced.Load() {
			break
		}
		advance(time.Minute)
	}
	l.Close()
	wait()
	if snapshots, synced := l.snapshots.Load(), l.synced.Load(); snapshots != synced {
		l.Errorf("%d snapshots came of %d calls of Sync", snapshots, synced)
	}
	for source, n := range l.statuses {
		if n != d.rounds {
			l.Errorf("%s: %d statuses came, want %d", source, n, d.rounds)
		}
	}
	if len(l.statuses) != d.sources {
		l.Errorf("notifications of %d sources came, want %d", len(l.statuses), d.sources)
	}
}

// sendEither sends through a channel from every other source, and with a call from the rest.
func (r *rig) sendEither(i, n int, source string) {
	if i%2 == 0 {
		r.open(r.ctx, source) <- statusOf(n)
	} else {
		r.must(source, statusOf(n))
	}
}

func (r *rig) concurrentSources() {
	r.playLoad(load{sources: 6, rounds: 60, send: r.sendEither})
}

// stallingReceiver: the receiver and the sources stall, and the contexts of callers end. The notifications of
// canceled calls are still sent, in order.
func (r *rig) stallingReceiver() {
	var calls atomic.Uint64
	r.playLoad(load{
		sources: 4, rounds: 40, stall: 1200 * time.Millisecond, sourceStall: time.Second,
		send: func(i, n int, source string) {
			if i%2 == 0 {
				r.sendEither(i, n, source)
				return
			}
			patience := rand.New(rand.NewPCG(4, calls.Add(1))).IntN(400)
			ctx, cancel := context.WithTimeout(r.ctx, time.Duration(patience)*time.Millisecond)
			defer cancel()
			if err := r.Merge(ctx, source, statusOf(n)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				r.Errorf("%s: %v", source, err)
			}
		},
	})
}

// closeDuringCalls: Close ends all concurrent calls. Notifications sent before are in order.
func (r *rig) closeDuringCalls() {
	const sources = 4
	m := r.with(func(*merge.Options) {})
	l := m.newChecker()
	var all sync.WaitGroup
	enough := make(chan struct{})
	received := 0
	wait := m.receive(func(update merge.PodUpdate) {
		l.check(update)
		if received++; received == 50 {
			close(enough)
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
						return // The goroutine of the source may have ended.
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
	wait()
	m.refuses()
}

// unlocked: without a receiver, updates of other sources take effect, and waiting callers can cancel,
// also before the call.
func (r *rig) unlocked() {
	m := r.with(func(o *merge.Options) { o.Capacity = 1 })
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for i := range 3 {
			m.must("api", merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod(strconv.Itoa(i))}})
		}
	})
	synctest.Wait()

	m.open(m.ctx, "file")
	late, cancel := context.WithTimeout(m.ctx, time.Second)
	defer cancel()
	ended, cancel := context.WithCancel(m.ctx)
	cancel()
	for i, ctx := range []context.Context{late, ended} {
		err := m.Merge(ctx, "file", merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{newPod(fmt.Sprint("f", i))}})
		if !errors.Is(err, ctx.Err()) || err == nil {
			m.Errorf("error %v, want that of ctx", err)
		}
	}
	if !m.SeenAllSources(sets.New("file")) {
		m.Error("the update of another source did not take effect")
	}
	m.expect(m.sent(),
		"ADD api 0",
		"REMOVE api 0",
		"ADD api 1",
		"ADD file f0",
		"REMOVE file f0",
		"ADD file f1",
		"REMOVE api 1",
		"ADD api 2")
	waiting.Wait()
}
