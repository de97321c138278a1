package pipeline

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"watchlab/loadgen/storm"
)

// worker is the end of the informer pipeline: an event handler that does what is
// asked of it and adds keys to a workqueue, and one goroutine that takes them and
// looks them up, as controllers do.
type worker struct {
	st       *stamps
	indexer  cache.Indexer
	handling *handling
	queue    workqueue.TypedInterface[string]

	log     []work
	stamped int

	ready    chan struct{}
	initial  int
	progress atomic.Uint64
	tap      *tap

	upstream *upstream
}

// work is one key with the object that the indexer had: nil for none.
type work struct {
	key string
	obj any
	at  int64
}

var _ eventHandler = (*worker)(nil)

func newWorker(st *stamps, indexer cache.Indexer, h *handling, events, initial int) *worker {
	w := &worker{
		st: st, indexer: indexer, handling: h, initial: initial,
		queue: workqueue.NewTyped[string](),
		log:   make([]work, 0, events+sampleEvery),
		ready: make(chan struct{}),
	}
	if initial == 0 {
		close(w.ready)
	}
	return w
}

// OnAdd is [cache.ResourceEventHandler].OnAdd.
func (w *worker) OnAdd(obj any, _ bool) { w.enqueue(obj) }

// OnUpdate is [cache.ResourceEventHandler].OnUpdate.
func (w *worker) OnUpdate(_, obj any) { w.enqueue(obj) }

// OnDelete is [cache.ResourceEventHandler].OnDelete.
func (w *worker) OnDelete(obj any) { w.enqueue(obj) }

func (w *worker) enqueue(obj any) {
	w.handling.do(1)
	// An object without a key never came this far: the indexer took it.
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		w.upstream.add(w.st, key)
		w.queue.Add(key)
	}
}

// run works until the queue is shut down and empty.
func (w *worker) run() {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			w.finish()
			return
		}
		timed := w.upstream.took(w.st, key)
		obj, _, _ := w.indexer.GetByKey(key) // never an error with an indexer in memory
		item := work{key: key, obj: obj}
		if w.st.every || !w.st.none && len(w.log)+1-w.stamped >= sampleEvery {
			item.at = w.st.now()
			w.stamped = len(w.log) + 1
		}
		w.log = append(w.log, item)
		w.queue.Done(key)
		w.upstream.done(w.st, timed)
		w.tap.worked(obj, item.at)
		w.progress.Add(1)
		if len(w.log) == w.initial {
			close(w.ready)
		}
	}
}

// finish gives each item a stamp: its own or the next one.
func (w *worker) finish() {
	next := w.st.now()
	for i := len(w.log) - 1; i >= 0; i-- {
		if w.log[i].at == 0 {
			w.log[i].at = next
		}
		next = w.log[i].at
	}
}

// staleness tells how far the store was behind the source at each look-up since the
// schedule began.
func (w *worker) staleness(fresh *freshness) *lags {
	l := &lags{prefix: "staleness", boundary: Staleness}
	for _, item := range w.log {
		if item.at >= w.st.start {
			l.add(fresh.behind(item.at, item.at))
		}
	}
	return l
}

// judge checks that every key was worked on until its last event, never
// backwards, and fills in when each event was handled: when a version at least
// as new was looked up.
func (w *worker) judge(v *violations, s *storm.Storm, keys map[string]int32) {
	events := make([][]uint64, s.Keys)
	for i := range s.Events {
		e := &s.Events[i]
		events[e.KeyIndex] = append(events[e.KeyIndex], e.Seq)
	}
	deleted := func(seq uint64) bool { return s.Events[seq-1].Type == watch.Deleted }
	// upto is how many of a key's events have been worked on; lastAt is when the
	// key was found missing, if that is the last that is known of it.
	upto, lastAt := make([]int, s.Keys), make([]int64, s.Keys)
	handle := func(k int32, n int, at int64) {
		for ; upto[k] < n; upto[k]++ {
			w.st.handled[events[k][upto[k]]] = at
		}
	}
	for _, item := range w.log {
		k, ok := keys[item.key]
		if !ok {
			v.diverged.add("the worker was given %q, which is not in the storm", item.key)
			continue
		}
		own := events[k]
		if item.obj == nil {
			// Which deletion it was: the last one that had been stored by then.
			// Where stamps can't tell, the next one; and where the key was
			// missing before, the same.
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
			v.reordered.add("the worker found event %d of %s after event %d", seq, item.key, own[upto[k]-1])
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
		if upto[k] < len(own) {
			seq := own[len(own)-1]
			if seq <= uint64(s.Initial) && deleted(seq) {
				continue // It was gone before the beginning.
			}
			v.lost.add("event %d (%s) was never worked on", seq, s.Events[seq-1].Key)
		}
	}
}
