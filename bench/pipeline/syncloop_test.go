package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/bench/pipeline"
	"watchlab/impls/merge"
)

// calls logs what a sync loop dispatches.
type calls struct {
	log        []string
	cleanupErr error
	toSync     []*v1.Pod
}

func (c *calls) add(method string, pods []*v1.Pod) {
	names := ""
	for _, p := range pods {
		names += " " + p.Name
	}
	c.log = append(c.log, method+names)
}

func (c *calls) HandlePodAdditions(pods []*v1.Pod) { c.add("additions", pods) }
func (c *calls) HandlePodUpdates(pods []*v1.Pod)   { c.add("updates", pods) }
func (c *calls) HandlePodRemoves(pods []*v1.Pod)   { c.add("removes", pods) }
func (c *calls) HandlePodReconcile(pods []*v1.Pod) { c.add("reconcile", pods) }
func (c *calls) HandlePodSyncs(pods []*v1.Pod)     { c.add("syncs", pods) }
func (c *calls) HandlePodCleanups(context.Context) error {
	c.log = append(c.log, "cleanups")
	return c.cleanupErr
}

func (c *calls) PodByUID(uid types.UID) (*v1.Pod, bool) {
	if uid == "known" {
		return pod("known"), true
	}
	return nil, false
}

func (c *calls) PodsToSync() []*v1.Pod { return c.toSync }

func (c *calls) Received(u merge.PodUpdate) { c.log = append(c.log, fmt.Sprintf("received %v", u.Op)) }
func (c *calls) Dispatched(u merge.PodUpdate) {
	c.log = append(c.log, fmt.Sprintf("dispatched %v", u.Op))
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

func TestSyncLoop(t *testing.T) {
	type config = merge.PodUpdate
	type pleg = pipeline.PodLifecycleEvent
	type sync struct{}
	type housekeeping struct{}
	update := func(op merge.Op, source string, names ...string) config {
		u := config{Op: op, Source: source}
		for _, n := range names {
			u.Pods = append(u.Pods, pod(n))
		}
		return u
	}
	needed := sets.New("api", "file")
	for title, tc := range map[string]struct {
		in         []any
		toSync     []*v1.Pod
		cleanupErr error
		want       []string
		wantErrors uint64
	}{
		"each operation goes to its method": {
			in: []any{
				update(merge.ADD, "api", "a", "b"), update(merge.UPDATE, "api", "a"), update(merge.RECONCILE, "api", "b"),
				update(merge.REMOVE, "api", "b"),
			},
			want: []string{"additions a b", "updates a", "reconcile b", "removes b"},
		},
		"a deletion is handled as an update": {
			in:   []any{update(merge.DELETE, "api", "a")},
			want: []string{"updates a"},
		},
		"an empty addition is handled": {
			in:   []any{update(merge.ADD, "file")},
			want: []string{"additions"},
		},
		"SET and unknown operations are errors, and the loop goes on": {
			in:         []any{update(merge.SET, "api", "a"), update(merge.Op(17), "api", "a"), update(merge.Op(-1), "api"), update(merge.ADD, "api", "a")},
			want:       []string{"additions a"},
			wantErrors: 3,
		},
		"housekeeping waits for all sources": {
			in: []any{
				housekeeping{}, update(merge.ADD, "api", "a"), housekeeping{},
				update(merge.ADD, "file"), housekeeping{},
			},
			want: []string{"additions a", "additions", "cleanups"},
		},
		"a source counts as seen whatever it said": {
			in:         []any{update(merge.SET, "api"), update(merge.RECONCILE, "file"), housekeeping{}},
			want:       []string{"reconcile", "cleanups"},
			wantErrors: 1,
		},
		"a failed cleanup is an error, and the loop goes on": {
			in:         []any{update(merge.ADD, "api"), update(merge.ADD, "file"), housekeeping{}, update(merge.ADD, "api", "a")},
			cleanupErr: errors.New("no"),
			want:       []string{"additions", "additions", "cleanups", "additions a"},
			wantErrors: 1,
		},
		"lifecycle events sync known pods": {
			in: []any{
				pleg{ID: "known", Type: "ContainerDied"}, pleg{ID: "unknown", Type: "ContainerDied"},
				pleg{ID: "known", Type: pipeline.ContainerRemoved},
			},
			want: []string{"syncs known"},
		},
		"ticks sync what is due": {
			in: []any{sync{}}, toSync: []*v1.Pod{pod("x"), pod("y")},
			want: []string{"syncs x y"},
		},
		"nothing is due": {in: []any{sync{}}},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				configCh, plegCh := make(chan config), make(chan pleg)
				syncCh, housekeepingCh := make(chan time.Time), make(chan time.Time)
				c := &calls{toSync: tc.toSync, cleanupErr: tc.cleanupErr}
				loop := &pipeline.SyncLoop{
					ConfigCh: configCh, PlegCh: plegCh, SyncCh: syncCh, HousekeepingCh: housekeepingCh,
					Handler: c, Pods: c,
					SourcesReady: func(seen sets.Set[string]) bool { return seen.IsSuperset(needed) },
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					loop.Run(t.Context())
				}()
				for _, in := range tc.in {
					switch in := in.(type) {
					case config:
						configCh <- in
					case pleg:
						plegCh <- in
					case sync:
						syncCh <- time.Now()
					case housekeeping:
						housekeepingCh <- time.Now()
					}
				}
				close(configCh)
				<-done
				if diff := cmp.Diff(tc.want, c.log); diff != "" {
					t.Errorf("dispatched (-want +got):\n%s", diff)
				}
				if got := loop.Errors(); got != tc.wantErrors {
					t.Errorf("%d errors, want %d", got, tc.wantErrors)
				}
			})
		})
	}
}

func TestSyncLoopObserver(t *testing.T) {
	ch := make(chan merge.PodUpdate, 2)
	ch <- merge.PodUpdate{Op: merge.ADD, Source: "api"}
	ch <- merge.PodUpdate{Op: merge.SET, Source: "api"}
	close(ch)
	c := &calls{}
	loop := &pipeline.SyncLoop{ConfigCh: ch, Handler: c, Pods: c, Observer: c}
	loop.Run(t.Context())
	want := []string{"received ADD", "additions", "dispatched ADD", "received SET", "dispatched SET"}
	if diff := cmp.Diff(want, c.log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSyncLoopEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		loop := &pipeline.SyncLoop{Handler: &calls{}, Pods: &calls{}}
		go func() {
			defer close(done)
			loop.Run(ctx)
		}()
		synctest.Wait()
		cancel()
		<-done
	})
}
