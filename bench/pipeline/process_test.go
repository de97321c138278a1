package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// told logs what a handler is told.
type told struct{ log []string }

func (h *told) OnAdd(obj any, initial bool) {
	suffix := ""
	if initial {
		suffix = " (initial)"
	}
	h.log = append(h.log, "add "+version(obj)+suffix)
}
func (h *told) OnUpdate(old, obj any) {
	h.log = append(h.log, "update "+version(old)+" to "+version(obj))
}
func (h *told) OnDelete(obj any) { h.log = append(h.log, "delete "+version(obj)) }

func version(obj any) string {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return "tombstone of " + version(t.Obj)
	}
	p := obj.(*v1.Pod)
	return p.Name + "@" + p.ResourceVersion
}

func numbered(name, rv string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: rv}}
}

func newProcessor() (*processor, *told) {
	h := &told{}
	return &processor{
		indexer: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		handler: h, log: newLedger(newStamps(100, false, ""), 100),
		done: make(chan struct{}), seen: make([]bool, 101),
	}, h
}

func TestProcess(t *testing.T) {
	a1, a2, b3, b4, c5 := numbered("a", "1"), numbered("a", "2"), numbered("b", "3"), numbered("b", "4"), numbered("c", "5")
	for title, tc := range map[string]struct {
		in     []any
		want   []string
		stored []string
		rv     string
	}{
		"added, updated, deleted": {
			in:     []any{cache.Deltas{{Type: cache.Added, Object: a1}, {Type: cache.Updated, Object: a2}}, cache.Deltas{{Type: cache.Added, Object: b3}, {Type: cache.Deleted, Object: b4}}},
			want:   []string{"add a@1", "update a@1 to a@2", "add b@3", "delete b@4"},
			stored: []string{"a@2"},
		},
		"an update of what is not there is an addition": {
			in: []any{cache.Deltas{{Type: cache.Updated, Object: a2}}}, want: []string{"add a@2"}, stored: []string{"a@2"},
		},
		"an addition of what is there is an update": {
			in:   []any{cache.Deltas{{Type: cache.Replaced, Object: a1}}, cache.Deltas{{Type: cache.Added, Object: a2}}, cache.Deltas{{Type: cache.Sync, Object: a2}}},
			want: []string{"add a@1", "update a@1 to a@2", "update a@2 to a@2"}, stored: []string{"a@2"},
		},
		"a tombstone": {
			in:   []any{cache.Deltas{{Type: cache.Added, Object: a1}}, cache.Deltas{{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "n/a", Obj: a1}}}},
			want: []string{"add a@1", "delete tombstone of a@1"},
		},
		"a batch": {
			in: []any{
				cache.Deltas{{Type: cache.Added, Object: a1}}, cache.Deltas{{Type: cache.Added, Object: b3}},
				[]cache.Delta{{Type: cache.Updated, Object: a2}, {Type: cache.Deleted, Object: b4}, {Type: cache.Added, Object: c5}},
			},
			want: []string{"add a@1", "add b@3", "update a@1 to a@2", "delete b@4", "add c@5"}, stored: []string{"a@2", "c@5"},
		},
		"all replaced: deletions are told first": {
			in: []any{
				cache.Deltas{{Type: cache.Added, Object: a1}}, cache.Deltas{{Type: cache.Added, Object: b3}},
				cache.Deltas{{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{ResourceVersion: "9", Objects: []any{c5, a2}}}},
			},
			want: []string{"add a@1", "add b@3", "delete tombstone of b@3", "add c@5", "update a@1 to a@2"}, stored: []string{"a@2", "c@5"}, rv: "9",
		},
		"all synced": {
			in:   []any{cache.Deltas{{Type: cache.Added, Object: a1}}, cache.Deltas{{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}}},
			want: []string{"add a@1", "update a@1 to a@1"}, stored: []string{"a@1"},
		},
		"a bookmark": {
			in:     []any{cache.Deltas{{Type: cache.Added, Object: a1}}, cache.Deltas{{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: "42"}}}},
			want:   []string{"add a@1"},
			stored: []string{"a@1"}, rv: "42",
		},
	} {
		t.Run(title, func(t *testing.T) {
			p, h := newProcessor()
			for _, in := range tc.in {
				var err error
				switch in := in.(type) {
				case cache.Deltas:
					err = p.Process(in, false)
				case []cache.Delta:
					err = p.ProcessBatch(in, false)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, h.log); diff != "" {
				t.Errorf("the handler was told (-want +got):\n%s", diff)
			}
			var stored []string
			for _, o := range p.indexer.List() {
				stored = append(stored, version(o))
			}
			slices.Sort(stored)
			if diff := cmp.Diff(tc.stored, stored); diff != "" {
				t.Errorf("the indexer holds (-want +got):\n%s", diff)
			}
			if got := p.indexer.LastStoreSyncResourceVersion(); tc.rv != "" && got != tc.rv {
				t.Errorf("the indexer is at %q, want %q", got, tc.rv)
			}
		})
	}
}

func TestProcessErrors(t *testing.T) {
	for title, tc := range map[string]struct {
		in   any
		want string
	}{
		"no deltas":                {numbered("a", "1"), "not Deltas"},
		"an unknown type":          {cache.Deltas{{Type: "Guessed", Object: numbered("a", "1")}}, "Guessed"},
		"no key":                   {cache.Deltas{{Type: cache.Added, Object: "a string"}}, "key"},
		"no ReplacedAllInfo":       {cache.Deltas{{Type: cache.ReplacedAll, Object: "x"}}, "ReplacedAll with a string"},
		"no key in a list":         {cache.Deltas{{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{Objects: []any{"x"}}}}, "key"},
		"no BookmarkInfo":          {cache.Deltas{{Type: cache.Bookmark, Object: 1}}, "Bookmark with a int"},
		"a bookmark in a batch":    {[]cache.Delta{{Type: cache.Bookmark, Object: cache.BookmarkInfo{}}}, "in a batch"},
		"no key of one in a batch": {[]cache.Delta{{Type: cache.Added, Object: numbered("a", "1")}, {Type: cache.Added, Object: "x"}}, "key"},
	} {
		t.Run(title, func(t *testing.T) {
			p, _ := newProcessor()
			var err error
			if batch, ok := tc.in.([]cache.Delta); ok {
				err = p.ProcessBatch(batch, false)
			} else {
				err = p.Process(tc.in, false)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || p.err == nil {
				t.Errorf("error %v (kept: %v), want one with %q", err, p.err, tc.want)
			}
		})
	}
}

// log is a handler that ends the wait for a number of calls.
type log struct {
	told
	want int
	done chan struct{}
}

func (l *log) noted() {
	if len(l.log) == l.want {
		close(l.done)
	}
}

func (l *log) OnAdd(obj any, initial bool) { l.told.OnAdd(obj, initial); l.noted() }
func (l *log) OnUpdate(old, obj any)       { l.told.OnUpdate(old, obj); l.noted() }
func (l *log) OnDelete(obj any)            { l.told.OnDelete(obj); l.noted() }

// TestProcessAsInformersDo plays one storm to client-go's own informer and to a
// controller with our processing, and compares what the handlers are told.
func TestProcessAsInformersDo(t *testing.T) {
	s := tiny()
	for i := range s.Events {
		s.Events[i].At = time.Duration(i)
	}
	s.Kind, s.Resource = v1.SchemeGroupVersion.WithKind("Pod"), v1.SchemeGroupVersion.WithResource("pods")
	play := func(build func(cache.ListerWatcher, *log) cache.Controller) []string {
		src := source.NewMemory(s)
		h := &log{want: len(s.Events), done: make(chan struct{})}
		control := build(src.ListerWatcher(), h)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { control.RunWithContext(ctx) })
		<-control.HasSyncedChecker().Done()
		p := pace.New(pace.Unpaced)
		p.Start(time.Now())
		if err := src.Play(ctx, p, nil); err != nil {
			t.Error(err)
		}
		<-h.done
		cancel()
		wg.Wait()
		if err := src.Close(); err != nil {
			t.Error(err)
		}
		return h.log
	}
	want := play(func(lw cache.ListerWatcher, h *log) cache.Controller {
		_, c := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: lw, ObjectType: &v1.Pod{}, Handler: h, Indexers: cache.Indexers{},
		})
		return c
	})
	for _, variant := range []string{"clientgo-realfifo-batch", "clientgo-realfifo"} {
		got := play(func(lw cache.ListerWatcher, h *log) cache.Controller {
			q, err := deltafifo.New(variant, deltafifo.Options{})
			if err != nil {
				t.Fatal(err)
			}
			p, _ := newProcessor()
			p.handler = h
			return cache.New(&cache.Config{
				Queue: q, ListerWatcher: lw, ObjectType: &v1.Pod{}, Process: p.Process, ProcessBatch: p.ProcessBatch,
			})
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the handler was told (-client-go +ours):\n%s", variant, diff)
		}
	}
	if len(want) != len(s.Events) || want[0] != "add a@1 (initial)" {
		t.Errorf("client-go told %q", want)
	}
}
