package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/report"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
	"watchlab/loadgen/trace/record"
)

// TestKilledMidStorm kills control plane components with SIGKILL in the middle of a
// storm and restarts them: the API server in the first round, etcd in the second, both
// in the third. Meanwhile the command plays the cluster's watch into all variants and
// records it. The whole storm is written, and the variants and the recording end with
// the state of the cluster. All report formats show the breaks of the watch.
//
// The test does not expect a fixed number of lists, because the server decides it:
//
//   - A killed API server ends all watches. The new one knows no resourceVersion before
//     its own first list. If etcd's version has advanced since the last event of the
//     watch, the server answers 410 and the client lists once. Otherwise the watch
//     resumes without a list.
//   - If etcd alone is killed, the API server may keep its clients' watches and resume
//     its own from etcd's history. Or it loses its own watch, ends those of its clients,
//     and drops the history.
//   - If both are killed, the new API server may in addition lose its watch of the new etcd.
//   - A new API server may also end all watches in its first burst of writes. They
//     resume at their last resourceVersion.
func TestKilledMidStorm(t *testing.T) {
	const initial, events, rate = 40, 400, 200
	p := newPlayable(t, "kill", initial, events)
	recording := startRecording(t, p)

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
	for _, r := range rounds[1:] {
		t.Logf("%v killed: written %+v, watch %+v", r.victims, r.written, r.tee.Breaks())
	}
	recording.complete(t, p)

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
	there := podsOf(t, p)
	if want := len(p.storm.Final()); len(there) != want {
		t.Errorf("%v killed: the cluster has %d pods, want %d", r.victims, len(there), want)
	}
	received := map[string]*v1.Pod{}
	for _, e := range r.tee.Storm(r.tee.Visible()).Events {
		if received[e.Key] = e.Object.(*v1.Pod); e.Type == apiwatch.Deleted {
			delete(received, e.Key)
		}
	}
	for key, pod := range there {
		h, ok := received[key]
		if !ok {
			t.Errorf("%v killed: %s was not received", r.victims, key)
			continue
		}
		// The source cluster assigns its own resourceVersions.
		pod = pod.DeepCopy()
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

// checkBreaks checks the number of breaks of the watch in a round, and that each form of the
// report shows it.
func (r *killRound) checkBreaks(t *testing.T, o *lab.Outcome, round int) {
	t.Helper()
	var notes map[string]float64
	for _, cl := range o.Comparisons[0].Cells {
		if len(cl.Rounds) < round {
			continue
		}
		own := map[string]float64{}
		for _, n := range cl.Rounds[round-1].Result.Notes {
			if strings.HasPrefix(n.Unit, "cluster-") {
				own[n.Unit] = n.Value
			}
		}
		if notes != nil && !maps.Equal(notes, own) {
			t.Errorf("cells of one round note %v and %v", notes, own)
		}
		notes = own
	}
	relists, resumes := notes["cluster-relists"], notes["cluster-resumes"]
	want := fmt.Sprintf("round %d: ", round)
	switch {
	case int(relists) > len(r.victims):
		t.Errorf("%v killed once, but %v relists", r.victims, relists)
	case slices.Contains(r.victims, controlplane.APIServer) && (relists+resumes == 0 || notes["cluster-gap-ns"] <= 0):
		t.Errorf("%v killed, but no watch break: %v", r.victims, notes)
	}
	if resumes > 0 {
		want += "watch resumed: "
	} else if relists > 0 {
		want += fmt.Sprintf("watch relisted: %v; ", relists)
	}
	if notes["cluster-retried"] != float64(r.written.Retried) {
		t.Errorf("%v noted, of %+v", notes, r.written)
	}
	for name, write := range map[string]func(io.Writer, *lab.Outcome) error{"table": report.Table, "Markdown": report.Markdown, "HTML": report.HTML} {
		var b bytes.Buffer
		if err := write(&b, o); err != nil {
			t.Fatal(err)
		}
		// The table wraps its notes.
		text := strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "&#39;", "'")), " ")
		i := strings.Index(text, want)
		if i < 0 {
			t.Errorf("%s does not say %q", name, want)
			continue
		}
		line := text[i:min(i+300, len(text))]
		if !strings.Contains(line, "writes retried: ") || relists > 0 && !strings.Contains(line, "watch relisted: 1") {
			t.Errorf("%s does not say all of %v: %s", name, notes, line)
		}
		if name == "table" {
			t.Log(line)
		}
	}
}

// podsOf lists the pods of the writer's run.
func podsOf(t *testing.T, p playable) map[string]*v1.Pod {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(p.cp.Config()).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: p.writer.Selector()})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*v1.Pod{}
	for i := range list.Items {
		pods[storm.ObjectKey(list.Items[i].Namespace, list.Items[i].Name)] = &list.Items[i]
	}
	return pods
}

// recording records all pods while a test runs, and holds the final state.
type recording struct {
	trace.FrameWriter
	path string
	stop context.CancelFunc
	done chan error
	sums []record.Summary

	mu sync.Mutex
	// state is the resourceVersion of each pod. Guarded by mu.
	state map[string]string
	// breaks are the breaks of the watch. Guarded by mu.
	breaks []trace.Break
}

func startRecording(t *testing.T, p playable) *recording {
	t.Helper()
	r := &recording{path: filepath.Join(t.TempDir(), "kill.jsonl.zst"), done: make(chan error, 1), state: map[string]string{}}
	f, err := os.Create(r.path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.NewWriter(f, trace.Header{Resources: []trace.Resource{record.ResourceOf(p.pods)}, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	r.FrameWriter = w
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		var err error
		r.sums, err = record.Record(ctx, r, record.Options{Config: p.cp.Config(), Resources: []cluster.Resource{p.pods}})
		r.done <- errors.Join(err, w.Close(), f.Close())
	}()
	return r
}

func (r *recording) Write(f trace.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case f.Break != nil:
		r.breaks = append(r.breaks, *f.Break)
	case f.Type != apiwatch.Bookmark:
		key, version, err := f.Key()
		if err != nil {
			return err
		}
		if r.state[key] = version; f.Type == apiwatch.Deleted {
			delete(r.state, key)
		}
	}
	return r.FrameWriter.Write(f)
}

// complete checks that the trace is readable, contains the breaks of the watch, and ends
// with the state of the cluster.
func (r *recording) complete(t *testing.T, p playable) {
	t.Helper()
	want := map[string]string{}
	for key, pod := range podsOf(t, p) {
		want[key] = pod.ResourceVersion
	}
	programs.Eventually(t, "what the cluster has is recorded", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !maps.Equal(r.state, want) {
			return fmt.Errorf("%d pods are recorded, of %d", len(r.state), len(want))
		}
		return nil
	})
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	s := r.sums[0]
	t.Logf("recorded: %+v; breaks: %+v", s, r.breaks)
	if s.Reconnects+s.Relists == 0 || s.Relists > 3 || len(r.breaks) != s.Reconnects+s.Relists {
		t.Errorf("%d breaks in the recording of %+v", len(r.breaks), s)
	}
	for _, b := range r.breaks {
		if b.DownNs <= 0 {
			t.Errorf("a break without duration: %+v", b)
		}
	}
	set, err := trace.LoadSet(r.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Validate(); err != nil {
		t.Error(err)
	}
}
