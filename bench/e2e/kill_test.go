package main_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// TestKilledMidStorm kills control plane components with SIGKILL in the middle of a
// storm and restarts them: the API server in the first round, etcd in the second, both
// in the third. Meanwhile the cluster's watch is played into all variants. The whole storm
// is written, and the variants end with the state of the cluster.
//
// The server decides the number of lists: a new API server knows no resourceVersion before its own first list, and
// answers 410 to one that etcd has passed by; one that loses its watch of etcd ends those of its clients.
func TestKilledMidStorm(t *testing.T) {
	const initial, events, rate = 40, 400, 200
	p := newPlayable(t, "kill", initial, events)

	// The warm-up round kills no component.
	victims := [][]controlplane.Component{nil, {controlplane.APIServer}, {controlplane.Etcd}, {controlplane.Etcd, controlplane.APIServer}}
	var rounds []*killRound
	comparisons, err := pipeline.CompareLive(pipeline.LiveConfig{
		Modes: []string{"in-order"}, Window: 2 * time.Minute, Stream: "pods",
		Open: func() (*cluster.Tee, error) {
			if n := len(rounds); n > 1 {
				rounds[n-1].complete(t, p)
			}
			if err := p.writer.Clear(t.Context()); err != nil {
				return nil, err
			}
			tee, err := cluster.NewTee(p.cluster, p.pods, cluster.Scope{Selector: p.writer.Selector()}, pipeline.LiveRoom)
			rounds = append(rounds, &killRound{tee: tee, victims: victims[len(rounds)]})
			return tee, err
		},
		Drive: func(ctx context.Context, _ bool) (cluster.Written, error) {
			return rounds[len(rounds)-1].drive(ctx, p, pace.Rate(rate))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), comparisons, lab.Options{Name: "kill", Rounds: len(victims) - 1, IgnoreHost: true})
	if err != nil {
		t.Fatal(err)
	}
	last := rounds[len(rounds)-1]
	last.complete(t, p)
	for _, cl := range o.Comparisons[0].Cells {
		if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) != len(victims)-1 {
			t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
	for i, r := range rounds[1:] {
		r.checkBreaks(t, o, i+1)
	}
	if err := p.writer.Clean(t.Context()); err != nil {
		t.Error(err)
	}
}

// playable is a real cluster with a writer for a storm of pods.
type playable struct {
	cp      *controlplane.ControlPlane
	cluster *cluster.Cluster
	pods    cluster.Resource
	writer  *cluster.Writer
	storm   *storm.Storm // the beginning of the trace recorded-gang
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

// killRound is a round that kills components.
type killRound struct {
	tee     *cluster.Tee
	victims []controlplane.Component
	written cluster.Written
}

// drive writes the storm. It kills and restarts the victims when half of the events are visible.
func (r *killRound) drive(ctx context.Context, p playable, schedule pace.Schedule) (cluster.Written, error) {
	if r.victims == nil {
		short := *p.storm
		short.Events = short.Events[:short.Initial+100]
		return p.writer.Play(ctx, &short, schedule)
	}
	played := make(chan error, 1)
	go func() {
		var err error
		r.written, err = p.writer.Play(ctx, p.storm, schedule)
		played <- err
	}()
	for tick := time.Tick(10 * time.Millisecond); r.tee.Visible() < uint64(len(p.storm.Events)/2); {
		select {
		case <-tick:
		case err := <-played:
			return r.written, errors.Join(errors.New("the storm was over before anything was killed"), err)
		}
	}
	err := p.cp.Kill(r.victims...)
	if err == nil {
		err = p.cp.Restart(ctx, r.victims...)
	}
	err = errors.Join(err, <-played)
	return r.written, err
}

// complete checks that the storm was written completely and that the variants end with
// the state of the cluster.
func (r *killRound) complete(t *testing.T, p playable) {
	t.Helper()
	if w := r.written; w.Refused > 0 || w.Left > 0 || w.Retried == 0 {
		t.Errorf("%v were killed: written %+v, first refusal: %v", r.victims, w, w.FirstRefusal)
	}
	list, err := kubernetes.NewForConfigOrDie(p.cp.Config()).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: p.writer.Selector()})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(p.storm.Final()); len(list.Items) != want {
		t.Errorf("%v killed: the cluster has %d pods, want %d", r.victims, len(list.Items), want)
	}
	received := map[string]*v1.Pod{}
	for _, e := range r.tee.Storm(r.tee.Visible()).Events {
		if received[e.Key] = e.Object.(*v1.Pod); e.Type == apiwatch.Deleted {
			delete(received, e.Key)
		}
	}
	for i := range list.Items {
		pod := &list.Items[i]
		key := storm.ObjectKey(pod.Namespace, pod.Name)
		h, ok := received[key]
		if !ok {
			t.Errorf("%v killed: %s was not received", r.victims, key)
			continue
		}
		// The source cluster assigns its own resourceVersions.
		pod.ResourceVersion = h.ResourceVersion
		if !equality.Semantic.DeepEqual(pod, h) {
			t.Errorf("%v killed: %s was received with another state", r.victims, key)
		}
		delete(received, key)
	}
	for key := range received {
		t.Errorf("%v killed: the deletion of %s was not received", r.victims, key)
	}
}

// checkBreaks checks the number of breaks of the watch in a round, which all cells note.
func (r *killRound) checkBreaks(t *testing.T, o *lab.Outcome, round int) {
	t.Helper()
	for _, cl := range o.Comparisons[0].Cells {
		if len(cl.Rounds) < round {
			continue
		}
		notes := map[string]float64{}
		for _, n := range cl.Rounds[round-1].Result.Notes {
			notes[n.Unit] = n.Value
		}
		relists, resumes := notes["cluster-relists"], notes["cluster-resumes"]
		switch {
		case int(relists) > len(r.victims):
			t.Errorf("%v killed once, but %v relists", r.victims, relists)
		case slices.Contains(r.victims, controlplane.APIServer) && (relists+resumes == 0 || notes["cluster-gap-ns"] <= 0):
			t.Errorf("%v killed, but no watch break: %v", r.victims, notes)
		case notes["cluster-retried"] != float64(r.written.Retried):
			t.Errorf("%v noted, of %+v", notes, r.written)
		}
	}
}
