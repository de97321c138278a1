// Package deltafifotest is the conformance suite of the deltafifo family. Every
// variant passes it, upstream's own included: where a baseline fails, the suite
// is wrong. A check is named after the guarantee it holds the variant to; see
// the package comment of watchlab/impls/deltafifo for what they mean.
package deltafifotest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// Run holds a variant to the family's contract, in each of its modes, with
// KnownObjects and without, on each path on which it can be taken from.
func Run(t *testing.T, v deltafifo.Variant) {
	for _, g := range v.Guarantees {
		for _, known := range []bool{false, true} {
			b := bed{variant: v, guarantees: g, delivery: deltafifo.Delivery(g.Mode), known: known}
			if _, err := v.New(deltafifo.Options{Delivery: b.delivery, KnownObjects: b.store()}); err != nil {
				if !known || !errors.Is(err, impls.ErrOptions) {
					t.Errorf("delivery=%s: %v", g.Mode, err)
				}
				continue // The variant works without KnownObjects only.
			}
			t.Run(fmt.Sprintf("delivery=%s/known=%t", g.Mode, known), func(t *testing.T) {
				b.run(t)
			})
		}
	}
}

func (b bed) run(t *testing.T) {
	_, batched := b.new(t).queue.(deltafifo.BatchQueue)
	if want := map[bool]string{true: "cache.QueueWithBatch", false: "cache.Queue"}[batched]; b.guarantees.DropIn != want {
		t.Errorf("guarantees say that it drops in as %q, it is a %s", b.guarantees.DropIn, want)
	}
	paths := []path{byPop}
	if batched {
		paths = append(paths, byBatch)
	}
	for _, p := range paths {
		b.path = p
		t.Run("path="+string(p), func(t *testing.T) {
			for _, c := range checks {
				if c.applies == nil || c.applies(b) {
					t.Run(c.name, func(t *testing.T) { c.run(t, b) })
				}
			}
		})
	}
}

// check is one guarantee and the test that holds a variant to it.
type check struct {
	name string
	// applies is nil where the guarantee is for every arrangement.
	applies func(bed) bool
	run     func(*testing.T, bed)
}

func inOrder(b bed) bool  { return b.delivery == deltafifo.InOrder }
func perKey(b bed) bool   { return b.delivery == deltafifo.PerKey }
func unlocked(b bed) bool { return b.guarantees.Unlocked && !(b.upstream() && b.known) }
func known(b bed) bool    { return b.known }
func atomic(b bed) bool   { return inOrder(b) && !b.known }
func batched(b bed) bool  { return b.path == byBatch }

var checks = slices.Concat(orderChecks, lifecycleChecks, listChecks)

// bed is one arrangement that the checks run in.
type bed struct {
	variant    deltafifo.Variant
	guarantees impls.Guarantees
	delivery   deltafifo.Delivery
	known      bool
	path       path
}

// path is how the consumer takes.
type path string

const (
	byPop   path = "Pop"
	byBatch path = "PopBatch"
)

func (b bed) upstream() bool { return b.variant.Baseline() }

func (b bed) store() cache.KeyListerGetter {
	if b.known {
		return newStore()
	}
	return nil
}

// rig is a queue under test with the store that its consumer fills.
type rig struct {
	bed
	t     *testing.T
	queue deltafifo.Queue
	store *store
	// taken is what the consumer was handed, hand-over by hand-over.
	taken []handover
	// during runs inside process, before the deltas are applied.
	during func(deltas []cache.Delta)
}

// handover is one call of process.
type handover struct {
	deltas  []cache.Delta
	initial bool
	batch   bool
}

func (b bed) new(t *testing.T, set ...func(*deltafifo.Options)) *rig {
	t.Helper()
	r := &rig{bed: b, t: t, store: newStore()}
	opts := deltafifo.Options{Delivery: b.delivery}
	if b.known {
		opts.KnownObjects = r.store
	}
	for _, s := range set {
		s(&opts)
	}
	q, err := b.variant.New(opts)
	if err != nil {
		t.Fatalf("New(%+v): %v", opts, err)
	}
	r.queue = q
	return r
}

// process is the consumer: it applies what it gets to the store.
func (r *rig) process(h handover) error {
	if r.during != nil {
		r.during(h.deltas)
	}
	r.taken = append(r.taken, h)
	for _, d := range h.deltas {
		r.store.apply(d)
	}
	return nil
}

// take takes once, on the rig's path, and returns what take returned.
func (r *rig) take() error {
	single := func(obj any, initial bool) error {
		deltas, ok := obj.(cache.Deltas)
		if !ok {
			return fmt.Errorf("process was handed a %T, not cache.Deltas", obj)
		}
		return r.process(handover{deltas: deltas, initial: initial})
	}
	if r.path == byPop {
		_, err := r.queue.Pop(single)
		return err
	}
	return r.queue.(deltafifo.BatchQueue).PopBatch(func(deltas []cache.Delta, initial bool) error {
		return r.process(handover{deltas: deltas, initial: initial, batch: true})
	}, single)
}

// drain takes until nothing waits and returns the deltas taken meanwhile, in
// order.
func (r *rig) drain() []cache.Delta {
	r.t.Helper()
	from := len(r.taken)
	for r.queue.Len() > 0 {
		if err := r.take(); err != nil {
			r.t.Fatalf("take: %v", err)
		}
	}
	var out []cache.Delta
	for _, h := range r.taken[from:] {
		out = append(out, h.deltas...)
	}
	return out
}

// expect drains and compares with what is wanted, in order.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	if got := words(r.drain()); !slices.Equal(got, want) {
		r.t.Errorf("handed over\n  %v\nwant\n  %v", got, want)
	}
}

func (r *rig) do(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// words writes deltas as "Updated a@3"; a tombstone as "Deleted a@3†".
func words(deltas []cache.Delta) []string {
	out := make([]string, 0, len(deltas))
	for _, d := range deltas {
		out = append(out, word(d))
	}
	return out
}

func word(d cache.Delta) string {
	switch o := d.Object.(type) {
	case cache.DeletedFinalStateUnknown:
		if o.Obj == nil {
			return fmt.Sprintf("%s %s†", d.Type, o.Key)
		}
		return fmt.Sprintf("%s %s@%s†", d.Type, o.Key, o.Obj.(*v1.Pod).ResourceVersion)
	case *v1.Pod:
		return fmt.Sprintf("%s %s@%s", d.Type, o.Name, o.ResourceVersion)
	case cache.ReplacedAllInfo:
		names := make([]string, 0, len(o.Objects))
		for _, obj := range o.Objects {
			names = append(names, obj.(*v1.Pod).Name)
		}
		slices.Sort(names)
		return fmt.Sprintf("%s %v rv=%s", d.Type, names, o.ResourceVersion)
	case cache.BookmarkInfo:
		return fmt.Sprintf("%s rv=%s", d.Type, o.ResourceVersion)
	default:
		return string(d.Type)
	}
}

// pod makes version rv of an object. It has no namespace, so that its key is
// its name.
func pod(name string, rv int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(rv)}}
}

func version(obj any) int {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	rv, err := strconv.Atoi(obj.(*v1.Pod).ResourceVersion)
	if err != nil {
		panic(err)
	}
	return rv
}

// nameless has no metadata, hence no key.
type nameless struct{}

// store is what the consumer knows: a map, listed in order of its keys so that
// runs repeat.
type store struct {
	mu   sync.Mutex
	objs map[string]any
	// bookmarks are the versions that bookmarks told.
	bookmarks []string
}

func newStore() *store { return &store{objs: map[string]any{}} }

func (s *store) ListKeys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.objs))
	for k := range s.objs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (s *store) GetByKey(key string) (any, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.objs[key]
	return obj, ok, nil
}

// apply does what an informer does with a delta.
func (s *store) apply(d cache.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		clear(s.objs)
		for _, obj := range o.Objects {
			s.objs[obj.(*v1.Pod).Name] = obj
		}
	case cache.SyncAllInfo:
	case cache.BookmarkInfo:
		s.bookmarks = append(s.bookmarks, o.ResourceVersion)
	case cache.DeletedFinalStateUnknown:
		delete(s.objs, o.Key)
	case *v1.Pod:
		if d.Type == cache.Deleted {
			delete(s.objs, o.Name)
		} else {
			s.objs[o.Name] = o
		}
	}
}

// state returns name@version of all objects, in order of names.
func (s *store) state() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.objs))
	for _, obj := range s.objs {
		p := obj.(*v1.Pod)
		out = append(out, p.Name+"@"+p.ResourceVersion)
	}
	slices.Sort(out)
	return out
}
