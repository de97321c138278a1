package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet"
	"watchlab/bench/fleet/barrier"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
	"watchlab/loadgen/source/cluster"
)

// jobPods runs the pods of a run as processes against a real API server.
type jobPods struct {
	*testing.T
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	program string
	plan    fleet.Plan
	file    string

	mu sync.Mutex
	// output is by pod name. Guarded by mu.
	output map[string]*bytes.Buffer
}

func newPods(t *testing.T, cp *controlplane.ControlPlane, plan fleet.Plan) *jobPods {
	t.Helper()
	s := &jobPods{T: t, cp: cp, client: kubernetes.NewForConfigOrDie(cp.Config()), program: programs.Watchlab(t), plan: plan, output: map[string]*bytes.Buffer{}}
	text, err := s.plan.YAML()
	if err != nil {
		t.Fatal(err)
	}
	s.file = filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(s.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.plan.Run}}
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a pod of a role, with an index and a pod name.
func (s *jobPods) start(role string, index int, pod string) *exec.Cmd {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), s.program, "pod", "--plan", s.file, "--role", role, "--kubeconfig", s.cp.Kubeconfig(), "--metrics-addr=127.0.0.1:0")
	cmd.Env = append(os.Environ(), fleet.IndexVar+"="+strconv.Itoa(index), fleet.PodVar+"="+pod, fleet.NodeVar+"=node", fleet.NamespaceVar+"="+s.plan.Run)
	if strings.HasSuffix(pod, "-again") {
		cmd.Env = append(cmd.Env, fleet.FailuresVar+"=1")
	}
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	s.mu.Lock()
	s.output[pod] = out
	s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	return cmd
}

// wait waits for the end of a process, whose exit code must be 0.
func (s *jobPods) wait(cmd *exec.Cmd, pod string) {
	s.Helper()
	if err := cmd.Wait(); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Fatalf("%s: %v\n%s", pod, err, s.output[pod])
	}
}

// uploaded returns the uploaded results by the index of the pod. Every pod must have
// exactly one result.
func (s *jobPods) uploaded() []*lab.Share {
	s.Helper()
	all := make([]*lab.Share, s.plan.Pods)
	damaged, err := upload.ConfigMaps{Client: s.client.CoreV1().ConfigMaps(s.plan.Run)}.Read(s.Context(), s.plan.Run, func(p upload.Bundle) error {
		result, err := p.Share()
		if err == nil && all[result.Index] != nil {
			err = fmt.Errorf("pod %d has uploaded twice", result.Index)
		}
		if err == nil {
			all[result.Index] = result
		}
		return err
	})
	if err != nil || len(damaged) > 0 {
		s.Fatalf("%v; damaged: %v", err, damaged)
	}
	for i, result := range all {
		if result == nil {
			s.Fatalf("pod %d has uploaded nothing", i)
		}
	}
	return all
}

// merged merges the results of all pods. No cell may have failed.
func (s *jobPods) merged(all []*lab.Share) *lab.Outcome {
	s.Helper()
	var attempts []lab.Attempt
	for _, pod := range all {
		attempts = append(attempts, lab.Attempt{Index: pod.Index})
	}
	o, err := lab.Merge(attempts, func(i int) (*lab.Share, error) { return all[i], nil }, lab.MergeOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if failed := o.Failed(); len(failed) > 0 {
		s.Errorf("failed: %q", failed)
	}
	return o
}

// place returns the position of a barrier member, from its Lease.
func (s *jobPods) place(m int) (barrier.Progress, error) {
	l, err := s.client.CoordinationV1().Leases(s.plan.Run).Get(s.Context(), barrier.LeaseName(s.plan.Run, m), metav1.GetOptions{})
	if err != nil {
		return barrier.Progress{}, err
	}
	_, p, ok := barrier.Read(l)
	if !ok {
		return p, fmt.Errorf("%+v says nothing", l)
	}
	return p, nil
}

// reached waits until a member reaches a position.
func (s *jobPods) reached(m, position int) {
	s.Helper()
	programs.Eventually(s, fmt.Sprintf("member %d comes to play %d", m, position), func() error {
		p, err := s.place(m)
		if err == nil && p.Position < position {
			err = fmt.Errorf("it is at %v", p)
		}
		return err
	})
}

// TestPods runs the pods of load Jobs against a real API server.
func TestPods(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	for name, test := range map[string]func(*testing.T, *controlplane.ControlPlane){
		"play one storm": playOneStorm, "a pod is killed": podIsKilled, "the leader is killed": leaderIsKilled,
		"refuse": podsRefuse, "watch writers": watchWriters,
	} {
		t.Run(name, func(t *testing.T) { test(t, cp) })
	}
}

// selfPlan returns a plan of mode self. more holds additional JSON fields of its Spec.
func selfPlan(run, more string) fleet.Plan {
	return fleet.Plan{
		Run: run, Mode: fleet.ModeSelf, Pods: 3, Barrier: metav1.Duration{Duration: 30 * time.Second},
		Experiment: json.RawMessage(`{"family":"queue","variants":["clientgo-fifo","ring"],"storm":{"name":"recorded-nodeloss"},"events":20000,"paces":["max","20000"],` + more + `}`),
	}
}

// playOneStorm runs three pods with a barrier. The pods play their parts of one
// storm concurrently, and the merged results cover the whole storm.
func playOneStorm(t *testing.T, cp *controlplane.ControlPlane) {
	s := newPods(t, cp, selfPlan("meeting", `"rounds":2`))
	var cmds []*exec.Cmd
	for i := range s.plan.Pods {
		cmds = append(cmds, s.start("pod", i, fmt.Sprintf("pod-%d", i)))
	}
	for i, cmd := range cmds {
		s.wait(cmd, fmt.Sprintf("pod-%d", i))
	}
	all := s.uploaded()
	// Five cells (two variants at two paces, and the A/A pair), each in a warm-up and two rounds.
	const plays = 5 * 3
	var late time.Duration
	for i, result := range all {
		if result.Pod != fmt.Sprintf("pod-%d", i) || result.Node != "node" || result.Of != 3 || result.Attempt != 0 || len(result.Whole) != 1 {
			t.Errorf("pod %d: %+v", i, result)
		}
		if len(result.Starts) != plays {
			t.Fatalf("pod %d started %d plays with the others, want %d", i, len(result.Starts), plays)
		}
		for n, start := range result.Starts {
			first := all[0].Starts[n]
			late = max(late, start.Late)
			if start.Cell != first.Cell || start.Round != first.Round || len(start.Absent) > 0 {
				t.Errorf("pod %d: play %d is %+v, that of pod 0 %+v", i, n, start, first)
			}
		}
		if place, err := s.place(i); err != nil || !place.Done || place.Position != plays-1 {
			t.Errorf("pod %d reports %v, %v", i, place, err)
		}
	}
	t.Logf("%d starts of each of 3 pods, all within %v", plays, late)
	o := s.merged(all)
	for _, cl := range o.Comparisons[0].Cells {
		events := uint64(0)
		for _, r := range cl.Rounds {
			events = max(events, r.Result.EventsIn)
		}
		// Unpaced: whole repetitions of the storm until 20,000 events. Paced: 2 s at 20,000
		// events/s. On a busy machine a paced cell may have no valid round.
		if rate, paced := cl.Rate(); len(cl.Rounds) > 0 && paced && events != 40000 || !paced && (events < 20000 || events > 25000) {
			t.Errorf("%s at %s: %d events in all", cl.BenchName(), rate, events)
		}
	}
}

// podIsKilled kills a pod during a run and starts it again. The second attempt skips
// the barrier until it has caught up. Its result has the attempt number and the delay.
func podIsKilled(t *testing.T, cp *controlplane.ControlPlane) {
	plan := selfPlan("pod-killed", `"rounds":4`)
	s := newPods(t, cp, plan)
	first, second := s.start("pod", 0, "pod-0"), s.start("pod", 1, "pod-1")
	victim := s.start("pod", 2, "pod-2")
	s.reached(2, 5)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // The error is the kill.
	again := s.start("pod", 2, "pod-2-again")
	s.wait(first, "pod-0")
	s.wait(second, "pod-1")
	s.wait(again, "pod-2-again")
	all := s.uploaded()
	if got := all[2]; got.Attempt != 1 || got.Pod != "pod-2-again" {
		t.Errorf("pod 2 is attempt %d, of %s", got.Attempt, got.Pod)
	}
	if late := all[2].Starts[0].Late; late <= 0 {
		t.Errorf("the first play of the second attempt was %v late", late)
	}
	for i, result := range all[:2] {
		if result.Attempt != 0 || len(result.Starts) != len(all[2].Starts) {
			t.Errorf("pod %d: attempt %d, %d plays", i, result.Attempt, len(result.Starts))
		}
	}
	s.merged(all)
}

// leaderIsKilled kills the leader and does not restart it. The other pod finishes its
// run and reports that the leader is absent.
func leaderIsKilled(t *testing.T, cp *controlplane.ControlPlane) {
	plan := selfPlan("leader-killed", `"rounds":2`)
	plan.Pods, plan.Barrier.Duration = 2, 2*time.Second
	s := newPods(t, cp, plan)
	leader, other := s.start("pod", 0, "pod-0"), s.start("pod", 1, "pod-1")
	s.reached(1, 3)
	if err := leader.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = leader.Wait() // The error is the kill.
	s.wait(other, "pod-1")
	var got *lab.Share
	if _, err := (upload.ConfigMaps{Client: s.client.CoreV1().ConfigMaps(s.plan.Run)}).Read(t.Context(), plan.Run, func(p upload.Bundle) (err error) {
		got, err = p.Share()
		return err
	}); err != nil || got == nil {
		t.Fatalf("%v, %v", got, err)
	}
	if last := got.Starts[len(got.Starts)-1]; !slices.Equal(last.Absent, []int{0}) {
		t.Errorf("the last play started as %+v", last)
	}
	if out := s.output["pod-1"].String(); !strings.Contains(out, "pod 0 missed the barrier timeout 4s") {
		t.Errorf("it said\n%s", out)
	}
}

// podsRefuse checks that bad input gives one line of output and exit code 2, and leaves
// no object in the cluster.
func podsRefuse(t *testing.T, cp *controlplane.ControlPlane) {
	plan := selfPlan("refusing", `"budget":"1m"`)
	s := newPods(t, cp, plan)
	cmd := s.start("pod", 0, "pod-0")
	err := cmd.Wait()
	var exit *exec.ExitError
	if out := s.output["pod-0"].String(); !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(out, "\n") != 1 || !strings.Contains(out, "budget is not for pods") {
		t.Errorf("%v: %s", err, out)
	}
	if leases := s.leases(); len(leases) > 0 {
		t.Errorf("there are %d Leases", len(leases))
	}
}

func (s *jobPods) leases() []coordinationv1.Lease {
	s.Helper()
	list, err := s.client.CoordinationV1().Leases(s.plan.Run).List(s.Context(), metav1.ListOptions{LabelSelector: cluster.RunLabel})
	if err != nil {
		s.Fatal(err)
	}
	return list.Items
}

// watchWriters runs two writers and two pods. In each round each writer writes its part
// of a storm into the real cluster, and each pod watches the objects of both. The writers
// delete their objects.
func watchWriters(t *testing.T, cp *controlplane.ControlPlane) {
	plan := fleet.Plan{
		Run: "written", Mode: fleet.ModeCluster, Pods: 2, Writers: 2, Barrier: metav1.Duration{Duration: time.Minute},
		Experiment: json.RawMessage(`{"source":"apply","variants":["cond","ring"],"deliveries":["in-order"],"cluster":{"for":"8s"},"rounds":1,"storm":{"name":"recorded-gang"},"paces":["100"]}`),
	}
	s := newPods(t, cp, plan)
	pods := []string{"pod-0", "pod-1", "writer-0", "writer-1"}
	cmds := []*exec.Cmd{
		s.start("pod", 0, pods[0]), s.start("pod", 1, pods[1]), s.start("writer", 0, pods[2]), s.start("writer", 1, pods[3]),
	}
	for i, cmd := range cmds {
		s.wait(cmd, pods[i])
	}
	for _, writer := range pods[2:] {
		if out := s.output[writer].String(); strings.Count(out, "events written of") != 2 || !strings.Contains(out, " 0 refused") {
			t.Errorf("%s wrote\n%s", writer, out)
		}
	}
	all := s.uploaded()
	s.merged(all)
	for i, result := range all {
		for _, cl := range result.Outcome.Comparisons[0].Cells {
			for _, r := range cl.Rounds {
				t.Logf("pod %d: %s: %d events", i, cl.BenchName(), r.Result.EventsIn)
				if r.Result.EventsIn < 200 {
					t.Errorf("pod %d: %s: %d events", i, cl.BenchName(), r.Result.EventsIn)
				}
			}
		}
		for _, start := range result.Starts {
			if len(start.Absent) > 0 {
				t.Errorf("pod %d: %+v", i, start)
			}
		}
	}
	programs.Eventually(t, "what was written is gone", func() error {
		list, err := s.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: plan.WrittenBy()})
		if err == nil && len(list.Items) > 0 {
			err = errors.New(list.Items[0].Name + " is there")
		}
		return err
	})
}
