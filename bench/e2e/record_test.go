package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/loadgen/trace"
)

// TestRecord records several resources of a real cluster into one anonymised trace and plays the
// trace.
func TestRecord(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	client := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1()
	// Pods need it, and there are no controllers to make it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- change(t.Context(), client.Pods("default")) }()
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
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	recorder.Stop(t)

	set := must(trace.LoadSet(path))(t)
	for _, s := range set.Storms {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
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
	if bytes.Contains(text, []byte(podPrefix)) {
		t.Fatal("a name is in the trace")
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

const podPrefix = "payroll-" // of the recorded pods' names

// change makes 50 pods that no node runs, and changes each three times.
func change(ctx context.Context, pods typedcorev1.PodInterface) error {
	for round := range 4 {
		for i := range 50 {
			name := podPrefix + strconv.Itoa(i)
			var err error
			if round == 0 {
				_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
					Containers:      []corev1.Container{{Name: "c", Image: "i"}},
					SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}},
				}}, metav1.CreateOptions{})
			} else {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round)
				_, err = pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			}
			if err != nil {
				return err
			}
			time.Sleep(40 * time.Millisecond) // The recording begins during the changes.
		}
	}
	return nil
}
