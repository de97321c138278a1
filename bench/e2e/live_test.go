// Package main_test tests watchlab against a real control plane.
package main_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// playable is a real cluster with a writer for a storm of pods.
type playable struct {
	cp      *controlplane.ControlPlane
	cluster *cluster.Cluster
	pods    cluster.Resource
	writer  *cluster.Writer
	// storm is the beginning of the trace recorded-gang.
	storm *storm.Storm
}

func newPlayable(t *testing.T, run string, initial, events int) playable {
	t.Helper()
	p := playable{cp: controlplane.ForTest(t, controlplane.Options{Controllers: true})}
	var err error
	if p.cluster, err = cluster.For(p.cp.Config()); err != nil {
		t.Fatal(err)
	}
	if p.pods, err = p.cluster.Resource("po"); err != nil {
		t.Fatal(err)
	}
	if p.writer, err = cluster.NewWriter(p.cluster, p.pods, run); err != nil {
		t.Fatal(err)
	}
	s, err := trace.Load("recorded-gang")
	if err != nil {
		t.Fatal(err)
	}
	short := *s
	short.Events, short.Initial = s.Events[:initial+events], initial
	p.storm = &short
	return p
}

// TestApplyAndTee writes a recorded storm of pods into a real cluster and plays the
// cluster's watch into all variants concurrently. No variant loses an event, and the
// writer deletes all its objects.
func TestApplyAndTee(t *testing.T) {
	const initial, events = 20, 400
	p := newPlayable(t, "e2e", initial, events)
	w := p.writer
	var written cluster.Written
	comparisons, err := pipeline.CompareLive(pipeline.LiveConfig{
		Open: func() (*cluster.Tee, error) {
			if err := w.Clear(t.Context()); err != nil {
				return nil, err
			}
			return cluster.NewTee(p.cluster, p.pods, cluster.Scope{Selector: w.Selector()}, pipeline.LiveRoom)
		},
		Drive: func(context.Context, bool) (_ cluster.Written, err error) {
			written, err = w.Play(t.Context(), p.storm, pace.Rate(400))
			return written, err
		},
		Window: time.Second, Stream: "pods",
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), comparisons, lab.Options{Name: "e2e", Rounds: 1, IgnoreHost: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("written: %+v", written)
	if written.Refused > 0 || written.Applied < events/2 {
		t.Errorf("written: %+v, first refusal: %v", written, written.FirstRefusal)
	}
	cells := 0
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			cells++
			if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) == 0 {
				t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
				continue
			}
			r := cl.Rounds[0].Result
			l, _ := r.At(observe.Handled)
			t.Logf("%s: %d events in, p99 %v, %s", cl.BenchName(), r.EventsIn, l.P99, cl.Verdict)
			// An applied pod causes one event, or a second one for its status.
			if r.EventsIn < events/2 {
				t.Errorf("%s: %d events came", cl.BenchName(), r.EventsIn)
			}
		}
	}
	if cells < 10 {
		t.Errorf("%d cells", cells)
	}

	if err := w.Clean(t.Context()); err != nil {
		t.Error(err)
	}
	client := kubernetes.NewForConfigOrDie(p.cp.Config())
	programs.Eventually(t, "the namespaces are gone", func() error {
		list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: cluster.RunLabel})
		if err == nil && len(list.Items) > 0 {
			err = errors.New(list.Items[0].Name + " is there")
		}
		return err
	})
}
