package deltafifo_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// upstreamOf names the baseline with the same behavior, by delivery and KnownObjects.
func upstreamOf(d deltafifo.Delivery, known bool) string {
	switch {
	case d == deltafifo.PerKey:
		return "clientgo-deltafifo"
	case known:
		return "clientgo-realfifo"
	default:
		return "clientgo-realfifo-batch"
	}
}

// TestDifferential runs the same random operations on a variant and on
// client-go's queue. It compares each pop, the length, HasSynced, errors, and the
// final store of the consumer. rapid prints the seed and shrinks a difference.
func TestDifferential(t *testing.T) {
	for _, v := range deltafifo.Variants() {
		if v.Baseline() {
			continue
		}
		for _, g := range v.Guarantees {
			for _, known := range []bool{false, true} {
				delivery := deltafifo.Delivery(g.Mode)
				upstream := upstreamOf(delivery, known)
				t.Run(fmt.Sprintf("impl=%s/delivery=%s/known=%t", v.Name, delivery, known), func(t *testing.T) {
					rapid.Check(t, func(t *rapid.T) {
						// Only where upstream has that path too.
						batch := upstream == "clientgo-realfifo-batch" && rapid.Bool().Draw(t, "batch")
						opts := deltafifo.Options{
							Delivery: delivery,
							HandOver: rapid.SampledFrom([]impls.Ownership{impls.Owned, impls.Lent}).Draw(t, "hand-over"),
						}
						if g.Bounded {
							// More than ever waits: upstream has no room to wait for.
							opts.Capacity = rapid.SampledFrom([]int{0, 1024}).Draw(t, "capacity")
						}
						if g.Consumers == impls.ManyConsumers {
							opts.Shards = 1 // With which keys have upstream's order.
						}
						pair := [2]*consumer{
							newConsumer(t, upstream, deltafifo.Options{Delivery: delivery}, known, batch),
							newConsumer(t, v.Name, opts, known, batch),
						}
						play(t, pair)
					})
				})
			}
		}
	}
}

// play draws operations until rapid has enough, and compares after each.
func play(t *rapid.T, pair [2]*consumer) {
	rv := 0
	object := func(t *rapid.T) *v1.Pod {
		rv++
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace:       rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "namespace"),
			Name:            rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"),
			ResourceVersion: strconv.Itoa(rv),
		}}
	}
	both := func(t *rapid.T, op string, f func(*consumer) error) {
		a, b := f(pair[0]), f(pair[1])
		if (a == nil) != (b == nil) {
			t.Fatalf("%s: upstream returned %v, the variant %v", op, a, b)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"Add": func(t *rapid.T) {
			o := object(t)
			both(t, "Add", func(c *consumer) error { return c.queue.Add(o) })
		},
		"Update": func(t *rapid.T) {
			o := object(t)
			both(t, "Update", func(c *consumer) error { return c.queue.Update(o) })
		},
		"Delete": func(t *rapid.T) {
			var o any = object(t)
			if rapid.Bool().Draw(t, "tombstone") {
				key, err := cache.MetaNamespaceKeyFunc(o)
				if err != nil {
					t.Fatal(err)
				}
				o = cache.DeletedFinalStateUnknown{Key: key, Obj: o}
			}
			both(t, "Delete", func(c *consumer) error { return c.queue.Delete(o) })
		},
		"Nameless": func(t *rapid.T) {
			both(t, "Add without a key", func(c *consumer) error { return c.queue.Add(struct{}{}) })
		},
		"Replace": func(t *rapid.T) {
			byKey := map[string]any{}
			for range rapid.IntRange(0, 6).Draw(t, "listed") {
				o := object(t)
				byKey[o.Namespace+"/"+o.Name] = o
			}
			list := make([]any, 0, len(byKey))
			for _, k := range slices.Sorted(maps.Keys(byKey)) {
				list = append(list, byKey[k])
			}
			both(t, "Replace", func(c *consumer) error { return c.queue.Replace(slices.Clone(list), strconv.Itoa(rv)) })
		},
		"Bookmark": func(t *rapid.T) {
			if !pair[0].queue.HasSynced() {
				t.Skip("upstream counts it for the initial list")
			}
			both(t, "Bookmark", func(c *consumer) error {
				if q, ok := c.queue.(cache.ReflectorBookmarkStore); ok {
					return q.Bookmark(strconv.Itoa(rv))
				}
				return nil
			})
		},
		"Resync": func(t *rapid.T) {
			both(t, "Resync", func(c *consumer) error { return c.queue.Resync() })
		},
		"Take": func(t *rapid.T) {
			if pair[0].queue.Len() == 0 {
				t.Skip("nothing waits")
			}
			both(t, "take", (*consumer).take)
		},
		"": func(t *rapid.T) {
			pair[0].same(t, pair[1])
		},
	})
	for pair[0].queue.Len() > 0 && pair[1].queue.Len() > 0 {
		both(t, "take", (*consumer).take)
	}
	pair[0].same(t, pair[1])
	for _, c := range pair {
		c.queue.Close()
	}
}

// consumer pops into a store and records the pops.
type consumer struct {
	queue    deltafifo.Queue
	delivery deltafifo.Delivery
	batch    bool
	store    cache.Store
	// seen has the pops in words.
	seen []string
	// compared is the number of pops that were compared.
	compared int
}

func newConsumer(t *rapid.T, impl string, opts deltafifo.Options, known, batch bool) *consumer {
	c := &consumer{delivery: opts.Delivery, batch: batch, store: cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)}
	if known {
		opts.KnownObjects = sorted{c.store}
	}
	q, err := deltafifo.New(impl, opts)
	if err != nil {
		t.Fatal(err)
	}
	c.queue = q
	return c
}

// sorted lists keys in order, so that both queues get the same list.
type sorted struct{ cache.Store }

func (s sorted) ListKeys() []string { return slices.Sorted(slices.Values(s.Store.ListKeys())) }

func (c *consumer) take() error {
	single := func(obj any, initial bool) error { return c.process(obj.(cache.Deltas), initial) }
	if q, ok := c.queue.(deltafifo.BatchQueue); ok && c.batch {
		return q.PopBatch(c.process, single)
	}
	_, err := c.queue.Pop(single)
	return err
}

func (c *consumer) process(deltas []cache.Delta, initial bool) error {
	words := make([]string, 0, len(deltas))
	for _, d := range deltas {
		words = append(words, word(d))
		if err := c.apply(d); err != nil {
			return err
		}
	}
	c.seen = append(c.seen, fmt.Sprintf("%v initial=%t", words, initial))
	return nil
}

func (c *consumer) apply(d cache.Delta) error {
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		return c.store.Replace(o.Objects, o.ResourceVersion)
	case cache.SyncAllInfo, cache.BookmarkInfo:
		return nil
	}
	if d.Type == cache.Deleted {
		return c.store.Delete(d.Object)
	}
	return c.store.Add(d.Object)
}

func word(d cache.Delta) string {
	switch o := d.Object.(type) {
	case cache.DeletedFinalStateUnknown:
		return fmt.Sprintf("%s %s of %v", d.Type, o.Key, version(o.Obj))
	case cache.ReplacedAllInfo:
		versions := make([]string, 0, len(o.Objects))
		for _, obj := range o.Objects {
			versions = append(versions, version(obj))
		}
		return fmt.Sprintf("%s rv=%s %v", d.Type, o.ResourceVersion, versions)
	case cache.BookmarkInfo:
		return fmt.Sprintf("%s rv=%s", d.Type, o.ResourceVersion)
	case *v1.Pod:
		return fmt.Sprintf("%s %s/%s@%s", d.Type, o.Namespace, o.Name, o.ResourceVersion)
	default:
		return string(d.Type)
	}
}

func version(obj any) string {
	switch o := obj.(type) {
	case *v1.Pod:
		return o.ResourceVersion
	case cache.DeletedFinalStateUnknown:
		return version(o.Obj)
	default:
		return "none"
	}
}

// same compares two consumers. Upstream's DeltaFIFO creates tombstones in map order. So with
// per-key delivery it compares final states and single pops, but not the order between keys.
func (c *consumer) same(t *rapid.T, other *consumer) {
	t.Helper()
	if a, b := c.queue.Len(), other.queue.Len(); a != b {
		t.Fatalf("upstream has length %d, the variant %d", a, b)
	}
	if a, b := c.queue.HasSynced(), other.queue.HasSynced(); a != b {
		t.Fatalf("upstream has HasSynced %t, the variant %t", a, b)
	}
	a, b := c.seen, other.seen
	if c.delivery == deltafifo.PerKey {
		if c.queue.Len() > 0 {
			return
		}
		a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
		c.compared = 0
	}
	if !slices.Equal(a[c.compared:], b[min(c.compared, len(b)):]) {
		t.Fatalf("upstream handed over\n  %v\nthe variant\n  %v", a, b)
	}
	c.compared = len(a)
	if a, b := contents(c.store), contents(other.store); !slices.Equal(a, b) {
		t.Fatalf("upstream's consumer holds\n  %v\nthe variant's\n  %v", a, b)
	}
}

func contents(s cache.Store) []string {
	out := make([]string, 0, len(s.ListKeys()))
	for _, obj := range s.List() {
		p := obj.(*v1.Pod)
		out = append(out, fmt.Sprintf("%s/%s@%s", p.Namespace, p.Name, p.ResourceVersion))
	}
	slices.Sort(out)
	return out
}
