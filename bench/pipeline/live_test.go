package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	fcache "k8s.io/client-go/tools/cache/testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/source/cluster"
)

// fakeCluster is a cluster in memory. bench/e2e tests a real one.
type fakeCluster struct{ *fcache.FakeControllerSource }

// newFakeCluster returns a cluster with one pod. It had another one before, as the source
// refuses to watch from version 0 after its first event.
func newFakeCluster(t *testing.T) fakeCluster {
	f := fakeCluster{fcache.NewFakeControllerSource()}
	t.Cleanup(f.Shutdown)
	f.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "old", Name: "former"}})
	f.Delete(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "old", Name: "former"}})
	f.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "old", Name: "there-before"}})
	return f
}

func (fakeCluster) IsWatchListSemanticsUnSupported() bool { return true }

var livePods = cluster.Resource{
	GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
	Kind:                 schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespaced: true,
}

func (f fakeCluster) open() (*cluster.Tee, error) {
	return cluster.FollowListerWatcher(livePods, f, 4096)
}

// drive creates, updates and deletes pods. None remains.
func (f fakeCluster) drive(context.Context, bool) (cluster.Written, error) {
	const of = 20
	for i := range 12 * of {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("pod-%d", i%of)}}
		switch i / of % 6 {
		case 0:
			f.Add(p)
		case 5:
			f.Delete(p)
		default:
			p.Status.Message = fmt.Sprint(i)
			f.Modify(p)
		}
	}
	return cluster.Written{Applied: 12 * of}, nil
}

// TestCompareLive: every variant gets the cluster's events at the same time, without a
// loss. A variant that breaks an invariant is reported.
func TestCompareLive(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	var warmUps []bool
	comparisons, err := pipeline.CompareLive(pipeline.LiveConfig{
		Open: f.open, Window: time.Second, Stream: "pods of a fake",
		Drive: func(ctx context.Context, warmUp bool) (cluster.Written, error) {
			warmUps = append(warmUps, warmUp)
			return f.drive(ctx, warmUp)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// All cells report to one set.
	ctx, _, figures := newFigures(t)
	o := must(lab.Run(ctx, comparisons, lab.Options{Name: "live", Rounds: 1, IgnoreHost: true}))(t)
	if len(o.Comparisons) != 2 {
		t.Fatalf("%d comparisons, want one for each delivery", len(o.Comparisons))
	}
	for _, stage := range []string{"released", "enqueued", "handled", "worked"} {
		if n := figures.events(stage); n == 0 || n < 200 && stage != "worked" {
			t.Errorf("%d %s", n, stage)
		}
	}
	for _, boundary := range []string{"enqueued-popped", "stored-handled"} {
		if n, _ := figures.histogram(stageLatency, boundary); n == 0 {
			t.Errorf("no latency %s", boundary)
		}
	}
	if want := []bool{true, true, false, false}; !slices.Equal(warmUps, want) {
		t.Errorf("rounds that warm up: %v, want %v", warmUps, want)
	}
	for _, c := range o.Comparisons {
		events := uint64(0)
		for _, cl := range c.Cells {
			if strings.HasPrefix(cl.Label("impl"), "planted-") {
				if cl.Verdict.Status != lab.Invalid {
					t.Errorf("%s is broken, and is said to be %s", cl.BenchName(), cl.Verdict)
				}
				continue
			}
			if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) != 1 {
				t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
				continue
			}
			r := cl.Rounds[0].Result
			for _, want := range []cell.Note{{Unit: "cluster-written", Value: 240}, {Unit: "cluster-unwritten"}, {Unit: "cluster-relists"}, {Unit: "cluster-gap-ns"}} {
				if !slices.Contains(r.Notes, want) {
					t.Errorf("%s notes %v, want %v among them", cl.BenchName(), r.Notes, want)
				}
			}
			if events == 0 {
				events = r.EventsIn
			}
			l, ok := r.At(observe.Handled)
			if r.EventsIn != events || r.EventsIn < 200 || !ok || l.Count == 0 || !r.Shared {
				t.Errorf("%s: %d events, others had %d; latency of %d", cl.BenchName(), r.EventsIn, events, l.Count)
			}
			if !strings.HasSuffix(cl.BenchName(), "source=cluster/storm=pods-of-a-fake/rate=live") {
				t.Errorf("name %s", cl.BenchName())
			}
		}
	}
}

// TestCompareLiveInterrupted: after an interrupted run the driver has ended too.
// Otherwise it would write during the clean-up.
func TestCompareLiveInterrupted(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var driving atomic.Bool
	comparisons, err := pipeline.CompareLive(pipeline.LiveConfig{
		Impls: []string{"cond", "ring"}, Modes: []string{"in-order"}, Window: time.Hour, Stream: "pods",
		Open: f.open,
		Drive: func(ctx context.Context, _ bool) (cluster.Written, error) {
			driving.Store(true)
			defer driving.Store(false)
			cancel() // As Ctrl-C in mid-round.
			<-ctx.Done()
			// A started write takes some time to end.
			for range 1000 {
				goruntime.Gosched()
			}
			return cluster.Written{}, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(ctx, comparisons, lab.Options{Name: "live", Rounds: 1, IgnoreHost: true})
	if err != nil || !o.Interrupted {
		t.Errorf("interrupted %v, %v", o.Interrupted, err)
	}
	if driving.Load() {
		t.Error("the run has ended, what drives it has not")
	}
}

// TestCompareLiveFails: a round without events is invalid. A failed start ends the run,
// and a failed driver is reported.
func TestCompareLiveFails(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	failed := errors.New("driver broke")
	for _, tt := range []struct {
		name  string
		open  func() (*cluster.Tee, error)
		drive func(context.Context, bool) (cluster.Written, error)
		want  string
	}{
		{"nothing happens", f.open, nil, "nothing happened"},
		{"driver fails", f.open, func(context.Context, bool) (cluster.Written, error) { return cluster.Written{}, failed }, failed.Error()},
		{"no cluster", func() (*cluster.Tee, error) { return nil, errors.New("connection refused") }, nil, "connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			comparisons, err := pipeline.CompareLive(pipeline.LiveConfig{
				Impls: []string{"cond", "ring"}, Modes: []string{"in-order"},
				Open: tt.open, Drive: tt.drive, Window: 20 * time.Millisecond, Stream: "nothing",
			})
			if err != nil {
				t.Fatal(err)
			}
			o, err := lab.Run(t.Context(), comparisons, lab.Options{Name: "live", Rounds: 1, IgnoreHost: true})
			said := fmt.Sprint(err)
			for _, cl := range o.Comparisons[0].Cells {
				said += cl.Verdict.String()
			}
			if !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
	if _, err := pipeline.CompareLive(pipeline.LiveConfig{Impls: []string{"nobody"}, Stream: "x"}); err == nil {
		t.Error("an unknown variant was taken")
	}
}

// TestCompareLiveAudits: a round that cannot be audited is invalid.
func TestCompareLiveAudits(t *testing.T) {
	t.Parallel()
	srv, err := apiserver.New(smallStorm(t), apiserver.Options{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
				h.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no lists for you","reason":"Forbidden","code":403}`))
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	url := must(srv.Start())(t)
	transport := &http.Transport{}
	defer func() {
		transport.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := must(cluster.For(&rest.Config{Host: url, Transport: transport}))(t)
	released := uint64(7)
	comparisons, err := pipeline.CompareLive(pipeline.LiveConfig{
		Impls: []string{"ring"}, Modes: []string{"in-order"}, Stream: "pods", Window: 200 * time.Millisecond,
		Open: func() (*cluster.Tee, error) { return cluster.NewTee(c, livePods, cluster.Scope{}, 1000) },
		Drive: func(context.Context, bool) (cluster.Written, error) {
			released += 25
			srv.Release(released)
			return cluster.Written{Applied: 25}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := must(lab.Run(t.Context(), comparisons, lab.Options{Name: "live", Rounds: 1, IgnoreHost: true}))(t)
	if verdict := o.Comparisons[0].Cells[0].Verdict; verdict.Status != lab.Invalid || !strings.Contains(verdict.Detail, "audit: no lists for you") {
		t.Errorf("verdict %s", verdict)
	}
}
