package controller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/controller"
	"watchlab/bench/controller/program"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/lab"
)

func spec(t *testing.T, kind string) controller.Spec {
	t.Helper()
	return controller.Spec{
		Workload: "testdata/copies.yaml", Rules: "testdata/rules.yaml", Plans: []string{controller.PlanNone},
		Programs: []controller.Program{{Label: controller.New, Command: copier(t, kind)}},
		Settle:   metav1.Duration{Duration: 20 * time.Second}, Warmup: metav1.Duration{Duration: 5 * time.Minute},
	}
}

func play(t *testing.T, s controller.Spec, o controller.Options) (*controller.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("the plays took more than %v", patience))
	defer cancel()
	o.Quick()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "results")
	}
	r, err := controller.Run(ctx, s, o)
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx), err)
	}
	return r, err
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	var progress []controller.Progress
	r, err := play(t, spec(t, correct), controller.Options{
		Dir: dir, Progress: func(p controller.Progress) { progress = append(progress, p) },
	})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plays[0]
	for _, v := range p.Verdicts {
		if v.Failed {
			t.Errorf("%s: %s %v", v.Name, v.Text, v.Evidence)
		}
	}
	// 8 copies at first and 4 later; of the changes those whose data is other than that of the copy.
	creates, updates := 0, 0
	for _, q := range p.Requests {
		switch q.Verb + " " + q.Resource {
		case "create configmaps":
			creates = q.Count - q.Conflicts
		case "update configmaps":
			updates = q.Count - q.Conflicts
		}
	}
	if creates != 12 || updates < 1 || updates > 20 || p.Figures[controller.UnitRelists] != 1 {
		t.Errorf("%d created and %d updated copies, want 12 and 1 to 20: %+v", creates, updates, p.Requests)
	}
	answered := 0
	for _, l := range p.Latencies {
		answered += l.Answered
	}
	if answered < 12 || p.Figures[controller.UnitP99] < p.Figures[controller.UnitP50] || p.Figures[controller.UnitP50] <= 0 {
		t.Errorf("%d answered events, %+v", answered, p.Figures)
	}
	if len(progress) != 1 || progress[0].Plays != 1 {
		t.Errorf("progress %+v", progress)
	}
	again, err := controller.ReadResult(dir)
	if err != nil || again.Sentence != r.Sentence || len(again.Plays) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
	if files := names(t, filepath.Join(dir, p.Folder)); !slices.Equal(files, []string{"changes.jsonl.gz", "controller-0.log", "requests.jsonl.gz"}) {
		t.Errorf("files %v: a kubeconfig holds a token", files)
	}
	if _, err := play(t, spec(t, correct), controller.Options{Dir: dir}); !errors.Is(err, lab.ErrExists) {
		t.Errorf("%v for a folder that exists", err)
	}
}

// TestSettling: a play waits for what the rules ask for, and for a write that is due, but not for a lock.
func TestSettling(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{slow: "", beating: verdict.NeverConverged, leader: ""} {
		s := spec(t, kind)
		s.Settle.Duration = 4 * time.Second
		if kind == slow {
			s.Settle.Duration = patience // It begins when the machine lets it.
		}
		r, err := play(t, s, controller.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v := r.Plays[0].Failure(); v != nil {
			got = v.Name
		}
		if got != want {
			t.Errorf("%s: %q failed, want %q: %+v", kind, got, want, r.Plays[0].Verdicts)
		}
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// TestAgainst: two programs are played in turn, and the results folder can be read after each play.
func TestAgainst(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	s := spec(t, correct)
	s.Programs = []controller.Program{{Label: controller.Old, Command: copier(t, correct)}, s.Programs[0]}
	s.Rounds = 2
	var kept []int // plays in the folder when the next one begins
	r, err := play(t, s, controller.Options{Dir: dir, Progress: func(p controller.Progress) {
		if p.Play == 1 {
			return
		}
		o, err := controller.ReadResult(dir)
		if err != nil {
			t.Error(err)
			return
		}
		kept = append(kept, len(o.Plays))
	}})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, p := range r.Plays {
		order = append(order, p.Program)
	}
	if !slices.Equal(order, []string{"old", "new", "new", "old"}) || !slices.Equal(kept, []int{1, 2, 3}) {
		t.Errorf("order %v, plays kept %v", order, kept)
	}
	if len(r.Compared) == 0 || r.Compared[0].Stats.Testable {
		t.Errorf("%+v of two rounds", r.Compared)
	}
}

// twoFaults has a plan of two faults. Only the second one makes the program fail: it has to list again, however
// late that is.
func twoFaults(t *testing.T) controller.Spec {
	t.Helper()
	s := spec(t, brittle)
	s.Plans = append(s.Plans, "duplicate-bookmark:at=10ms; relist:at=20ms")
	s.Speed = 3
	return s
}

func TestShrunk(t *testing.T) {
	t.Parallel()
	most := 0
	r, err := play(t, twoFaults(t), controller.Options{Progress: func(p controller.Progress) { most = p.Shrinking }})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Plays[0]; p.Failed() {
		t.Errorf("without faults: %+v", p.Verdicts)
	}
	if len(r.Plays) != 2 || !r.Plays[1].Failed() || r.Shrunk == nil {
		t.Fatalf("%s: %+v", r.Sentence, r.Shrunk)
	}
	sh := r.Shrunk
	if sh.Verdict != verdict.Crashed || len(sh.Faults) != 1 || !strings.HasPrefix(sh.Faults[0], "relist:") || sh.Of != 2 || sh.Failed != sh.Repeated {
		t.Errorf("%+v", sh)
	}
	if !strings.Contains(sh.Command, "--faults relist:at=20ms ") {
		t.Errorf("command %s", sh.Command)
	}
	if sh.Plays > most || most != 20 {
		t.Errorf("%d plays of at most %d", sh.Plays, most)
	}
}

// TestShrinkingInterrupted: the verdicts and the smallest plan so far are kept.
func TestShrinkingInterrupted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := controller.Options{Dir: dir, Progress: func(p controller.Progress) {
		if p.Play-p.Plays == 2 {
			cancel()
		}
	}}
	o.Quick()
	if _, err := controller.Run(ctx, twoFaults(t), o); err != nil {
		t.Fatal(err)
	}
	r, err := controller.ReadResult(dir)
	if err != nil || !r.Interrupted || len(r.Plays) != 2 || !r.Plays[1].Failed() || r.Shrunk == nil {
		t.Fatalf("%v, %+v", err, r)
	}
	if sh := r.Shrunk; sh.Plays != 1 || sh.Repeated != 0 || len(sh.Faults) != 2 || !strings.Contains(r.Sentence, "interrupted") {
		t.Errorf("%s: %+v", r.Sentence, sh)
	}
}

// TestUnshrunk: a failed plan is the last play.
func TestUnshrunk(t *testing.T) {
	t.Parallel()
	s := twoFaults(t)
	s.Plans, s.Unshrunk = s.Plans[1:], true
	r, err := play(t, s, controller.Options{})
	if err != nil || len(r.Plays) != 1 || !r.Plays[0].Failed() || r.Shrunk != nil {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestRestart: the first of two replicas is killed and started again, which is no crash.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := spec(t, correct)
	s.Replicas, s.Plans = 2, []string{"crash:at=300ms"}
	s.Rules = "" // Two copiers without an election conflict.
	r, err := play(t, s, controller.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plays[0]
	at := slices.IndexFunc(p.Exits, func(e record.Exit) bool {
		return e.Client == "controller-0" && e.At > 0
	})
	if at < 0 || !p.Exits[at].Planned || p.Figures[controller.UnitRelists] != 3 {
		t.Errorf("exits %+v, %v relists", p.Exits, p.Figures[controller.UnitRelists])
	}
	for _, v := range p.Verdicts {
		if v.Name == verdict.Crashed && v.Failed {
			t.Errorf("%+v", v)
		}
	}
}

// TestAttached: a program that runs elsewhere is judged as well.
func TestAttached(t *testing.T) {
	t.Parallel()
	s := spec(t, correct)
	s.Programs, s.Attach = nil, true
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	r, err := play(t, s, controller.Options{Notify: func(text string) {
		_, path, _ := strings.Cut(text, "controller-0 connects with KUBECONFIG=")
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { ended <- runCopier(ctx, config, correct) }()
	}})
	cancel()
	if ended := <-ended; err != nil || !errors.Is(ended, context.Canceled) {
		t.Fatal(err, ended)
	}
	if p := r.Plays[0]; p.Failed() || p.Figures[controller.UnitWrites] < 12 {
		t.Errorf("%+v", p)
	}
}

// TestInterrupted: an interrupted run keeps what it has played.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := controller.Options{Dir: dir, Progress: func(p controller.Progress) {
		if p.Play == 2 {
			cancel()
		}
	}}
	o.Quick()
	s := spec(t, correct)
	s.Rounds = 3
	r, err := controller.Run(ctx, s, o)
	if err != nil || !r.Interrupted || len(r.Plays) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	again, err := controller.ReadResult(dir)
	if err != nil || !again.Interrupted || len(again.Plays) != 1 {
		t.Errorf("%v, %+v", err, again)
	}
}

func TestNoWatch(t *testing.T) {
	t.Parallel()
	s := spec(t, idle)
	s.Warmup.Duration = 300 * time.Millisecond
	if _, err := play(t, s, controller.Options{}); !errors.Is(err, controller.ErrNoWatch) {
		t.Errorf("%v", err)
	}
	s.Warmup.Duration = patience
	s.Programs[0].Command = []string{"sh", "-c", "echo no configuration; exit 4"}
	if _, err := play(t, s, controller.Options{}); err == nil || !strings.Contains(err.Error(), "exit status 4 (its log ends with: no configuration)") {
		t.Errorf("%v", err)
	}
	s.Programs[0].Command = []string{"/does/not/exist"}
	dir := filepath.Join(t.TempDir(), "results")
	if _, err := play(t, s, controller.Options{Dir: dir}); !errors.Is(err, program.ErrCommand) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("a folder for a program that does not exist")
	}
}
