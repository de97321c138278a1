package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
	"watchlab/cmd/watchlab/cli"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/trace"
)

// watchlab runs the command and returns its output.
func watchlab(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(args, &out, &errs); code != 0 {
		t.Fatalf("watchlab %s: exit code %d\n%s%s", strings.Join(args, " "), code, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// TestRecord records several resources of a real cluster into one anonymised trace and plays the
// trace. Concurrently, --source cluster plays the cluster's events into variants.
func TestRecord(t *testing.T) {
	p := newPlayable(t, "record", 0, 200)
	played := make(chan error, 1)
	go func() {
		_, err := p.writer.Play(t.Context(), p.storm, pace.Rate(25))
		played <- err
	}()
	path := filepath.Join(t.TempDir(), "storm.jsonl.zst")
	recorder := background(t, "record", "--kubeconfig", p.cp.Kubeconfig(), "--resource", "po,namespaces,leases.coordination.k8s.io", "-o", path)
	o := outcomeOf(t, "run", "--family", "deltafifo", "--source", "cluster", "--kubeconfig", p.cp.Kubeconfig(), "--context", "watchlab", "--resource", "pods",
		"--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring", "--for", "3s", "--rounds", "1", "--ignore-host", "-o", "json")
	for _, cl := range o.Comparisons[0].Cells {
		if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) != 1 || cl.Rounds[0].Result.EventsIn < 10 {
			t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
			continue
		}
		t.Logf("%s: %d events in 3 s, %s", cl.BenchName(), cl.Rounds[0].Result.EventsIn, cl.Verdict)
	}
	if err := <-played; err != nil {
		t.Fatal(err)
	}
	t.Log(recorder.interrupt(t))

	set, err := trace.LoadSet(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Validate(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, st := range set.Storms {
		names = append(names, st.Resource.Resource)
	}
	pods := slices.Index(names, "pods")
	slices.Sort(names)
	if got := strings.Join(names, ","); got != "leases,namespaces,pods" {
		t.Fatalf("recorded %s", got)
	}
	recorded := set.Storms[pods]
	if len(recorded.Events) < 150 {
		t.Fatalf("%d of 200 pod events were recorded", len(recorded.Events))
	}
	lines := filepath.Join(t.TempDir(), "storm.jsonl")
	watchlab(t, "trace", "convert", path, lines)
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.storm.Events {
		if _, name, _ := strings.Cut(p.storm.Events[i].Key, "/"); bytes.Contains(text, []byte(name)) {
			t.Fatalf("the name %s is in the trace", name)
		}
	}
	watchlab(t, "run", "--family", "deltafifo", "--storm", path, "--pipeline", "informer", "--impl", "clientgo-realfifo-batch,ring", "--delivery", "in-order", "--rounds", "1")
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
