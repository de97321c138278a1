package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
)

// clusterDriver runs the command against a control plane. standIn replaces the kubelet.
type clusterDriver struct {
	t       *testing.T
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	program string
	pods    *standIn
}

func newClusterDriver(t *testing.T) *clusterDriver {
	t.Helper()
	d := &clusterDriver{t: t, program: programs.Watchlab(t), cp: controlplane.ForTest(t, controlplane.Options{Controllers: true, Audited: "system:serviceaccounts:watchlab"})}
	d.client = kubernetes.NewForConfigOrDie(d.cp.Config())
	d.pods = standInForKubelet(t, d.cp, d.program)
	return d
}

// must runs `watchlab cluster …` against the control plane and fails the test unless the exit code is want.
func (d *clusterDriver) must(want int, args ...string) (stdout, stderr string) {
	d.t.Helper()
	place := []string{"cluster", args[0], "--kubeconfig", d.cp.Kubeconfig(), "--context", "watchlab"}
	cmd := exec.CommandContext(d.t.Context(), d.program, append(place, args[1:]...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // ProcessState has the exit code.
	if code := cmd.ProcessState.ExitCode(); code != want {
		d.t.Fatalf("cluster %v: exit code %d, want %d\n%s%s\n%s", args, code, want, &out, &errs, d.pods.said())
	}
	return out.String(), errs.String()
}

// state returns the output of `watchlab cluster status`.
func (d *clusterDriver) state(name string) fleet.State {
	d.t.Helper()
	stdout, _ := d.must(0, "status", "--name", name, "-o", "json")
	var s fleet.State
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		d.t.Fatalf("%v: %s", err, stdout)
	}
	return s
}

// collected runs `watchlab cluster collect` and returns the merged results.
func (d *clusterDriver) collected(name string) *lab.Outcome {
	d.t.Helper()
	dir := filepath.Join(d.t.TempDir(), "results")
	d.must(0, "collect", "--name", name, "--out", dir)
	o, err := lab.Load(dir)
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

// nothingLeft fails if any namespace has an object of a run.
func (d *clusterDriver) nothingLeft(plan fleet.Plan) {
	d.t.Helper()
	client := dynamic.NewForConfigOrDie(d.cp.Config())
	for _, r := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "serviceaccounts"}, {Group: "batch", Version: "v1", Resource: "jobs"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	} {
		list, err := client.Resource(r).List(d.t.Context(), metav1.ListOptions{LabelSelector: fleet.RunLabel + "=" + plan.Run})
		if err != nil {
			d.t.Fatal(err)
		}
		for _, o := range list.Items {
			d.t.Errorf("%s %s/%s of run %s remains", r.Resource, o.GetNamespace(), o.GetName(), plan.Run)
		}
	}
}

// smallRun are the flags of a run of about a second.
var smallRun = []string{"--family", "deltafifo", "--impl", "cond,clientgo-realfifo-batch", "--delivery", "in-order", "--pace", "max", "--events", "20000", "--rounds", "2", "--ignore-host"}

// TestClusterRun runs `watchlab cluster run`, status, collect and clean against the
// real control plane. The Job controller, admission and RBAC are real;
// standIn runs the pods as processes with the tokens of their service accounts.
func TestClusterRun(t *testing.T) {
	d := newClusterDriver(t)
	t.Run("Self", func(t *testing.T) {
		d.t = t
		args := append([]string{"run", "--overlay", "kind", "--name", "mine", "--pods", "3", "--", "--storm", "gang", "--scale", "0.05"}, smallRun...)
		d.must(0, args...)
		d.believed("mine", 3)
		// A second run of the same name is refused and does not change the first one.
		if _, stderr := d.must(2, args...); !strings.Contains(stderr, "--name") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("a second run of this name: %s", stderr)
		}
		s := d.state("mine")
		if !s.Over || s.Count(fleet.Succeeded) != 3 {
			t.Errorf("after the refusal: %+v", s)
		}
		d.must(0, "clean", "--name", "mine")
		d.nothingLeft(s.Plan)
		d.must(2, "clean", "--name", "mine")
	})

	t.Run("Rights", d.rights)
	t.Run("Killed", d.killed)
	t.Run("BadInput", d.badInput)

	// clean --all deletes all runs and the namespace.
	d.t = t
	d.must(0, "clean", "--all")
	if _, err := d.client.CoreV1().Namespaces().Get(t.Context(), "watchlab", metav1.GetOptions{}); err == nil {
		t.Error("the namespace is left")
	}
	t.Run("Foreign", d.foreign)
}

// rights checks by the audit log that the runs above used each right that the roles grant, and that
// no request was forbidden.
func (d *clusterDriver) rights(t *testing.T) {
	type right struct{ role, verb, group, resource string }
	role := func(account string) string { return "watchlab-" + account[strings.LastIndex(account, "-")+1:] }
	log := must(os.Open(d.cp.AuditLog()))(t)
	defer func() { _ = log.Close() }()
	used := map[right]int{}
	for lines := json.NewDecoder(log); ; {
		var e struct { // of audit.k8s.io/v1
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        *struct{ APIGroup, Resource, Subresource string }
			ResponseStatus   struct{ Code int }
		}
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e.ObjectRef == nil {
			continue
		}
		if e.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("%s may not %s %s", e.User.Username, e.Verb, e.RequestURI)
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		// All accounts have the role of the pods.
		for _, role := range []string{"watchlab-load", role(e.User.Username)} {
			used[right{role, e.Verb, e.ObjectRef.APIGroup, resource}]++
			// Whoever applies a missing object needs the right to create it, too.
			if e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated {
				used[right{role, "create", e.ObjectRef.APIGroup, resource}]++
			}
		}
	}
	// The server decides on one right: one that does not stream lists, before v1.34, is asked for a list.
	used[right{"watchlab-load", "list", "coordination.k8s.io", "leases"}]++
	objects := must(fleet.Build(specOf("kind", "watchlab", "any")))(t)
	for _, u := range objects {
		var r rbacv1.ClusterRole // A Role has the same rules.
		if !strings.HasSuffix(u.GetKind(), "Role") {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r); err != nil {
			t.Fatal(err)
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if want := (right{role(r.Name), verb, rule.APIGroups[0], resource}); used[want] == 0 {
						t.Errorf("%s grants %s of %s, which no run used", r.Name, verb, resource)
					}
				}
			}
		}
	}
}

// believed collects a run. Every pod must succeed, and no cell may be invalid.
func (d *clusterDriver) believed(name string, pods int) {
	d.t.Helper()
	s := d.state(name)
	if s.Count(fleet.Succeeded) != pods {
		d.t.Errorf("status: %+v", s)
	}
	for _, c := range d.collected(name).Comparisons {
		for _, cl := range c.Cells {
			if cl.Verdict.Status == lab.Invalid || len(cl.Rounds) == 0 {
				d.t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
				continue
			}
			d.t.Logf("%s: %d events, %s", cl.BenchName(), cl.Rounds[0].Result.EventsIn, cl.Verdict)
		}
	}
}

// killed checks that the Job retries a killed pod, that status shows the failure, and
// that collect finds the results of the second attempt.
func (d *clusterDriver) killed(t *testing.T) {
	d.t = t
	var once sync.Once
	d.pods.spoil = func(pod *corev1.Pod, process *os.Process) {
		if strings.HasPrefix(pod.Name, "watchlab-killed-1-") {
			once.Do(func() { _ = process.Kill() })
		}
	}
	_, stderr := d.must(0, append([]string{"run", "--overlay", "kind", "--name", "killed", "--pods", "2", "--", "--storm", "recorded-gang"}, smallRun...)...)
	d.pods.spoil = nil
	if !strings.Contains(stderr, "1 failed") {
		t.Errorf("no line counts the killed pod:\n%s", stderr)
	}
	s := d.state("killed")
	if s.Count(fleet.Succeeded) != 2 || s.Pods[1].Failures != 1 || s.Pods[0].Failures != 0 {
		t.Errorf("status: %+v", s)
	}
	if s := d.collected("killed").Merged.Shares[1]; s.Attempt != 1 {
		t.Errorf("share %+v, want the second attempt", s)
	}
}

// badInput checks that the Job does not retry pods with bad input.
func (d *clusterDriver) badInput(t *testing.T) {
	d.t = t
	f := must(fleet.New(d.cp.Config()))(t)
	spec := specOf("kind", "watchlab", "bad")
	spec.Plan.Experiment = json.RawMessage(`{"storm":{"name":"no-such-storm"}}`)
	if err := f.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, err := f.Follow(ctx, spec.Ref(), 3*time.Minute, func(fleet.Pod) string { return "" }, func(text string) { t.Log(text) })
	if err != nil || !s.Over || s.Failure == "" || s.Count(fleet.GivenUp) != 2 || s.Pods[0].Failures != 1 || s.Pods[0].Reason != "exit code 2" {
		t.Errorf("%+v, %v", s, err)
	}
	d.must(1, "collect", "--name", "bad")
}

// foreign checks that watchlab neither labels nor deletes a namespace that it did not
// create, and deletes no foreign objects in it.
func (d *clusterDriver) foreign(t *testing.T) {
	d.t = t
	made, err := d.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	if _, err := d.client.CoreV1().ConfigMaps("theirs").Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.must(0, append([]string{"run", "--overlay", "kind", "--namespace", "theirs", "--name", "guest", "--pods", "1", "--wait=false", "--", "--storm", "recorded-gang"}, smallRun...)...)
	d.must(0, "clean", "--namespace", "theirs", "--all")
	ns, err := d.client.CoreV1().Namespaces().Get(t.Context(), "theirs", metav1.GetOptions{})
	if err != nil || ns.DeletionTimestamp != nil || ns.UID != made.UID || len(ns.Labels) != len(made.Labels) {
		t.Errorf("the namespace is %+v, %v", ns.ObjectMeta, err)
	}
	if _, err := d.client.CoreV1().ConfigMaps("theirs").Get(t.Context(), "theirs", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	accounts, err := d.client.CoreV1().ServiceAccounts("theirs").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=watchlab"})
	if err != nil || len(accounts.Items) > 0 {
		t.Errorf("service accounts remain: %d, %v", len(accounts.Items), err)
	}
}
