package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// TestRecord records several resources of a real cluster into one anonymised trace and plays the
// trace. Concurrently, --source cluster plays the cluster's events into variants.
func TestRecord(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	recorded := must(trace.Load("recorded-gang"))(t)
	played := *recorded
	played.Events, played.Initial = recorded.Events[:200], 0
	written := must(cluster.For(cp.Config()))(t)
	pods := must(written.Resource("po"))(t)
	writer := must(cluster.NewWriter(written, pods, "record"))(t)
	done := make(chan error, 1)
	go func() {
		_, err := writer.Play(t.Context(), &played, pace.Rate(25))
		done <- err
	}()
	path := filepath.Join(t.TempDir(), "storm.jsonl.zst")
	program := programs.Watchlab(t)
	recorder := programs.Start(t, exec.Command(program, "record", "--kubeconfig", cp.Kubeconfig(), "--resource", "po,namespaces,leases.coordination.k8s.io", "-o", path))
	watchlab := func(args ...string) []byte {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("watchlab %s: %v\n%s", strings.Join(args, " "), err, &errs)
		}
		return out
	}
	var o lab.Outcome
	if err := json.Unmarshal(watchlab("run", "--family", "deltafifo", "--source", "cluster", "--kubeconfig", cp.Kubeconfig(), "--context", "watchlab", "--resource", "pods",
		"--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring", "--for", "3s", "--rounds", "1", "--ignore-host", "-o", "json"), &o); err != nil {
		t.Fatal(err)
	}
	for _, cl := range o.Comparisons[0].Cells {
		if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) != 1 || cl.Rounds[0].Result.EventsIn < 10 {
			t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	recorder.Stop(t)

	set := must(trace.LoadSet(path))(t)
	if err := set.Validate(); err != nil {
		t.Error(err)
	}
	events := map[string]int{}
	for _, st := range set.Storms {
		events[st.Resource.Resource] = len(st.Events)
	}
	if len(events) != 3 || events["pods"] < 150 {
		t.Fatalf("recorded %v, want 200 events of pods, and namespaces and leases", events)
	}
	lines := filepath.Join(t.TempDir(), "storm.jsonl")
	watchlab("trace", "convert", path, lines)
	text := must(os.ReadFile(lines))(t)
	if i := slices.IndexFunc(played.Events, func(e storm.Event) bool {
		_, name, _ := strings.Cut(e.Key, "/")
		return bytes.Contains(text, []byte(name))
	}); i >= 0 {
		t.Fatalf("the name %s is in the trace", played.Events[i].Key)
	}
	watchlab("run", "--family", "deltafifo", "--storm", path, "--pipeline", "informer", "--impl", "clientgo-realfifo-batch,ring", "--delivery", "in-order", "--rounds", "1", "--ignore-host")
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
