package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// smallStorm has pods of one node that are added, run, updated, deleted and added again,
// several at a time.
func smallStorm(t testing.TB) *storm.Storm {
	t.Helper()
	s := &storm.Storm{
		Name:     "recordings/small.jsonl.gz",
		Resource: v1.SchemeGroupVersion.WithResource("pods"),
		Kind:     v1.SchemeGroupVersion.WithKind("Pod"),
		Initial:  7,
	}
	const pods = 20
	at := map[string]int32{}
	lives := map[int]int{}
	event := func(kind watch.EventType, n int, phase v1.PodPhase, change func(*v1.Pod)) {
		name := fmt.Sprintf("pod-%d", n)
		key := "default/" + name
		if _, ok := at[key]; !ok {
			at[key] = int32(len(at))
		}
		seq := uint64(len(s.Events) + 1)
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name,
				UID:             types.UID(fmt.Sprintf("%s-%d", name, lives[n])),
				ResourceVersion: strconv.FormatUint(seq, 10),
			},
			Spec:   v1.PodSpec{NodeName: "node-a", Containers: []v1.Container{{Name: "c", Image: "i:1"}}},
			Status: v1.PodStatus{Phase: phase, Message: fmt.Sprintf("%d", seq)},
		}
		if change != nil {
			change(pod)
		}
		s.Events = append(s.Events, storm.Event{
			Type: kind, Seq: seq, At: time.Duration(seq) * time.Millisecond,
			Key: key, KeyIndex: at[key], Object: pod,
		})
	}
	for n := range s.Initial {
		event(watch.Added, n, v1.PodPending, nil)
	}
	image := func(p *v1.Pod) { p.Spec.Containers[0].Image = "i:2" }
	dying := func(p *v1.Pod) {
		image(p)
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
		grace := int64(30)
		p.DeletionGracePeriodSeconds = &grace
	}
	for range 3 {
		for n := range pods {
			if lives[n] > 0 || n >= s.Initial {
				event(watch.Added, n, v1.PodPending, nil)
			}
			event(watch.Modified, n, v1.PodRunning, nil)
		}
		for n := range pods {
			event(watch.Modified, n, v1.PodRunning, image)
			event(watch.Modified, n, v1.PodRunning, dying)
			event(watch.Deleted, n, v1.PodFailed, dying)
			lives[n]++
		}
	}
	for n := range pods / 2 {
		event(watch.Added, n, v1.PodPending, nil)
	}
	s.Keys = len(at)
	noError(t, s.Validate())
	return s
}

// play runs a cell once and returns its result and the error of Check.
func play(ctx context.Context, t testing.TB, c lab.Cell) (res cell.Result, runErr, checkErr error) {
	t.Helper()
	w := must(c.New())(t)
	defer func() {
		if err := w.Teardown(); err != nil {
			t.Error("Teardown:", err)
		}
	}()
	if err := w.Setup(ctx); err != nil {
		t.Fatal("Setup:", err)
	}
	var rec cell.Recorder
	if err := w.Run(ctx, &rec); err != nil {
		return res, err, nil
	}
	if checkErr = w.Check(); checkErr != nil {
		return res, nil, checkErr
	}
	return must(rec.Result())(t), nil, nil
}

// rates are the paces of constant rates; 0 is unpaced.
func rates(of ...pace.Rate) []pace.Pace {
	var out []pace.Pace
	for _, r := range of {
		out = append(out, r.Pace())
	}
	return out
}

func name(c lab.Cell) string {
	parts := []string{c.Name}
	for _, l := range c.Labels {
		parts = append(parts, l.Key+"="+l.Value)
	}
	return strings.Join(parts, "/")
}

// planted is the prefix of the variants that tests register.
const planted = "planted-"

// TestEveryVariant plays a small storm through every variant in every pipeline
// that takes it, from every source, paced and not.
func TestEveryVariant(t *testing.T) {
	t.Parallel()
	small := smallStorm(t)
	paces := rates(0, 2000)
	specs := []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue", Events: 1000},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Events: 1000, Producers: 4},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "memory", Events: 600},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver"},
		{Family: impls.Queue, Pipeline: "queue", Events: 1000},
		{Family: impls.Queue, Pipeline: "queue", Events: 1000, Producers: 4},
		{Family: impls.Merge, Pipeline: "queue", Events: 300},
		{Family: impls.Merge, Pipeline: "kubelet", Source: "memory", Events: 300},
		{Family: impls.Merge, Pipeline: "kubelet", Source: "apiserver"},
	}
	for _, spec := range specs {
		spec.Storm, spec.Paces, spec.Duration = small, paces, 50*time.Millisecond
		comparisons := must(pipeline.Compare(spec))(t)
		for _, c := range comparisons {
			for _, cl := range c.Cells {
				if strings.HasPrefix(cl.Labels[0].Value, planted) {
					continue
				}
				t.Run(name(cl), func(t *testing.T) {
					t.Parallel()
					res, runErr, checkErr := play(t.Context(), t, cl)
					noError(t, errors.Join(runErr, checkErr))
					paced := cl.Labels[len(cl.Labels)-1].Value != "max"
					least := uint64(100)
					if !paced && spec.Events > 0 {
						least = uint64(spec.Events)
					}
					if res.EventsIn < least || spec.Family == impls.DeltaFIFO && res.DeltasOut != res.EventsIn {
						t.Errorf("%d events in, %d deltas out; want %d or more, none folded", res.EventsIn, res.DeltasOut, least)
					}
					if _, ok := res.At(observe.Handled); ok != paced {
						t.Errorf("%s recorded: %v", observe.Handled, ok)
					}
					// A latest-object queue may coalesce all stamped events.
					if _, ok := res.At(observe.ReleasedHandled); !ok && (paced || spec.Family != impls.Queue) {
						t.Errorf("%s is not recorded", observe.ReleasedHandled)
					}
					// A stage may be stamped after the next one, if that runs in another
					// goroutine. The consumer may pop before Add returns. A worker that
					// is busy with an earlier event of the key may find an object that
					// is stored but not stamped yet.
					concurrent := []cell.Boundary{observe.EnqueuedPopped, observe.EnqueuedMerged, observe.StoredHandled}
					for _, l := range res.Latency {
						if l.Count == 0 || l.Negative != 0 && !slices.Contains(concurrent, l.Boundary) {
							t.Errorf("%s: %+v", l.Boundary, l.Quantiles)
						}
					}
					if paced && spec.Family == impls.DeltaFIFO {
						if l, _ := res.At(observe.Handled); l.Count != res.EventsIn {
							t.Errorf("%d of %d events have a latency", l.Count, res.EventsIn)
						}
					}
					if (res.Lag != nil) != paced {
						t.Errorf("lag recorded: %v", res.Lag != nil)
					}
				})
			}
		}
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError ends the test with the error of a call.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
