package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/controller"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/report"
	"watchlab/loadgen/fault"
)

// asController is the first argument that makes the test binary the controller.
const asController = "controller"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asController {
		os.Args = slices.Delete(os.Args, 1, 2)
		main()
		return
	}
	flag.Parse()
	// Plays wait most of the time, whatever the number of CPUs.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// command starts the controller with a bug.
func command(t testing.TB, bug string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, asController, "--bug=" + bug}
}

func specOf(t testing.TB, bug, workload string, plans ...string) controller.Spec {
	t.Helper()
	return controller.Spec{
		Workload:  filepath.Join("testdata", workload),
		Manifests: []string{filepath.Join("testdata", "widgets.yaml")},
		Rules:     filepath.Join("testdata", "rules.yaml"),
		Plans:     plans,
		Settle:    metav1.Duration{Duration: 7 * time.Second},
		Programs:  []controller.Program{{Command: command(t, bug)}},
	}
}

// play runs a Spec and returns the failed verdicts of each plan.
func play(t testing.TB, spec controller.Spec) (*controller.Result, map[string][]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "results")
	result, err := controller.Run(t.Context(), spec, controller.Options{Dir: dir, Notify: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string][]string{}
	var text strings.Builder
	for _, p := range result.Plays {
		failed[p.Plan] = nil
		for _, v := range p.Verdicts {
			if v.Failed {
				failed[p.Plan] = append(failed[p.Plan], v.Name)
			}
		}
	}
	if err := report.ControllerText(&text, result); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", spec.Seed, &text)
		}
	})
	return result, failed
}

// TestPlanted plays storms to each planted bug. Its own verdict tells it, no other one does, and the fault plan is
// shrunk to what it needs. The short form has fewer faults and a faster storm.
func TestPlanted(t *testing.T) {
	t.Parallel()
	breaks := []fault.Name{
		fault.Disconnect, fault.Gone, fault.HalfFrame, fault.Malformed, fault.ErrorEvent, fault.Throttle, fault.InternalError,
		fault.Reset, fault.Relist,
	}
	all, plans, speed := controller.PlanAll, []string{controller.PlanNone, "relist:at=2s"}, 1.0
	if testing.Short() {
		all, plans, speed = "relist:at=1s;drip:at=1500ms,duration=100ms", plans[:1], 2
	}
	for _, bug := range []struct{ name, workload, verdict string }{
		{hotLoop, "short.yaml", verdict.HotLoop},
		{leak, "long.yaml", verdict.Leak},
	} {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			result, failed := play(t, specOf(t, bug.name, bug.workload, plans...))
			for plan, names := range failed {
				if !slices.Equal(names, []string{bug.verdict}) {
					t.Errorf("faults %s: %q, want %q", plan, names, bug.verdict)
				}
			}
			if s := result.Shrunk; len(plans) > 1 && (s == nil || len(s.Faults) > 0 || s.Failed != s.Repeated) {
				t.Errorf("shrunk to %+v, want no fault", s)
			}
		})
	}
	t.Run(lostUpdate, func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, lostUpdate, "short.yaml", controller.PlanNone, all)
		spec.Speed = speed
		result, failed := play(t, spec)
		for plan, names := range failed {
			want := []string{verdict.LostUpdates, verdict.Diverged}
			if plan == controller.PlanNone {
				want = nil
			}
			if !slices.Equal(names, want) {
				t.Errorf("faults %s: %q, want %q", plan, names, want)
			}
		}
		s := result.Shrunk
		if s == nil || s.Verdict != verdict.LostUpdates || len(s.Faults) != 1 || s.Failed != s.Repeated {
			t.Fatalf("shrunk to %+v, want one fault that loses updates each time", s)
		}
		if f, err := fault.Parse(s.Faults[0]); err != nil || !slices.Contains(breaks, f.Name) {
			t.Errorf("shrunk to %s (%v), which ends no watch", s.Faults[0], err)
		}
	})
}

// TestPatterns: the bugs of Sieve's patterns are found without rules, and shrunk to what each needs. The twins pass. The
// short form plays the plan that finds each bug; the long one has to find it, with the second controllers and their twins.
func TestPatterns(t *testing.T) {
	t.Parallel()
	type bug struct{ name, plan string }
	bugs := []bug{
		{twice, "stall:duration=3s,resource=configmaps,before=create configmaps"},
		{intermediate, "crash:after=create configmaps"},
		{unobserved, "crash:after=delete configmaps"},
		{staleDelete, "old-view:resource=widgets.example.com,before=create configmaps; crash:after=create configmaps,nth=3"},
		{careful, ""},
	}
	if !testing.Short() {
		for _, name := range []string{scaleDown, release, secret, rerun} {
			bugs = append(bugs, bug{name, controller.PlanExplore}, bug{name + " --fixed", ""})
		}
	}
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			plan := controller.PlanExplore
			if testing.Short() {
				plan = cmp.Or(bug.plan, "crash:after=create configmaps")
			}
			name, fixed, _ := strings.Cut(bug.name, " ")
			spec := specOf(t, name, "short.yaml", controller.PlanNone, plan)
			if operators[name].owns {
				spec.Workload = filepath.Join("testdata", "operators.yaml")
			}
			if fixed != "" {
				spec.Programs[0].Command = append(spec.Programs[0].Command, fixed)
			}
			spec.Rules, spec.Unshrunk = "", testing.Short()
			result, _ := play(t, spec)
			var found []string
			for i := range result.Plays {
				if v := result.Plays[i].Failure(); v != nil && !slices.Contains(found, v.Name) { // A plan fails three times.
					found = append(found, v.Name)
				}
			}
			s := result.Shrunk
			switch shrunk := s != nil && len(s.Faults) <= 2 && s.Failed == s.Repeated; {
			case bug.plan == "" && found != nil, bug.plan != "" && !testing.Short() && !shrunk:
				t.Errorf("found %q, shrunk to %+v", found, s)
			case bug.plan != "" && !slices.Contains(found, verdict.Diverged): // A slow machine may show more.
				t.Errorf("found %q, want %q", found, verdict.Diverged)
			}
		})
	}
}

// TestCorrect plays 50 seeds to the controller without a bug, 3 in the short form, with and without faults. The plan
// each is played to one of them.
func TestCorrect(t *testing.T) {
	t.Parallel()
	seeds := 50
	if testing.Short() {
		seeds = 3
	}
	for seed := 1; seed <= seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, none, "short.yaml", controller.PlanNone, controller.PlanAll)
			if seed == 1 && !testing.Short() {
				spec.Plans = append(spec.Plans, controller.PlanEach)
			}
			spec.Seed = int64(seed)
			_, failed := play(t, spec)
			for _, plan := range slices.Sorted(maps.Keys(failed)) {
				if len(failed[plan]) > 0 {
					t.Errorf("faults %s: %q", plan, failed[plan])
				}
			}
		})
	}
}

// TestCommand finds a bug through the command.
func TestCommand(t *testing.T) {
	t.Parallel()
	watchlab := programs.Watchlab(t)
	args := append([]string{
		"controller", "--manifest", "testdata/widgets.yaml", "--workload", "testdata/short.yaml", "--faults", "none",
		"--settle", "5s", "--speed", "2", "--out", filepath.Join(t.TempDir(), "results"), "--",
	}, command(t, hotLoop)...)
	out, err := exec.CommandContext(t.Context(), watchlab, args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"hot loop", "without a change"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
