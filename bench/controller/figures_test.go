package controller_test

import (
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/experiment"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/loadgen/apiserver"
)

const second = time.Second

func v1Resource(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// recorded is a play with one of everything.
func recorded() *controller.Play {
	pods, sets := v1Resource("", "pods"), v1Resource("apps", "replicasets")
	quiet := 12 * second
	p := &controller.Play{Name: "program=new/faults=none/round=1", Plan: "none", Round: 1}
	p.Play = record.Play{
		Program: "new", Seed: 1, Over: 10 * second, Quiet: &quiet, End: 15 * second,
		Accesses: []record.Access{
			{At: -second, Client: "a", Verb: "list", Resource: pods, Code: 200, Out: 1000, State: true},
			{At: -second, Client: "a", Verb: "list", Resource: pods, Code: 200, Out: 500, Continues: true},
			{At: 1 * second, Client: "a", Verb: "update", Resource: sets, Subresource: "status", Key: "x/a", Code: 409, Out: 10},
			{At: 2 * second, Client: "a", Verb: "update", Resource: sets, Subresource: "status", Key: "x/b", Code: 429, Out: 10},
			{At: 2 * second, Client: "a", Verb: "update", Resource: sets, Subresource: "status", Key: "x/a", Code: 200, Out: 100},
			{At: 3 * second, Client: "a", Verb: "update", Resource: sets, Subresource: "status", Key: "x/a", Code: 200, Out: 100, Unchanged: true},
			{At: 3 * second, Client: "a", Verb: "create", Resource: pods, Key: "x/c", Code: 201, Out: 200},
			{At: 4 * second, Client: "a", Verb: "create", Resource: pods, Key: "x/d", Code: 201, Out: 200, DryRun: true},
			{At: 5 * second, Client: "a", Verb: "delete", Resource: pods, Key: "x/c", Code: 500, Out: 20},
		},
		Lags: []record.Lag{
			{At: second, Lag: apiserver.Lag{Client: "a", Resource: pods, Events: 3}}, {At: second, Lag: apiserver.Lag{Client: "a", Resource: sets, Events: 7}},
			{At: 2 * second, Lag: apiserver.Lag{Client: "a", Resource: pods, Events: 1}},
		},
		// The process starts again between the second and the third sample.
		Samples: []record.Sample{
			{At: 0, Client: "a", CPU: 100, RSS: 1000, Files: 10}, {At: 1 * second, Client: "a", CPU: 300, RSS: 3000, Files: 11},
			{At: 2 * second, Client: "a", CPU: 50, RSS: 500, Files: 9, Goroutines: 40}, {At: 3 * second, Client: "a", CPU: 90, RSS: 600, Files: 9},
		},
		Scrapes: []record.Scrape{{At: second, Client: "a", Values: map[string]float64{
			"workqueue_depth": 7, "other": 9,
		}}},
	}
	return p
}

func reactions() (out []rules.Reaction) {
	event := &record.Change{Resource: v1Resource("", "pods"), Intended: second}
	for i := range 100 {
		out = append(out, rules.Reaction{Rule: "r", Event: event, Phase: "loss", Answer: &record.Access{}, Latency: time.Duration(i+1) * time.Millisecond})
	}
	return append(out, rules.Reaction{Rule: "r", Event: event, Phase: "loss"})
}

func TestFigures(t *testing.T) {
	p := recorded()
	if err := p.Summarise(reactions()); err != nil {
		t.Fatal(err)
	}
	for unit, want := range map[string]float64{
		controller.UnitRequests: 9, controller.UnitWrites: 6, controller.UnitUseless: 1, controller.UnitRefused: 1, controller.UnitRelists: 1,
		controller.UnitSent: 2140, controller.UnitBehind: 7, controller.UnitCPU: 240, controller.UnitRSS: 3000,
		controller.UnitConverge: 2e9, controller.UnitMean: 50.5e6,
	} {
		if got := p.Figures[unit]; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s: %v, want %v", unit, got, want)
		}
	}
	if p50 := p.Figures[controller.UnitP50]; p50 < 49e6 || p50 > 51e6 {
		t.Errorf("p50 %v", p50)
	}
	if len(p.Latencies) != 1 || p.Latencies[0].Answered != 100 || p.Latencies[0].Unanswered != 1 || p.Latencies[0].Resource != "pods" {
		t.Errorf("%+v", p.Latencies)
	}
	want := controller.Requests{Verb: "update", Resource: "replicasets.apps/status", Count: 4, Conflicts: 1, Throttled: 1, Retries: 1, Unchanged: 1, Bytes: 220}
	if p.Requests[0] != want || p.Requests[len(p.Requests)-1].Errors != 1 {
		t.Errorf("%+v", p.Requests)
	}
	for name, want := range map[string][]float64{
		controller.SeriesLag:   {1, 7, 2, 1},
		controller.SeriesRSS:   {0, 1000, 1, 3000, 2, 500, 3, 600},
		controller.SeriesDepth: {1, 7},
	} {
		at := slices.IndexFunc(p.Series, func(s controller.Series) bool { return s.Name == name })
		if at < 0 || !slices.Equal(p.Series[at].Points, want) {
			t.Errorf("%s: %+v", name, p.Series)
		}
	}
}

// compared is a result of two programs in five rounds. The new one is twice as slow and sends as many requests.
func compared() *controller.Result {
	r := &controller.Result{Programs: []string{controller.Old, controller.New}, Spec: controller.Spec{Storm: experiment.Storm{Name: "nodeloss"}}}
	for round := range 5 {
		for _, program := range r.Programs {
			slow := 1.0
			if program == controller.New {
				slow = 2
			}
			p := controller.Play{Plan: "none", Round: round + 1, Name: "program=" + program + "/faults=none", Figures: map[string]float64{
				controller.UnitP99: slow * (1e6 + float64(round)*1e3), controller.UnitRequests: 100 + float64(round*7%5),
				controller.UnitRSS: 64 << 20, controller.UnitCPU: 2.5e9, controller.UnitUseless: 0,
			}}
			p.Program = program
			p.Verdicts = []verdict.Verdict{{Name: verdict.HotLoop, Failed: program == controller.New && round == 1, Text: "12 writes changed nothing",
				Evidence: []verdict.Evidence{{At: 1500 * time.Millisecond, Text: "update pods x/a"}}}}
			r.Plays = append(r.Plays, p)
		}
	}
	r.Shrunk = &controller.Shrunk{Plan: "all", Verdict: verdict.HotLoop, Faults: []string{"relist:at=1s"}, Of: 12, Plays: 9, Failed: 3, Repeated: 3, Command: "watchlab controller"}
	r.Finish()
	return r
}

func TestCompared(t *testing.T) {
	r := compared()
	for _, c := range r.Compared {
		if lost := c.Unit == controller.UnitP99; c.Lost != lost || c.Won {
			t.Errorf("%+v", c)
		}
	}
	var again controller.Result
	if err := json.Unmarshal([]byte(text(t, func(w io.Writer) error { return lab.EncodeJSON(w, r) })), &again); err != nil {
		t.Fatal(err)
	}
	for i, c := range again.Compared {
		want := r.Compared[i]
		if c.Unit == controller.UnitUseless {
			if c.Stats.Ratio != 0 || want.Stats.Ratio != 0 {
				t.Errorf("a ratio to 0: %v, %v in JSON", want.Stats.Ratio, c.Stats.Ratio)
			}
		} else if c.Stats.Ratio != want.Stats.Ratio || c.Lost != want.Lost || c.Stats.P != want.Stats.P {
			t.Errorf("%+v in JSON, %+v", c, want)
		}
	}
	r.Plays = r.Plays[:1]
	if r.Finish(); len(r.Compared) != 0 {
		t.Errorf("%+v with one play", r.Compared)
	}
	if err := lab.EncodeJSON(io.Discard, r); err != nil {
		t.Error(err)
	}
}

// TestBench: the benchmark lines of a comparison.
func TestBench(t *testing.T) { golden.Check(t, "bench.txt", text(t, compared().WriteBench)) }

func TestSentence(t *testing.T) {
	one := &controller.Result{Programs: []string{controller.New}, Spec: controller.Spec{Workload: "dir/deployments.yaml"}}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "No play has finished."},
		{func() {
			one.Plays = []controller.Play{{Play: record.Play{Program: controller.New}, Plan: "none", Figures: map[string]float64{controller.UnitP99: 12.3e6}}}
		},
			"The controller passes 1 play of deployments.yaml; without faults, p99 of the reconcile latency is 12.3ms."},
		{func() {
			one.Plays = append(one.Plays, controller.Play{Play: record.Play{Program: controller.New}, Plan: "all", Verdicts: []verdict.Verdict{{Name: verdict.Leak, Failed: true}}})
			one.Shrunk = &controller.Shrunk{Faults: []string{"gone:at=3s"}}
		}, "The controller fails 1 of 2 plays of deployments.yaml: leak; the smallest fault plan that fails is gone:at=3s; without faults, p99 of the reconcile latency is 12.3ms."},
		{func() { one.Shrunk.Faults = nil },
			"The controller fails 1 of 2 plays of deployments.yaml: leak; it needs no fault to fail; without faults, p99 of the reconcile latency is 12.3ms."},
	} {
		step.change()
		if one.Finish(); one.Sentence != step.want {
			t.Errorf("%s\nwant %s", one.Sentence, step.want)
		}
	}
}

// TestCommandOf: the command of a Spec has what differs from the defaults, quoted for a shell.
func TestCommandOf(t *testing.T) {
	s := controller.Spec{
		Storm: experiment.Storm{Name: "nodeloss", Nodes: 20}, Workload: "it's.yaml", Manifests: []string{"a b"}, Recursive: true, Stages: []string{"s"},
		Rules: "r", Speed: 2.5, Seed: 9, Replicas: 2, InCluster: true,
		Metrics: "http://127.0.0.1:1/metrics", Settle: metav1.Duration{Duration: second},
	}
	got := s.CommandOf(controller.Program{Command: []string{"./c", "--x={kubeconfig}"}}, []string{"gone:at=1s", "relist:at=2s"}, 3)
	want := `watchlab controller --storm nodeloss --nodes 20 --workload 'it'\''s.yaml' --manifest 'a b' --recursive --stages s --rules r ` +
		`--faults 'gone:at=1s; relist:at=2s' --speed 2.5 --seed 3 --replicas 2 --in-cluster --metrics http://127.0.0.1:1/metrics ` +
		`--settle 1s -- ./c '--x={kubeconfig}'`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
