package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
)

// inMemory is an informer with readers.
func inMemory(of, queue string, names ...string) pipeline.Config {
	return pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: "informer", Impls: names, Modes: []string{string(deltafifo.InOrder)},
		Store: of, Workqueue: queue, Events: 600, Readers: 2, Paces: rates(0, 2000),
	}
}

// TestStores: with each store and each workqueue nothing is lost or reordered while readers list.
func TestStores(t *testing.T) {
	t.Parallel()
	var specs []pipeline.Config
	for _, v := range store.Variants() {
		if !strings.HasPrefix(v.Name, planted) {
			perKey := inMemory(v.Name, "", "cond")
			perKey.Modes, perKey.Paces = []string{string(deltafifo.PerKey)}, rates(2000)
			specs = append(specs, inMemory(v.Name, "", "ring"), perKey)
		}
	}
	for _, v := range workqueue.Variants() {
		specs = append(specs, inMemory("", v.Name, "ring"))
	}
	for _, spec := range specs {
		for _, cl := range comparisons(t, spec) {
			t.Run(name(cl), func(t *testing.T) {
				t.Parallel()
				if cl.Label("store") != spec.Store || cl.Label("workqueue") != spec.Workqueue {
					t.Error("labels")
				}
				res := measure(t, cl)
				// As fast as possible the storm may be over before a reader has its first turn.
				if l, ok := res.At(observe.Listed); (!ok || l.Count == 0) && cl.Label("rate") != "max" {
					t.Errorf("%s: %v, %+v", observe.Listed, ok, l)
				}
			})
		}
	}
}

// forgetful loses each second write of a batch, and additions outside one: queues decide which they use.
type forgetful struct {
	store.Store
	n *int
}

func (s forgetful) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	kept := slices.DeleteFunc(slices.Clone(txns), func(cache.Transaction) bool { *s.n++; return *s.n%2 == 0 })
	return s.Store.Transaction(kept...)
}

func (forgetful) Add(any) error { return nil }

func registerStores() {
	guarantees := []impls.Guarantees{{Order: impls.OrderPerKey, Lists: "per-object"}}
	for title, change := range map[string]func(store.Store) store.Store{
		"weak": func(s store.Store) store.Store { return s }, "forgetful": func(s store.Store) store.Store { return forgetful{s, new(int)} },
	} {
		store.Register(store.Variant{Name: planted + title, Summary: title, Guarantees: guarantees, New: func(o store.Options) (store.Store, error) {
			s, err := store.New("clientgo", o)
			return change(s), err
		}})
	}
	workqueue.Register(workqueue.Variant{
		Name: planted + "unordered", Summary: "no order", Guarantees: []impls.Guarantees{{Order: impls.OrderPerShard}},
		New: func(o workqueue.Options[string]) (workqueue.Queue[string], error) {
			return workqueue.New("clientgo", o)
		},
	})
}

// TestForgetfulStore: the checks find a store that loses writes.
func TestForgetfulStore(t *testing.T) {
	cl := comparisons(t, inMemory(planted+"forgetful", "", "cond"))[0]
	if _, runErr, err := play(t.Context(), t, cl); runErr != nil || !errors.Is(err, lab.ErrDiverged) && !errors.Is(err, lab.ErrLost) {
		t.Errorf("Run: %v, Check: %v", runErr, err)
	}
}

// TestStoreGuarantees: client-go's own informer keeps its store and workqueue, is played once, and is
// compared with informers of other ones, unless these guarantee less.
func TestStoreGuarantees(t *testing.T) {
	const lists, order = ", lists per-object", ", workqueue order per-shard"
	for _, tc := range []struct{ store, queue, class, says string }{
		{"", "", "", ""},
		{"clientgo", "", "", "lists point-in-time"},
		{planted + "weak", "", lists, "lists per-object"},
		{"", planted + "unordered", order, "workqueue order per-shard"},
		{planted + "weak", planted + "unordered", lists + order, order},
	} {
		cells := comparisons(t, inMemory(tc.store, tc.queue, pipeline.ClientGoInformer, "ring"))
		base, cl := cells[0], cells[2]
		if !base.Baseline || base.Label("store") != "" || base.Label("workqueue") != "" || cl.Label("store") != tc.store {
			t.Errorf("labels %v and %v", base.Labels, cl.Labels)
		}
		if cl.Class != base.Class+tc.class || !strings.Contains(cl.Guarantees, tc.says) {
			t.Errorf("guarantees %s, class %q, of the baseline %q", cl.Guarantees, cl.Class, base.Class)
		}
		result := lab.ComparisonResult{Cells: []lab.CellResult{
			{Name: base.Name, Labels: base.Labels, Baseline: true}, {Name: cl.Name, Labels: cl.Labels},
		}}
		if result.Against(&result.Cells[1]) != &result.Cells[0] {
			t.Errorf("%s has no baseline", name(cl))
		}
	}
}
