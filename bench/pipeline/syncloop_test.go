package pipeline

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls/merge"
)

func TestSyncLoop(t *testing.T) {
	type config = merge.PodUpdate
	type pleg struct{}
	type syncTick struct{}
	type housekeeping struct{}
	update := func(op merge.Op, source string, names ...string) config {
		u := config{Op: op, Source: source}
		for _, n := range names {
			u.Pods = append(u.Pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n)}})
		}
		return u
	}
	needed := sets.New("api", "file")
	for title, tc := range map[string]struct {
		in       []any
		pods     []types.UID
		cleanups int
		errors   int
	}{
		"each operation": {
			in: []any{
				update(merge.ADD, "api", "a", "b"), update(merge.UPDATE, "api", "a"), update(merge.RECONCILE, "api", "b"),
				update(merge.REMOVE, "api", "b"),
			},
			pods: []types.UID{"a"},
		},
		"a deletion is handled as an update": {
			in:   []any{update(merge.DELETE, "api", "a")},
			pods: []types.UID{"a"},
		},
		"SET and unknown operations are errors, and the loop goes on": {
			in:     []any{update(merge.SET, "api", "b"), update(merge.Op(17), "api", "b"), update(merge.Op(-1), "api"), update(merge.ADD, "api", "a")},
			pods:   []types.UID{"a"},
			errors: 3,
		},
		"housekeeping waits for all sources": {
			in: []any{
				housekeeping{}, update(merge.ADD, "api", "a"), housekeeping{},
				update(merge.ADD, "file"), housekeeping{},
			},
			pods: []types.UID{"a"}, cleanups: 1,
		},
		"a source counts as seen after any operation": {
			in:       []any{update(merge.SET, "api"), update(merge.RECONCILE, "file"), housekeeping{}},
			cleanups: 1, errors: 1,
		},
		"other channels change nothing": {
			in:   []any{pleg{}, syncTick{}, update(merge.ADD, "api", "a")},
			pods: []types.UID{"a"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				updates, plegCh := make(chan config), make(chan struct{})
				syncCh, housekeepingCh := make(chan time.Time), make(chan time.Time)
				loop := &syncLoop{
					updates: updates, pleg: plegCh, syncTick: syncCh, housekeepingTick: housekeepingCh,
					sourcesReady: func(seen sets.Set[string]) bool { return seen.IsSuperset(needed) },
					st:           newStamps(0, true, ""), notices: newNoticeLog(len(tc.in)),
					pods: map[types.UID]*v1.Pod{}, seen: sets.New[string](),
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					loop.run(t.Context())
				}()
				var sent []merge.Op
				for _, in := range tc.in {
					switch in := in.(type) {
					case config:
						sent = append(sent, in.Op)
						updates <- in
					case pleg:
						plegCh <- struct{}{}
					case syncTick:
						syncCh <- time.Now()
					case housekeeping:
						housekeepingCh <- time.Now()
					}
				}
				close(updates)
				<-done
				if diff := cmp.Diff(tc.pods, slices.Sorted(maps.Keys(loop.pods))); diff != "" {
					t.Errorf("pods (-want +got):\n%s", diff)
				}
				if loop.cleanups != tc.cleanups || loop.errors != tc.errors {
					t.Errorf("%d cleanups and %d errors, want %d and %d", loop.cleanups, loop.errors, tc.cleanups, tc.errors)
				}
				var logged []merge.Op
				for _, n := range loop.notices.notices {
					logged = append(logged, n.Op)
					if n.merged == 0 || n.handled < n.merged {
						t.Errorf("%v received at %d, handled at %d", n.Op, n.merged, n.handled)
					}
				}
				if diff := cmp.Diff(sent, logged); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSyncLoopEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&syncLoop{}).run(ctx)
		}()
		synctest.Wait()
		cancel()
		<-done
	})
}
