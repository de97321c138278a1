package clientgo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// lifecycleChecks: waiting, closing, failing, and what the model leaves open.
var lifecycleChecks = []queueCheck{
	{Name: "every wait is woken", For: room(1), Run: everyWaitWoken},
	{Name: "Close", Run: closes},
	{Name: "keys of a function", For: objects, Run: keyFunction},
	{Name: "transformer", For: all(deltas, room(2)), Run: transformer},
	{Name: "transformer errors", For: all(deltas, room(1)), Run: transformerErrors},
	{Name: "producers go on during process", For: all(unlocked, room(1001)), Run: on(producersGoOn)},
	{Name: "batch size", For: all(batched, room(17)), Run: batchSize},
	{Name: "many keys come and go", For: all(room(1000), func(s queueSetup) bool { return s.path == byPop }), Run: comeAndGo},
}

// everyWaitWoken puts the consumer to sleep before each kind of event: a
// forgotten wake-up, or one kept for an earlier wait, leaves it asleep.
func everyWaitWoken(t *testing.T, s queueSetup) {
	for _, call := range s.calls() {
		if call.Type == cache.Deleted && !deletesSeen(s) {
			continue // It queues nothing.
		}
		bubble(func(r *queueRig) {
			r.update("a@1")
			r.drain()
			for i := range 3 {
				r.store.apply(cache.Delta{Type: cache.Added, Object: pod("a", 1)})
				pop := conformance.Async(r.pop)
				synctest.Wait()
				if s.objects {
					r.do(r.queue.Delete(pod("new", 0)))
				}
				r.do(r.push(r.queue, call))
				pop.Returns(t, nil, fmt.Sprintf("round %d, after %s", i, word(call)))
				r.drain()
			}
		})(t, s)
	}
}

// closes: Close ends the wait of a pop and leaves no goroutine, drained or not. A bubble panics at its end if
// one is left.
func closes(t *testing.T, s queueSetup) {
	for name, use := range map[string]func(*queueRig){
		"idle":    func(*queueRig) {},
		"drained": func(r *queueRig) { r.update("a@1"); r.drain() },
		"filled":  func(r *queueRig) { r.update([]string{"a@1", "b@2", "c@3"}[:min(3, cmp.Or(r.Capacity, 3))]...) },
		"waiting": func(r *queueRig) {
			pop := conformance.Async(r.pop)
			synctest.Wait()
			r.queue.Close()
			pop.Returns(r.t, cache.ErrFIFOClosed, "after Close")
			r.ended()
		},
	} {
		bubble(func(r *queueRig) {
			t.Log(name)
			use(r)
			r.queue.Close()
		})(t, s)
	}
}

func keyFunction(t *testing.T, s queueSetup) {
	r := s.new(t, func(o *deltafifo.Options) {
		o.KeyFunction = func(obj any) (string, error) { return obj.(*v1.Pod).Labels["key"], nil }
	})
	labelled := func(name, key string) *v1.Pod {
		p := pod(name, 1)
		p.Labels = map[string]string{"key": key}
		return p
	}
	r.do(r.queue.Add(labelled("a", "x")), r.queue.Add(labelled("b", "y")), r.queue.Add(labelled("c", "x")))
	if got := words(r.drain()); len(got) != 2 || !slices.Contains(got, "c@1") || !slices.Contains(got, "b@1") {
		t.Errorf("popped %v, want b@1, and c@1 in place of a@1", got)
	}
}

func transformer(t *testing.T, s queueSetup) {
	calls := map[any]int{}
	r := s.new(t, func(o *deltafifo.Options) {
		o.Transformer = func(obj any) (any, error) {
			if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone {
				t.Errorf("the transformer received a tombstone")
			}
			calls[obj]++
			return pod(keyOf(obj), version(obj)+100), nil
		}
	})
	if q, ok := r.queue.(cache.TransformingStore); !ok || q.Transformer() == nil {
		t.Error("the queue does not expose its transformer to the Reflector")
	}
	r.do(r.push(r.queue, listOf("9", pod("c", 3))))
	r.drain()
	r.do(r.queue.Add(pod("a", 1)), r.queue.Update(pod("b", 2)), r.queue.Delete(pod("a", 4)), r.queue.Delete(tombstoneOf(pod("b", 6))))
	for _, d := range r.drain() {
		if _, tombstone := d.Object.(cache.DeletedFinalStateUnknown); !tombstone && version(d.Object) < 100 {
			t.Errorf("%s was popped as it was before the transformer", word(d))
		}
	}
	if got := r.store.state(); !slices.Equal(got, []string{"c@103"}) {
		t.Errorf("the store has %v, want c@103", got)
	}
	for obj, n := range calls {
		if n != 1 {
			t.Errorf("the transformer was applied %d times to %v", n, obj)
		}
	}
	if s.known {
		before := len(calls)
		r.do(r.queue.Resync())
		if got := words(r.drain()); len(calls) != before || !slices.Equal(got, []string{"Sync c@103"}) {
			t.Errorf("popped %v, want a Sync of c@103, to which no transformer is applied", got)
		}
	}
}

func transformerErrors(t *testing.T, s queueSetup) {
	boom := errors.New("boom")
	r := s.new(t, func(o *deltafifo.Options) {
		o.Transformer = func(any) (any, error) { return nil, boom }
	})
	for _, call := range s.calls() {
		switch call.Type {
		case cache.Added, cache.Updated, cache.ReplacedAll:
			// DeltaFIFO wraps with %v in Replace, hence the text.
			if err := s.push(r.queue, call); err == nil || !errors.Is(err, boom) && call.Type != cache.ReplacedAll {
				t.Errorf("%s returned %v, want the transformer's error", word(call), err)
			}
		}
	}
	if n := r.queue.Len(); n > 0 {
		t.Errorf("Len is %d, want 0", n)
	}
}

func producersGoOn(r *queueRig) {
	r.do(r.queue.Add(pod("a", 1)))
	if ours(r.queueSetup) && !throttled(r.queueSetup) && !bounded(r.queueSetup) {
		r.long()
	}
	want := r.queue.Len() + 1000
	r.once(func([]cache.Delta) {
		r.do(conformance.Async(func() (err error) {
			for i := range 1000 {
				err = errors.Join(err, r.queue.Update(pod(fmt.Sprint("new", i), i)))
			}
			return err
		}).Wait())
	})
	if n := len(r.drain()); n != want {
		r.t.Errorf("popped %d events, want %d", n, want)
	}
}

// batchSize: a batch has as many deltas of distinct keys as it may.
func batchSize(t *testing.T, s queueSetup) {
	s = s.oneShard()
	s.BatchSize = 7
	if err := s.supported(); err != nil && ours(s) {
		t.Fatalf("BatchSize 7: %v", err)
	} else if err != nil {
		s.BatchSize = 0
	}
	r := s.new(t)
	r.update("first@1")
	r.drain()
	n := 2*s.batchSize() + 3
	for i := range n {
		r.do(r.queue.Update(key(i)))
	}
	from := len(r.popped)
	if got := len(r.drain()); got != n {
		t.Errorf("popped %d deltas, want %d", got, n)
	}
	if pops, most := len(r.popped)-from, (n-1)/s.batchSize()+3; pops > most {
		t.Errorf("%d distinct keys took %d pops, want at most %d", n, pops, most)
	}
}

// comeAndGo grows and shrinks the queue several times.
func comeAndGo(t *testing.T, s queueSetup) {
	p := s.newPlayer(t, 2000)
	for round, n := range []int{1, 600, 3, 900} {
		for k := range n {
			p.call(add, round%2*1000+k)
		}
		for k := 0; k < n; k += 3 {
			p.call(del, round%2*1000+k)
		}
		p.call(replace, round)
		p.drain()
	}
	p.end()
}
