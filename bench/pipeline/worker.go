package pipeline

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/pprof"
	"watchlab/impls/workqueue"
	"watchlab/loadgen/storm"
)

// handler is the event handler of the informer pipeline: it logs its calls, does
// what [Config.HandlerCost] asks for, and adds keys to the workqueue. An informer
// calls it from one goroutine.
type handler struct {
	log      *deliveryLog
	handling *handling
	queue    workqueue.Queue[string]
	stages   pprof.Stages  // labels the informer's goroutine at the first call
	seen     []bool        // events of the calls so far
	left     int           // number of missing events
	done     chan struct{} // closed when left reaches 0
	newest   atomic.Uint64 // newest event of the calls so far
	busy     atomic.Bool   // a call is in progress
	deleted  func(uint64)  // stamps deletions; nil if something else does
}

var _ cache.ResourceEventHandler = (*handler)(nil)

func newHandler(st *stamps, h *handling, q workqueue.Queue[string], events int) *handler {
	return &handler{
		log: newDeliveryLog(st, events), handling: h, queue: q,
		seen: make([]bool, events+1), left: events, done: make(chan struct{}),
	}
}

// OnAdd implements [cache.ResourceEventHandler].
func (h *handler) OnAdd(obj any, isInInitialList bool) {
	if isInInitialList {
		h.call(cache.Replaced, obj)
		return
	}
	h.call(cache.Added, obj)
}

// OnUpdate implements [cache.ResourceEventHandler]. An update by the same version is
// a resync's, or a list's.
func (h *handler) OnUpdate(old, obj any) {
	if sequence(old) == sequence(obj) {
		h.call(cache.Sync, obj)
		return
	}
	h.call(cache.Updated, obj)
}

// OnDelete implements [cache.ResourceEventHandler].
func (h *handler) OnDelete(obj any) {
	if h.deleted != nil {
		h.deleted(sequence(obj))
	}
	h.call(cache.Deleted, obj)
}

func (h *handler) call(t cache.DeltaType, obj any) {
	h.busy.Store(true)
	defer h.busy.Store(false)
	if len(h.log.ends) == 0 {
		h.stages.To(0)
	}
	h.handling.do(1)
	// The indexer has accepted the object, so its key is valid.
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		h.queue.Add(key)
	}
	h.log.call(t, obj)
	seq := sequence(obj)
	if seq == 0 || seq >= uint64(len(h.seen)) || h.seen[seq] {
		return
	}
	h.seen[seq] = true
	if seq > h.newest.Load() {
		h.newest.Store(seq)
	}
	if h.left--; h.left == 0 {
		close(h.done)
	}
}

// worker is the last stage of the informer pipeline: one goroutine that takes keys from
// the workqueue and looks them up, as controllers do.
type worker struct {
	st      *stamps
	indexer cache.KeyGetter
	queue   workqueue.Queue[string]
	log     []work        // look-ups in order; only run's goroutine writes
	stamped int           // length of the log at the last clock reading
	worked  atomic.Uint64 // number of entries of the log that other goroutines may read
	ready   chan struct{} // closed after initial look-ups
}

// work is one look-up: the key and the object in the indexer, nil for none. at is 0 if
// the clock was not read.
type work struct {
	key string
	obj any
	at  int64
}

func newWorker(st *stamps, q workqueue.Queue[string], events int) *worker {
	w := &worker{
		st: st, queue: q,
		log:   make([]work, 0, events+sampleEvery),
		ready: make(chan struct{}),
	}
	if st.initial == 0 {
		close(w.ready)
	}
	return w
}

func (w *worker) run(context.Context) {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			w.finish()
			return
		}
		obj, _, _ := w.indexer.GetByKey(key) // never an error with an indexer in memory
		item := work{key: key, obj: obj}
		if w.st.every || !w.st.none && len(w.log)+1-w.stamped >= sampleEvery {
			item.at = w.st.now()
			w.stamped = len(w.log) + 1
		}
		w.log = append(w.log, item)
		w.queue.Done(key)
		w.worked.Add(1)
		if len(w.log) == w.st.initial {
			close(w.ready)
		}
	}
}

// finish gives each look-up without a clock reading that of the next one.
func (w *worker) finish() {
	next := w.st.now()
	for i := len(w.log) - 1; i >= 0 && !w.st.every; i-- {
		if w.log[i].at == 0 {
			w.log[i].at = next
		}
		next = w.log[i].at
	}
}

func (w *worker) lookUps() (out []lookUp) {
	for _, item := range w.log {
		if item.at >= w.st.start.Load() {
			out = append(out, lookUp{item.at, item.at})
		}
	}
	return out
}

// check checks that each key was looked up up to the last event that the handlers saw, and never backwards. A
// list hides an object that came and went before it. It fills in the handled stamps: an event is handled when
// its version or a newer one is looked up.
func (w *worker) check(v *violations, s *storm.Storm, keys map[string]int32, handlers *checker) {
	events := make([][]uint64, s.Keys)
	for i := range s.Events {
		e := &s.Events[i]
		events[e.KeyIndex] = append(events[e.KeyIndex], e.Seq)
	}
	deleted := func(seq uint64) bool { return s.Events[seq-1].Type == watch.Deleted }
	// upto is the number of handled events of each key. lastAt is the time of a key's
	// last look-up if it found no object; else 0.
	upto, lastAt := make([]int, s.Keys), make([]int64, s.Keys)
	handle := func(k int32, n int, at int64) {
		for ; upto[k] < n; upto[k]++ {
			w.st.handled[events[k][upto[k]]] = at
		}
	}
	for _, item := range w.log {
		k, ok := keys[item.key]
		if !ok {
			v[diverged].add("the worker was given %q, which is not in the storm", item.key)
			continue
		}
		own := events[k]
		if item.obj == nil {
			// No object: the look-up handled the last deletion stored by then. Sampled
			// stamps do not show which one that is. Then it is the key's next deletion,
			// or the same one if the previous look-up found no object either.
			again := lastAt[k] != 0
			lastAt[k] = item.at
			next, stored := -1, -1
			for n := upto[k]; n < len(own); n++ {
				if !deleted(own[n]) {
					continue
				}
				if next < 0 {
					next = n
				}
				if at := w.st.stored[own[n]]; w.st.every && at != 0 && at <= item.at {
					stored = n
				}
			}
			switch {
			case stored >= 0:
				handle(k, stored+1, item.at)
			case next >= 0 && !again:
				handle(k, next+1, item.at)
			}
			continue
		}
		lastAt[k] = 0
		seq := sequence(item.obj)
		if upto[k] > 0 && seq < own[upto[k]-1] && !deleted(own[upto[k]-1]) {
			v[reordered].add("the worker found event %d of %s after event %d", seq, item.key, own[upto[k]-1])
			continue
		}
		n := upto[k]
		for n < len(own) && own[n] <= seq {
			n++
		}
		handle(k, n, item.at)
	}
	for k, own := range events {
		if lastAt[k] != 0 && deleted(own[len(own)-1]) {
			handle(int32(k), len(own), lastAt[k])
		}
		if upto[k] < len(own) && (handlers.gone[k] || handlers.newest[k] >= own[upto[k]]) {
			seq := own[len(own)-1]
			if seq <= uint64(s.Initial) && deleted(seq) {
				continue // It was gone before the beginning.
			}
			v[lost].add("event %d (%s) was never worked on", seq, s.Events[seq-1].Key)
		}
	}
}
