package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
)

// oneOf draws a value.
func oneOf[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }

// keyed is an instance of family deltafifo or queue.
type keyed struct {
	*episode
	cache.Queue
	// store is the consumer's; nil if the family delivers no deletions.
	store cache.Store
}

func (q *keyed) Close() { q.Queue.Close() }

func (q *keyed) waiting() int { return q.Queue.(interface{ Len() int }).Len() }

func (k *key) object() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: k.name, ResourceVersion: strconv.Itoa(k.version)}
}

func (q *keyed) send(k *key, _ *rand.Rand) error {
	switch {
	case k.deleted:
		return q.Delete(k.object())
	case k.version == 1:
		return q.Add(k.object())
	}
	return q.Update(k.object())
}

func (q *keyed) list(_ int, rng *rand.Rand) error {
	switch rng.IntN(3) {
	case 0:
		return q.Resync()
	case 1:
		if b, ok := q.Queue.(cache.ReflectorBookmarkStore); ok {
			return b.Bookmark("1")
		}
	}
	var all []any
	for _, keys := range q.keys {
		for _, k := range keys {
			if !k.deleted {
				all = append(all, k.object())
			}
		}
	}
	return q.Replace(all, "1")
}

// receive pops with Pop or PopBatch at random.
func (q *keyed) receive(rng *rand.Rand, handle func([]change) error) error {
	deltas := func(deltas []cache.Delta, _ bool) error { return q.process(deltas, handle) }
	single := func(obj any, _ bool) error {
		if d, ok := obj.(cache.Deltas); ok {
			return deltas(d, false)
		}
		return deltas([]cache.Delta{{Type: cache.Updated, Object: obj}}, false)
	}
	if b, ok := q.Queue.(deltafifo.BatchQueue); ok && rng.IntN(4) > 0 {
		return b.PopBatch(deltas, single)
	}
	_, err := q.Pop(single)
	return err
}

func (q *keyed) process(deltas []cache.Delta, handle func([]change) error) error {
	var changes []change
	for _, d := range deltas {
		switch o := d.Object.(type) {
		case cache.ReplacedAllInfo:
			for _, obj := range o.Objects {
				changes = append(changes, q.change(obj.(*metav1.ObjectMeta), cache.Replaced))
			}
		case *metav1.ObjectMeta:
			changes = append(changes, q.change(o, d.Type))
		case cache.DeletedFinalStateUnknown:
			c := change{key: o.Key, deleted: true, buried: true}
			if obj, ok := o.Obj.(*metav1.ObjectMeta); ok {
				c.version = q.change(obj, d.Type).version
			}
			changes = append(changes, c)
		}
	}
	if q.store != nil {
		q.mu.Lock()
		for _, d := range deltas {
			switch o := d.Object.(type) {
			case cache.ReplacedAllInfo:
				_ = q.store.Replace(o.Objects, o.ResourceVersion)
			case *metav1.ObjectMeta, cache.DeletedFinalStateUnknown:
				if d.Type == cache.Deleted {
					_ = q.store.Delete(o)
				} else {
					_ = q.store.Update(o)
				}
			}
		}
		q.mu.Unlock()
	}
	return handle(changes)
}

// change is that of an object. The version of one that was listed was told before, or may have been where no
// deletion is delivered.
func (q *keyed) change(o *metav1.ObjectMeta, of cache.DeltaType) change {
	version, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		panic(err)
	}
	again := of == cache.Replaced || of == cache.Sync || !q.deletions
	return change{key: o.Name, version: version, deleted: of == cache.Deleted, again: again}
}

func consumersOf(g impls.Guarantees, rng *rand.Rand) int {
	if g.Consumers == impls.ManyConsumers {
		return 1 + rng.IntN(4)
	}
	return 1 + rng.IntN(2) // Two take turns.
}

// keyedCell is a mode of a variant of family deltafifo or queue.
func keyedCell(name string, g impls.Guarantees, open func(*rand.Rand, *keyed) (q cache.Queue, options string, err error)) cell {
	return cell{name, func(t *testing.T, rng *rand.Rand, e *episode) string {
		k := &keyed{episode: e}
		e.instance, e.versioned, e.drains = k, true, true
		e.lists, e.slow, e.consumers = 1000, e.pick(2000, 1_000_000), consumersOf(g, rng)
		q, options, err := open(rng, k)
		if err != nil {
			t.Fatalf("New with %s: %v", options, err)
		}
		k.Queue = q
		return options
	}}
}

func deltafifoCells() (cells []cell) {
	for _, v := range deltafifo.Variants() {
		if v.Baseline() {
			continue
		}
		for _, g := range v.Guarantees {
			cells = append(cells, keyedCell("deltafifo/"+v.Name+"/"+g.Mode, g, func(rng *rand.Rand, k *keyed) (cache.Queue, string, error) {
				o := deltafifo.Options{
					Delivery: deltafifo.Delivery(g.Mode), BatchSize: oneOf(rng, 0, 3, 100), HandOver: oneOf(rng, impls.Owned, impls.Lent),
				}
				k.store = cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
				if o.Delivery == deltafifo.PerKey || rng.IntN(2) == 0 {
					o.KnownObjects = k.store
				}
				if g.Bounded {
					o.Capacity = oneOf(rng, 0, 1, 7, 1024)
				}
				k.deletions, k.exact = true, true
				q, err := v.New(o)
				return q, fmt.Sprintf("capacity %d, hand-over %s, batch size %d, known %t",
					o.Capacity, o.HandOver, o.BatchSize, o.KnownObjects != nil), err
			}))
		}
	}
	return cells
}

func queueCells() (cells []cell) {
	for _, v := range queue.Variants() {
		if g := v.Guarantees[0]; !v.Baseline() {
			cells = append(cells, keyedCell("queue/"+v.Name, g, func(rng *rand.Rand, _ *keyed) (cache.Queue, string, error) {
				o := queue.Options{Shards: oneOf(rng, 0, 1)}
				q, err := v.New(o)
				return q, fmt.Sprintf("shards %d", o.Shards), err
			}))
		}
	}
	return cells
}

// node is an instance of family merge: each producer is a source, every other one with a channel.
type node struct {
	*episode
	merge.Merger
	// closed is closed before the merger: after that nobody receives from the channels.
	closed   chan struct{}
	channels [producers]chan<- merge.PodUpdate
	// pods are what the sources have, whose memory the receiver must not reach.
	pods [producers]map[string]*v1.Pod
}

func mergeCells() (cells []cell) {
	for _, v := range merge.Variants() {
		if v.Baseline() {
			continue
		}
		cells = append(cells, cell{"merge/" + v.Name, func(t *testing.T, rng *rand.Rand, e *episode) string {
			o := merge.Options{Capacity: oneOf(rng, 1, 7, 50)}
			options := fmt.Sprintf("capacity %d", o.Capacity)
			merger, err := v.New(o)
			if err != nil {
				t.Fatalf("New with %s: %v", options, err)
			}
			n := &node{episode: e, Merger: merger, closed: make(chan struct{})}
			for p := range producers {
				n.pods[p] = map[string]*v1.Pod{}
				if p%2 == 0 {
					if n.channels[p], err = merger.Channel(t.Context(), fmt.Sprint("p", p)); err != nil {
						t.Fatal(err)
					}
				}
			}
			e.instance, e.deletions, e.consumers = n, true, 1
			e.lists, e.slow = e.pick(3, 1000), e.pick(1000, 1_000_000)
			return options
		}})
	}
	return cells
}

func (n *node) waiting() int { return 0 }

func (n *node) Close() {
	close(n.closed)
	n.Merger.Close()
}

func (n *node) send(k *key, rng *rand.Rand) error {
	pods := n.pods[k.producer]
	if k.deleted {
		pod := pods[k.name]
		delete(pods, k.name)
		return n.tell(k.producer, merge.PodUpdate{Op: merge.REMOVE, Pods: []*v1.Pod{pod}})
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: k.name, UID: types.UID(k.name)}}
	if have := pods[k.name]; have != nil {
		*pod = *have // All that follows replaces, and changes nothing in place.
	}
	pod.ResourceVersion = strconv.Itoa(k.version)
	pod.Status.Message = pod.ResourceVersion
	if rng.IntN(3) > 0 {
		pod.Labels = map[string]string{"change": pod.ResourceVersion}
	}
	pods[k.name] = pod
	return n.tell(k.producer, merge.PodUpdate{Op: oneOf(rng, merge.ADD, merge.UPDATE), Pods: []*v1.Pod{pod}})
}

// list tells the complete state of a source in any order, sometimes with one pod less.
func (n *node) list(p int, rng *rand.Rand) error {
	if k := n.keys[p][rng.IntN(keysEach)]; !k.deleted && rng.IntN(8) == 0 {
		k.deleted = true
		delete(n.pods[p], k.name)
	}
	u := merge.PodUpdate{Op: merge.SET}
	for _, pod := range n.pods[p] {
		u.Pods = append(u.Pods, pod)
	}
	return n.tell(p, u)
}

func (n *node) tell(p int, u merge.PodUpdate) error {
	if n.channels[p] == nil {
		return n.Merge(context.Background(), fmt.Sprint("p", p), u)
	}
	select {
	case n.channels[p] <- u:
		return nil
	case <-n.closed:
		return merge.ErrClosed
	}
}

func (n *node) receive(_ *rand.Rand, handle func([]change) error) error {
	u, ok := <-n.Updates()
	if !ok {
		return merge.ErrClosed
	}
	var changes []change
	for _, pod := range u.Pods {
		version, err := strconv.Atoi(pod.Status.Message)
		if err != nil {
			return fmt.Errorf("%s: %s has a status that nobody told: %w", u.Source, pod.UID, err)
		}
		changes = append(changes, change{key: pod.Name, version: version, deleted: u.Op == merge.REMOVE})
		pod.Status.Message, pod.Labels = "scribble", nil // The receiver may write to them.
	}
	return handle(changes)
}
