package round

import (
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

// handler records and checks each event. The informer calls it from one goroutine, which closes
// listed and done: the fields are read after that.
type handler struct {
	events  []storm.Event
	seen    []bool   // by sequence number
	newest  []uint64 // by key index
	initial int
	handled int
	broken  error         // of the first event that broke an invariant
	listed  chan struct{} // closed after the initial list
	done    chan struct{} // closed after the last event
}

func newHandler(s *storm.Storm) handler {
	return handler{
		events: s.Events, seen: make([]bool, len(s.Events)+1), newest: make([]uint64, s.Keys), initial: s.Initial,
		listed: make(chan struct{}), done: make(chan struct{}),
	}
}

var _ cache.ResourceEventHandler = &handler{}

// OnAdd implements [cache.ResourceEventHandler].
func (h *handler) OnAdd(obj any, _ bool) { h.handle(obj, watch.Added) }

// OnUpdate implements [cache.ResourceEventHandler].
func (h *handler) OnUpdate(_, obj any) { h.handle(obj, watch.Modified) }

// OnDelete implements [cache.ResourceEventHandler]. The storms have no relist, so no tombstone
// of one arrives.
func (h *handler) OnDelete(obj any) { h.handle(obj, watch.Deleted) }

// handle is O(1). An event that arrives twice, after a newer one of its key, or as another type is
// broken. A missing event keeps done open.
func (h *handler) handle(obj any, as watch.EventType) {
	seq := sequence(obj)
	if seq == 0 || seq > uint64(len(h.events)) {
		h.fail(lab.ErrDiverged, "a %T that the storm does not have", obj)
		return
	}
	e := &h.events[seq-1]
	switch newest := &h.newest[e.KeyIndex]; {
	case h.seen[seq]:
		h.fail(lab.ErrDuplicated, "event %d", seq)
		return
	case seq < *newest:
		h.fail(lab.ErrReordered, "event %d after event %d of its key", seq, *newest)
	case as != e.Type:
		h.fail(lab.ErrDiverged, "event %d is %s and arrived as %s", seq, e.Type, as)
	default:
		*newest = seq
	}
	h.seen[seq] = true
	h.handled++
	if h.handled == h.initial {
		close(h.listed)
	}
	if h.handled == len(h.events) {
		close(h.done)
	}
}

func (h *handler) fail(invariant error, format string, args ...any) {
	if h.broken == nil {
		h.broken = errors.Join(invariant, fmt.Errorf(format, args...))
	}
}

// sequence returns the number of an object's event; 0 if it has none.
func sequence(obj any) uint64 {
	o, ok := obj.(metav1.Object)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
