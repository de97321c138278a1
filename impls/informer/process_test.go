package informer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

// script is a queue that delivers prepared batches, or prepared single deltas if single is set.
type script struct {
	deltafifo.BatchQueue
	// single is read where deltas are handed over.
	single   bool
	handOver chan handOver
	closed   chan struct{}
}

type handOver struct {
	deltas []cache.Delta
	err    chan error
}

func newScript() *script {
	return &script{handOver: make(chan handOver), closed: make(chan struct{})}
}

// queue builds it, for an informer.
func (s *script) queue(o deltafifo.Options) (deltafifo.Queue, error) {
	q, err := deltafifo.New("cond", o)
	if err != nil {
		return nil, err
	}
	s.BatchQueue = q.(deltafifo.BatchQueue)
	return s, nil
}

// hand delivers deltas and returns the result of process.
func (s *script) hand(deltas []cache.Delta) error {
	h := handOver{deltas, make(chan error)}
	s.handOver <- h
	return <-h.err
}

func (s *script) PopBatch(batch cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	select {
	case h := <-s.handOver:
		if s.single {
			h.err <- single(cache.Deltas(h.deltas), false)
		} else {
			h.err <- batch(h.deltas, false)
		}
		// Lent: what was handed over is used again.
		for i := range h.deltas {
			h.deltas[i] = cache.Delta{Type: "used again"}
		}
		return nil
	case <-s.closed:
		return cache.ErrFIFOClosed
	}
}

func (s *script) Close() {
	s.BatchQueue.Close()
	close(s.closed)
}

// TestHandOvers delivers prepared deltas. Notifications and errors must be those
// of client-go's controller.go v0.37.
func TestHandOvers(t *testing.T) {
	withoutKey := struct{}{}
	replaced := func(objs ...any) cache.ReplacedAllInfo {
		return cache.ReplacedAllInfo{ResourceVersion: "9", Objects: objs}
	}
	for _, c := range []struct {
		name   string
		single bool
		deltas []cache.Delta
		want   string
		err    string
	}{
		{"batch", false, []cache.Delta{
			{Type: cache.Added, Object: version("new", 2)}, {Type: cache.Updated, Object: version("a", 3)},
			{Type: cache.Sync, Object: version("b", 1)}, {Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "ns/c", Obj: version("c", 1)}},
		}, "[add ns/new 2 update ns/a 1→3 update ns/b 1→1 delete ns/c 1 (tombstone)]", ""},
		{"batch in which one fails", false, []cache.Delta{
			{Type: cache.Added, Object: version("new", 2)}, {Type: cache.Added, Object: withoutKey}, {Type: cache.Deleted, Object: version("a", 3)},
		}, "[add ns/new 2 delete ns/a 3]", "(1/3) transactions failed"},
		{"batch with an unknown type", false, []cache.Delta{
			{Type: cache.Added, Object: version("new", 2)}, {Type: "Imagined", Object: version("a", 3)},
		}, "[]", `type "Imagined"`},
		{"one key", true, []cache.Delta{
			{Type: cache.Updated, Object: version("a", 2)}, {Type: cache.Deleted, Object: version("a", 3)}, {Type: cache.Added, Object: version("a", 4)},
		}, "[update ns/a 1→2 delete ns/a 3 add ns/a 4]", ""},
		{"a failure after a success", true, []cache.Delta{
			{Type: cache.Updated, Object: version("a", 2)}, {Type: cache.Deleted, Object: withoutKey}, {Type: cache.Added, Object: version("b", 4)},
		}, "[update ns/a 1→2]", "no meta"},
		{"replaced", true, []cache.Delta{{Type: cache.ReplacedAll, Object: replaced(version("b", 5), version("new", 6), version("a", 1))}},
			"[delete ns/c 1 (tombstone) update ns/b 1→5 add ns/new 6 update ns/a 1→1]", ""},
		{"replaced without a key", true, []cache.Delta{{Type: cache.ReplacedAll, Object: replaced(version("b", 5), withoutKey)}}, "[]", "no meta"},
		{"replaced by nothing known", true, []cache.Delta{{Type: cache.ReplacedAll, Object: "all"}}, "[]", "ReplacedAll holds a string"},
		{"all synced", true, []cache.Delta{{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}},
			"[update ns/a 1→1 update ns/b 1→1 update ns/c 1→1]", ""},
		{"sync of what isn't", true, []cache.Delta{{Type: cache.SyncAll}}, "[]", "SyncAll holds a <nil>"},
		{"bookmark", true, []cache.Delta{{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: "7"}}}, "[]", ""},
		{"no bookmark", true, []cache.Delta{{Type: cache.Bookmark, Object: 7}}, "[]", "Bookmark holds a int"},
	} {
		for _, indexer := range append(stores(), "") {
			t.Run(c.name+"/store="+indexer, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newScript()
					s.single = true
					inf := newInformer(t, newFeed().lw(), informer.Options{Store: indexer})
					informer.SetBuild(inf, s.queue)
					r := &recorder{}
					addHandler(t, inf, r)
					l := &logs{}
					ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), *l.logger()))
					var running sync.WaitGroup
					defer running.Wait()
					defer cancel()
					running.Go(func() { inf.RunWithContext(ctx) })
					if err := s.hand([]cache.Delta{{Type: cache.ReplacedAll, Object: replaced(version("a", 1), version("b", 1), version("c", 1))}}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					r.take()

					s.single = c.single
					err := s.hand(slices.Clone(c.deltas))
					synctest.Wait()
					calls := r.take()
					if c.name == "all synced" {
						calls = sorted(calls)
					}
					if got := fmt.Sprint(calls); got != c.want {
						t.Errorf("received %s, want %s", got, c.want)
					}
					if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
						t.Errorf("returned %v, want an error that says %q", err, c.err)
					}
					if logged := l.count("could not take in") > 0; logged != (err != nil) {
						t.Errorf("returned %v and logged %q", err, l.lines)
					}
				})
			})
		}
	}
}
