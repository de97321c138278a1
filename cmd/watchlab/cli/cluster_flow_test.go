package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/loadgen/apiserver"
)

// simulated returns the kubeconfig of a simulated API server. changed may be nil.
func simulated(t *testing.T, changed func(apiserver.Change)) (kubeconfig string) {
	t.Helper()
	srv := must(apiserver.Open(apiserver.Options{Changed: changed}))(t)
	url := must(srv.Start())(t)
	t.Cleanup(func() { _ = srv.Close() })
	return kubeconfigOf(t, url)
}

// flow is a run on a simulated API server, without controllers: the test starts the pods.
type flow struct {
	*testing.T
	kubeconfig, plan string
	client           *kubernetes.Clientset

	mu    sync.Mutex             // guards leases
	wrote map[string]chan string // the barrier annotations of a Lease, by name
}

func (f *flow) lease(name string) chan string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wrote[name] == nil {
		f.wrote[name] = make(chan string, 1000)
	}
	return f.wrote[name]
}

// newFlow starts a run with two pods.
func newFlow(t *testing.T, barrier string) *flow {
	t.Helper()
	f := &flow{T: t, wrote: map[string]chan string{}}
	f.kubeconfig = simulated(t, func(c apiserver.Change) {
		if o, ok := c.Object.(v1.Object); ok && c.Resource.Resource == "leases" {
			f.lease(o.GetName()) <- o.GetAnnotations()["watchlab.dev/barrier"]
		}
	})
	f.client = clientOf(t, f.kubeconfig)
	code, _, stderr := call(t, f.verb("run", "--barrier", barrier, "--pods", "2", "--wait=false", "--", "--family", "queue", "--impl", "cond",
		"--storm", tiny, "--events", "3000", "--rounds", "2", "--ignore-host")...)
	if code != exitOK {
		t.Fatal(stderr)
	}
	// The kubelet mounts the files of the plan.
	plan := must(f.client.CoreV1().ConfigMaps("watchlab").Get(t.Context(), "watchlab-mine", v1.GetOptions{}))(t)
	dir := t.TempDir()
	for name, text := range plan.Data {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, fleet.PlanDir, dir)), 0o600))
	}
	f.plan = filepath.Join(dir, "plan.yaml")
	t.Setenv(fleet.NamespaceVar, "watchlab")
	return f
}

func (f *flow) verb(verb string, args ...string) []string {
	return append([]string{"cluster", verb, "--kubeconfig", f.kubeconfig, "--context", "one", "--name", "mine"}, args...)
}

// pod starts a pod and returns when it has joined the barrier. wait ends with the pod.
func (f *flow) pod(ctx context.Context, index, failures int) (wait func() (code int, stderr string)) {
	f.Helper()
	f.Setenv(fleet.IndexVar, strconv.Itoa(index))
	f.Setenv(fleet.PodVar, fmt.Sprintf("pod-%d-%d", index, failures))
	f.Setenv(fleet.FailuresVar, strconv.Itoa(failures))
	var errs bytes.Buffer
	code, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		code = run(ctx, []string{"pod", "--plan", f.plan, "--kubeconfig", f.kubeconfig, "--metrics-addr", "127.0.0.1:0"}, new(bytes.Buffer), &errs)
	}()
	wait = func() (int, string) { <-done; return code, errs.String() }
	select {
	case <-f.lease(fmt.Sprintf("watchlab-mine-member-%d", index)):
	case <-done:
		f.Fatalf("pod %d: exit code %d: %s", index, code, &errs)
	}
	return wait
}

// collected collects the run, with all its pods, and deletes it.
func (f *flow) collected() (o *lab.Outcome, stderr string) {
	f.Helper()
	out := filepath.Join(f.TempDir(), "out")
	code, stdout, stderr := call(f.T, f.verb("collect", "--out", out)...)
	if code != exitOK || !strings.Contains(stdout, "2 shares") || !strings.Contains(stderr, "2 shares merged; results are in "+out) {
		f.Fatalf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	o = must(lab.Load(out))(f)
	if code, _, stderr := call(f.T, f.verb("clean")...); code != exitOK {
		f.Errorf("clean: exit code %d: %s", code, stderr)
	}
	maps, mapsErr := f.client.CoreV1().ConfigMaps("").List(f.Context(), v1.ListOptions{LabelSelector: fleet.RunLabel})
	leases, err := f.client.CoordinationV1().Leases("").List(f.Context(), v1.ListOptions{LabelSelector: fleet.RunLabel})
	if err != nil || mapsErr != nil || len(maps.Items)+len(leases.Items) > 0 {
		f.Errorf("left are %d ConfigMaps, %d Leases, %v, %v", len(maps.Items), len(leases.Items), mapsErr, err)
	}
	return o, stderr
}

// TestClusterFlow: ready, start, upload, collect, clean.
func TestClusterFlow(t *testing.T) {
	f := newFlow(t, "5m")
	first := f.pod(t.Context(), 0, 0)
	select {
	case text := <-f.lease("watchlab-mine-start"):
		t.Errorf("a start before both are ready: %s", text)
	default:
	}
	second := f.pod(t.Context(), 1, 0)
	for i, wait := range []func() (int, string){first, second} {
		if code, stderr := wait(); code != exitOK || !strings.Contains(stderr, fmt.Sprintf("pod %d/2 uploaded", i)) {
			t.Fatalf("pod %d: exit code %d: %s", i, code, stderr)
		}
	}
	if code, stdout, _ := call(t, f.verb("status")...); code != exitOK || strings.Count(stdout, "play 6 of 6") != 2 {
		t.Errorf("status: %s", stdout)
	}
	o, _ := f.collected()
	for _, s := range o.Merged.Shares {
		t.Logf("pod %d: %d starts, %v late at most", s.Index, s.Starts, s.Late)
		if s.Starts == 0 || s.Alone > 0 || s.Attempt != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestClusterFlowPodDies: a pod that ends early is played again; its second attempt counts.
func TestClusterFlowPodDies(t *testing.T) {
	f := newFlow(t, "5m")
	first := f.pod(t.Context(), 0, 0)
	ctx, kill := context.WithCancel(t.Context())
	dying := f.pod(ctx, 1, 0)
	<-f.lease("watchlab-mine-start")
	kill()
	if code, stderr := dying(); code != exitInterrupted {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	again := f.pod(t.Context(), 1, 1)
	for _, wait := range []func() (int, string){first, again} {
		if code, stderr := wait(); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
	}
	o, stderr := f.collected()
	if s := o.Merged.Shares[1]; s.Attempt != 1 || s.Pod != "pod-1-1" || s.Late <= 0 {
		t.Errorf("%+v\n%s", s, stderr)
	}
}

// TestClusterFlowMissedStart: the results of a pod that was not ready in time are merged, and the run
// says that the starts were without it.
func TestClusterFlowMissedStart(t *testing.T) {
	f := newFlow(t, "1ms")
	if code, stderr := f.pod(t.Context(), 0, 0)(); code != exitOK || !strings.Contains(stderr, "pod 1 missed the barrier timeout 1ms and is skipped") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if code, stderr := f.pod(t.Context(), 1, 0)(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	o, _ := f.collected()
	shares := o.Merged.Shares
	if shares[0].Alone != shares[0].Starts || shares[1].Late <= 0 {
		t.Errorf("%+v", shares)
	}
	report, err := os.ReadFile(filepath.Join(o.Dir, "report.md"))
	if want := fmt.Sprintf("(%d without some)", shares[0].Alone); err != nil || !strings.Contains(string(report), want) {
		t.Errorf("the report does not say %q (%v)", want, err)
	}
}
