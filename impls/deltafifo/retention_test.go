package deltafifo

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// holder is a queue with a consumer that stores what it pops.
type holder struct {
	t      *testing.T
	name   string
	opts   Options
	queue  Queue
	batch  bool
	store  cache.Store
	made   []weak.Pointer[metav1.ObjectMeta] // the objects of all calls
	popped [][]cache.Delta
}

// eachHolder runs a test with each variant, delivery, hand-over, compaction and path.
func eachHolder(t *testing.T, f func(h *holder)) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Calls without room fail.
	each(t, func(t *testing.T, v Variant, o Options) {
		for i := range 32 {
			pick := func(bit int) bool { return i>>bit&1 == 1 }
			h := &holder{t: t, opts: o, batch: pick(0), store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
			h.opts.Context = ctx
			if pick(1) {
				h.opts.KnownObjects = h.store
			}
			if pick(2) {
				h.opts.HandOver = impls.Lent
			}
			if pick(3) {
				h.opts.Compaction = Latest
			}
			if pick(4) {
				h.opts.Capacity = 7
			}
			h.name = fmt.Sprintf("batch=%t known=%t lent=%t latest=%t bounded=%t", pick(0), pick(1), pick(2), pick(3), pick(4))
			var err error
			if h.queue, err = v.New(h.opts); err != nil {
				continue
			}
			if _, ok := h.queue.(BatchQueue); ok || !h.batch {
				f(h)
			}
			h.queue.Close()
		}
	})
}

func (h *holder) pop() {
	single := func(obj any, initial bool) error { return h.process(obj.(cache.Deltas), initial) }
	var err error
	if h.batch {
		err = h.queue.(BatchQueue).PopBatch(h.process, single)
	} else {
		_, err = h.queue.Pop(single)
	}
	mustDo(h.t, err)
}

func (h *holder) process(deltas []cache.Delta, _ bool) (err error) {
	if h.opts.HandOver == impls.Lent {
		deltas = slices.Clone(deltas)
	}
	h.popped = append(h.popped, deltas)
	for _, d := range deltas {
		switch o := d.Object.(type) {
		case cache.ReplacedAllInfo:
			err = h.store.Replace(o.Objects, "")
		case *metav1.ObjectMeta:
			if d.Type == cache.Deleted {
				err = h.store.Delete(o)
			} else {
				err = h.store.Add(o)
			}
		}
	}
	return err
}

// run makes calls, of which some may fail.
func (h *holder) run(script string) {
	for call := range strings.SplitSeq(script, ", ") {
		words := strings.Fields(call)
		objects := make([]any, len(words)-1)
		for i, name := range words[1:] {
			obj := named("%s", name)
			h.made = append(h.made, weak.Make(obj))
			objects[i] = obj
		}
		switch words[0] {
		case "add":
			_ = h.queue.Add(objects[0])
		case "update":
			_ = h.queue.Update(objects[0])
		case "delete":
			_ = h.queue.Delete(objects[0])
		case "bury":
			_ = h.queue.Delete(cache.DeletedFinalStateUnknown{Key: words[1], Obj: objects[0]})
		case "replace":
			_ = h.queue.Replace(objects, "1")
		case "resync":
			_ = h.queue.Resync()
		case "bookmark":
			if b, ok := h.queue.(cache.ReflectorBookmarkStore); ok {
				_ = b.Bookmark("1")
			}
		case "close":
			h.queue.Close()
		case "drain":
			for h.queue.Len() > 0 {
				h.pop()
			}
		}
	}
}

// collected fails where the queue holds an object after its next call.
func (h *holder) collected(objects []weak.Pointer[metav1.ObjectMeta], when string) {
	h.t.Helper()
	// The collector scans the frame of a goroutine that it stopped anywhere conservatively, so it may
	// keep for once what the channel's goroutine had in hand.
	for range 20 {
		_ = h.queue.Len()
		runtime.GC()
		if !slices.ContainsFunc(objects, func(p weak.Pointer[metav1.ObjectMeta]) bool { return p.Value() != nil }) {
			break
		}
	}
	for i, p := range objects {
		if p := p.Value(); p != nil {
			h.t.Errorf("%s: %s: the queue holds object %d, %s", h.name, when, i, p.Name)
		}
	}
	runtime.KeepAlive(h.queue)
}

// TestNothingHeld: a queue holds no object that it has handed over, dropped or refused, however it came.
func TestNothingHeld(t *testing.T) {
	for _, script := range []string{
		"add a, update b, update b, delete c, drain",
		"add a, add b, drain, delete a, bury b, delete b, drain",
		"add a, add b, drain, update a, replace b c, drain, replace, drain",
		"replace a b c, drain, resync, bookmark, drain, resync, update a, resync, drain",
		"delete unknown, add a, delete a, delete a, drain",
		"add a, update a, update a, update a, drain",
		"add a, update b, close, add c, update d, delete a, replace e f, resync, bookmark, drain",
		"add a, add b, add c, add d, add e, add f, add g, add h, update b, delete c, replace d e, resync, drain",
	} {
		eachHolder(t, func(h *holder) {
			h.run(script)
			h.popped = nil
			mustDo(h.t, h.store.Replace(nil, ""))
			h.collected(h.made, script)
		})
	}
}

// TestOwnDeltasOnly: the deltas of a pop hold nothing of another pop, and the queue nothing of a pop
// while it has other events.
func TestOwnDeltasOnly(t *testing.T) {
	eachHolder(t, func(h *holder) {
		weakly := func(deltas []cache.Delta) (objects []weak.Pointer[metav1.ObjectMeta]) {
			for _, d := range deltas {
				objects = append(objects, weak.Make(d.Object.(*metav1.ObjectMeta)))
			}
			return objects
		}
		h.run("add a, add b, add c, update a")
		h.pop()
		h.run("update d, update d")
		h.pop()
		first, second := weakly(h.popped[0]), weakly(h.popped[1])
		h.popped = slices.Clone(h.popped[:1])
		mustDo(h.t, h.store.Replace(nil, ""))
		h.collected(second, "with deltas of an earlier pop and queued events")
		h.popped = nil
		h.collected(first, "with queued events")
	})
}
