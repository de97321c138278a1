package queue_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"watchlab/impls/queue"
)

// TestDifferential runs the same random operations on a variant and on
// client-go's FIFO. It compares each pop, the length, HasSynced and errors. rapid
// prints the seed and shrinks a difference.
//
// It does not compare what the contract leaves undefined. After an operation with
// undefined key order, keys are compared as a set until the queue is empty.
// HasSynced is compared only while upstream counts the initial list correctly.
func TestDifferential(t *testing.T) {
	for _, v := range queue.Variants() {
		if v.Baseline() {
			continue
		}
		for _, shards := range []int{0, 1} {
			if shards == 1 && v.Name != "sharded" {
				continue
			}
			t.Run(fmt.Sprintf("impl=%s/shards=%d", v.Name, shards), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					d := &differ{open: v.Name == "sharded" && shards == 0, always: v.Name == "sharded" && shards == 0}
					for i, opts := range []queue.Options{{}, {Shards: shards}} {
						q, err := queue.New([]string{"clientgo-fifo", v.Name}[i], opts)
						if err != nil {
							t.Fatal(err)
						}
						defer q.Close()
						d.queues[i] = q
					}
					t.Repeat(d.actions())
					d.drain(t)
					d.close(t)
				})
			})
		}
	}
}

// differ runs operations on upstream's queue and a variant.
type differ struct {
	queues [2]queue.Queue
	rv     int
	begun  bool
	// open: the order of queued keys is undefined; always: permanently, because of shards.
	open, always bool
	// unsynced: upstream's HasSynced deviates from the contract.
	unsynced bool
}

func (d *differ) object(t *rapid.T) *v1.Pod {
	d.rv++
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "namespace"),
		Name:            rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"),
		ResourceVersion: strconv.Itoa(d.rv),
	}}
}

func (d *differ) both(t *rapid.T, op string, f func(queue.Queue) error) {
	t.Helper()
	a, b := f(d.queues[0]), f(d.queues[1])
	if (a == nil) != (b == nil) {
		t.Fatalf("%s: upstream returned %v, the variant %v", op, a, b)
	}
}

func (d *differ) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"Add": func(t *rapid.T) {
			o := d.object(t)
			d.begun = true
			d.both(t, "Add", func(q queue.Queue) error { return q.Add(o) })
		},
		"Update": func(t *rapid.T) {
			o := d.object(t)
			d.begun = true
			d.both(t, "Update", func(q queue.Queue) error { return q.Update(o) })
		},
		"Delete": func(t *rapid.T) {
			o := d.object(t)
			d.begun = true
			before := d.queues[0].Len()
			d.both(t, "Delete", func(q queue.Queue) error { return q.Delete(o) })
			if d.queues[0].Len() < before {
				// It may be added again, and upstream counts it until its place is taken.
				d.open, d.unsynced = true, true
			}
		},
		"Nameless": func(t *rapid.T) {
			d.both(t, "Add without a key", func(q queue.Queue) error { return q.Add(struct{}{}) })
		},
		"Replace": func(t *rapid.T) {
			var list []any
			for range rapid.IntRange(0, 6).Draw(t, "listed") {
				list = append(list, d.object(t))
			}
			if d.begun {
				d.unsynced = d.unsynced || !d.queues[0].HasSynced()
			}
			d.begun, d.open = true, true
			d.both(t, "Replace", func(q queue.Queue) error { return q.Replace(slices.Clone(list), strconv.Itoa(d.rv)) })
		},
		"Resync": func(t *rapid.T) {
			d.both(t, "Resync", func(q queue.Queue) error { return q.Resync() })
		},
		"Take": func(t *rapid.T) {
			if d.queues[0].Len() == 0 {
				t.Skip("nothing waits")
			}
			if d.open {
				d.drain(t)
				return
			}
			a, b := take(t, d.queues[0]), take(t, d.queues[1])
			if a != b {
				t.Fatalf("upstream popped %s, the variant %s", a, b)
			}
		},
		"": d.same,
	}
}

// take pops once and returns the result in words.
func take(t *rapid.T, q queue.Queue) (word string) {
	t.Helper()
	if _, err := q.Pop(func(obj any, _ bool) error {
		p := obj.(*v1.Pod)
		word = p.Namespace + "/" + p.Name + "@" + p.ResourceVersion
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return word
}

// drain pops all keys from both queues and compares the sets.
func (d *differ) drain(t *rapid.T) {
	t.Helper()
	var words [2][]string
	for i, q := range d.queues {
		for q.Len() > 0 {
			words[i] = append(words[i], take(t, q))
		}
		slices.Sort(words[i])
	}
	if !slices.Equal(words[0], words[1]) {
		t.Fatalf("upstream popped %v, the variant %v", words[0], words[1])
	}
	// Upstream keeps the places of deleted keys until it comes to them.
	d.open = d.open && d.unsynced || d.always
}

func (d *differ) same(t *rapid.T) {
	t.Helper()
	if a, b := d.queues[0].Len(), d.queues[1].Len(); a != b {
		t.Fatalf("upstream has length %d, the variant %d", a, b)
	}
	if a, b := d.queues[0].HasSynced(), d.queues[1].HasSynced(); a != b && !d.unsynced {
		t.Fatalf("upstream has HasSynced %t, the variant %t", a, b)
	}
}

// close closes both, drained.
func (d *differ) close(t *rapid.T) {
	t.Helper()
	d.same(t)
	d.both(t, "Pop after Close", func(q queue.Queue) error {
		q.Close()
		_, err := q.Pop(func(any, bool) error { return nil })
		return err
	})
}
