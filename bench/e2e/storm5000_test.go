package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/trace"
)

// TestFiveThousandPods writes a storm of 5,000 pods, with about 500 changes, into a real cluster. The command plays the
// cluster's watch into variants and records it. Then it plays the recording through all variants of
// the families that can handle 5,000 pods. The writer deletes all pods.
func TestFiveThousandPods(t *testing.T) {
	if testing.Short() {
		t.Skip("short: TestApplyAndTee and TestRecord do the same with fewer pods")
	}
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	client := kubernetes.NewForConfigOrDie(cp.Config())
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }

	recorder := background(t, "record", "--kubeconfig", cp.Kubeconfig(), "--resource", "pods", "-o", path("storm.wlt"))
	// The warm-up round creates some of the pods, the measured round all of them.
	outcome := outcomeOf(t, "run", "--family", "deltafifo", "--source", "apply", "--kubeconfig", cp.Kubeconfig(), "--context", "watchlab",
		"--storm", "steady", "--pods", "5000", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond,ring", "--pace", "400",
		"--for", "5m", "--rounds", "1", "--ignore-host", "--out", path("applied"), "-o", "json")
	t.Log(recorder.interrupt(t))
	written := 0
	for _, cl := range outcome.Comparisons[0].Cells {
		if len(cl.Rounds) != 1 {
			t.Fatalf("%s: %s", cl.BenchName(), cl.Verdict)
		}
		r := cl.Rounds[0].Result
		notes := map[string]float64{}
		for _, n := range r.Notes {
			notes[n.Unit] = n.Value
		}
		t.Logf("%s: %d events, %v", cl.BenchName(), r.EventsIn, notes)
		written = int(notes["cluster-written"])
		if written < 5500 || notes["cluster-refused"] > 0 || notes["cluster-unwritten"] > 0 || r.EventsIn < uint64(written) {
			t.Errorf("%s: %d events received of the written ones: %v", cl.BenchName(), r.EventsIn, notes)
		}
	}

	programs.Eventually(t, "nothing is left", func() error {
		namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: cluster.RunLabel})
		if err == nil && len(namespaces.Items) > 0 {
			err = errors.New("namespace " + namespaces.Items[0].Name + " is there")
		}
		pods, perr := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: cluster.RunLabel, Limit: 1})
		if perr == nil && len(pods.Items) > 0 {
			perr = errors.New("pod " + pods.Items[0].Name + " is there")
		}
		return errors.Join(err, perr)
	})

	recorded, err := trace.Load(path("storm.wlt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := recorded.Validate(); err != nil {
		t.Error(err)
	}
	counts := map[apiwatch.EventType]int{}
	for i := range recorded.Events {
		counts[recorded.Events[i].Type]++
	}
	t.Logf("recorded: %v", counts)
	if counts[apiwatch.Added] < 5000 || counts[apiwatch.Deleted] < 5000 || len(recorded.Events) < written || len(recorded.Final()) > 0 {
		t.Errorf("recorded %v of %d written events; %d pods remain", counts, written, len(recorded.Final()))
	}

	for _, family := range []string{"deltafifo", "queue"} {
		args := []string{"run", "--family", family, "--storm", path("storm.wlt"), "--rounds", "1", "--ignore-host", "-o", "json"}
		if family == "deltafifo" {
			args = append(args, "--pipeline", "informer")
		}
		cells := 0
		for _, c := range outcomeOf(t, args...).Comparisons {
			for _, cl := range c.Cells {
				cells++
				if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) != 1 {
					t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
				}
			}
		}
		if cells < 5 {
			t.Errorf("%s: %d cells", family, cells)
		}
	}
}

// running is the command in the background.
type running struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// background starts the command and stops it when the test ends.
func background(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(programs.Watchlab(t), args...), stderr: new(bytes.Buffer)}
	r.cmd.Stderr = r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	return r
}

// interrupt sends SIGINT, waits for the end, and returns stderr.
func (r *running) interrupt(t *testing.T) string {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(r.cmd.Args[1:], " "), err, r.stderr)
	}
	return r.stderr.String()
}

// outcomeOf runs the command to its end and decodes its JSON output.
func outcomeOf(t *testing.T, args ...string) *lab.Outcome {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(programs.Watchlab(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("watchlab %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	o := new(lab.Outcome)
	if err := json.Unmarshal(out.Bytes(), o); err != nil {
		t.Fatal(err)
	}
	return o
}
