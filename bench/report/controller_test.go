package report_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/experiment"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/bench/stats"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/storm"
)

// controllerRun is a run of two programs with two fault plans and two rounds. The new one fails in the
// second round. No figure was measured.
func controllerRun() *controller.Result {
	o := &controller.Result{
		Sentence: "The controller fails 1 of 8 plays of nodeloss: lost updates; the smallest fault plan that fails is relist:at=12s.",
		Env: lab.Env{
			Started: started, Args: []string{"controller", "--storm", "nodeloss", "--", "./my-controller", "--kubeconfig={kubeconfig}"},
			Build: lab.Build{Commit: "0123456789ab"}, GoVersion: "go1.26.8", GOOS: "linux", GOARCH: "amd64", CPU: "Some CPU @ 2 GHz", Cores: 2, GOMAXPROCS: 2, GOGC: "100",
		},
		Spec: controller.Spec{
			Storm: experiment.Storm{Name: "nodeloss", Nodes: 20}, Rules: "rules.yaml", Plans: []string{"none", "all"}, Speed: 3, Seed: 1, Rounds: 2, Replicas: 1,
			Programs: []controller.Program{{Label: "old", Command: []string{"./old"}}, {Label: "new", Command: []string{"./my-controller", "--kubeconfig={kubeconfig}"}}},
		},
		Programs: []string{"old", "new"},
		Shrunk: &controller.Shrunk{
			Plan: "all", Verdict: verdict.LostUpdates, Faults: []string{"relist:at=12s"}, Of: 3, Plays: 4, Failed: 3, Repeated: 3,
			Command: "watchlab controller --storm nodeloss --faults relist:at=12s --seed 2 -- ./my-controller '--kubeconfig={kubeconfig}'",
		},
		Compared: []controller.Compared{
			{Cell: "faults=none", Unit: controller.UnitP99, Stats: stats.Comparison{From: 4e6, To: 9e6, Ratio: 2.25, P: 0.01, Testable: true, Significant: true}, Lost: true},
			{Cell: "faults=all", Unit: controller.UnitSent, Stats: stats.Comparison{From: 4e6, To: 4e6, Ratio: 1, P: 1}},
		},
	}
	for round := 1; round <= 2; round++ {
		for _, plan := range []string{"none", "all"} {
			for _, program := range o.Programs {
				o.Plays = append(o.Plays, controllerPlay(program, plan, round, program == "new" && plan == "all" && round == 2))
			}
		}
	}
	return o
}

func controllerPlay(program, plan string, round int, fails bool) controller.Play {
	quiet := 18 * time.Second
	p := controller.Play{
		Play: record.Play{
			Program: program, Seed: int64(round), Over: 17 * time.Second, Quiet: &quiet, End: 20 * time.Second,
			Phases: []storm.Phase{{Name: "baseline", To: 4 * time.Second}, {Name: "storm", From: 4 * time.Second, To: 12 * time.Second}, {Name: "drain", From: 12 * time.Second, To: time.Minute}},
		},
		Name: "program=" + program + "/faults=" + plan + "/round=" + string(rune('0'+round)), Plan: plan, Round: round,
		Verdicts: []verdict.Verdict{{Name: verdict.LostUpdates, Text: "All 80 objects are as the rules say."}, {Name: verdict.HotLoop, Text: "No object was written 20 times in a row."}},
		Figures:  map[string]float64{controller.UnitP50: 2e6, controller.UnitP99: 9e6, controller.UnitRequests: 310, controller.UnitSent: 3 << 20, controller.UnitCPU: 4e8},
		Latencies: []controller.Latency{
			{Rule: "a node is lost", Resource: "nodes", Phase: "storm", Answered: 3, Unanswered: 1, Quantiles: cell.Quantiles{Count: 3, P50: 2e6, P90: 3e6, P99: 3e6, Max: 3e6}},
			{Rule: "pods | all", Resource: "pods", Phase: "drain", Answered: 120, Quantiles: cell.Quantiles{Count: 120, P50: 1e6, P90: 2e6, P99: 8e6, Max: 9e6}},
		},
		Requests: []controller.Requests{{Verb: "update", Resource: "pods/status", Count: 200, Conflicts: 2 * round, Bytes: 1 << 20}, {Verb: "watch", Resource: "pods", Count: 2}},
	}
	if fails {
		p.Verdicts[0] = verdict.Verdict{Name: verdict.LostUpdates, Failed: true, Text: "1 object is not as the rules say.",
			Evidence: []verdict.Evidence{{At: 12400 * time.Millisecond, Text: "pods default/web-<7> has no status"}}}
	}
	if plan == "all" {
		for i, name := range []fault.Name{fault.Disconnect, fault.Throttle, fault.Relist} {
			at := fault.Duration(4*(i+1)) * fault.Duration(time.Second)
			for watch := range 2 {
				p.Injections = append(p.Injections, fault.Injection{At: at, Fault: name, Spec: i, Occurrence: 1, Watch: watch + 1, Path: "/api/v1/pods"})
			}
		}
	}
	curve := func(name, unit, client string, n int, value func(x float64) float64) {
		s := controller.Series{Name: name, Unit: unit, Client: client}
		for i := range n {
			x := float64(i) * 18 / float64(n-1)
			s.Points = append(s.Points, x, value(x))
		}
		p.Series = append(p.Series, s)
	}
	curve(controller.SeriesLatency, "ns", "", 300, func(x float64) float64 { return 1e6 * (2 + math.Sin(9*x)) * math.Exp(x/5) })
	curve(controller.SeriesRequests, "requests/s", "update", 19, func(x float64) float64 { return 10 + x })
	curve(controller.SeriesRequests, "requests/s", "watch", 19, func(x float64) float64 { return math.Mod(x, 2) })
	curve(controller.SeriesLag, "events", "controller-0", 37, func(x float64) float64 { return math.Mod(7*x, 30) })
	curve(controller.SeriesRSS, "B", "controller-0", 37, func(x float64) float64 { return 40e6 + 1e6*x })
	return p
}

// TestControllerForms compares the text and report.md with golden files.
func TestControllerForms(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *controller.Result) error{
		"controller.txt": report.ControllerText, "controller.md": report.ControllerMarkdown,
	} {
		var b bytes.Buffer
		if err := write(&b, controllerRun()); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name, b.String())
	}
}

// TestExploredVerdict: the first explored play has no verdict that compares it with others; the table has it all the same.
func TestExploredVerdict(t *testing.T) {
	o := controllerRun()
	first, second := controllerPlay("new", "explore-00", 1, false), controllerPlay("new", "explore-01", 1, false)
	second.Verdicts = append(second.Verdicts, verdict.Verdict{Name: verdict.Diverged, Failed: true, Text: "one difference"})
	o.Plays = []controller.Play{first, second}
	var b bytes.Buffer
	if err := report.ControllerText(&b, o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "diverged: one difference") {
		t.Error(b.String())
	}
}

func controllerPage(t *testing.T, o *controller.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.ControllerHTML(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestControllerHTML checks the parts of the page, the order of its sections, and that it loads nothing.
func TestControllerHTML(t *testing.T) {
	page := controllerPage(t, controllerRun())
	at := 0
	for _, id := range []string{"verdict", "shrunk", "compared", "time", "figures", "latency", "requests", "method", "environment", "reproduce"} {
		i := strings.Index(page, `<section id="`+id+`"`)
		if i < at {
			t.Errorf("section %s is at %d, after %d", id, i, at)
		}
		at = i
	}
	got := figuresOf(page)
	// Two plans. No CPU was sampled.
	for kind, want := range map[string]int{"latency": 2, "requests": 2, "lag": 2, "rss": 2, "cpu": 0, "depth": 0} {
		if got[kind] != want {
			t.Errorf("%d charts of kind %s, want %d", got[kind], kind, want)
		}
	}
	for text, want := range map[string]int{
		"smallest fault plan that fails is relist": 1, "web-&lt;7&gt;": 1, `<td class="word bad">failed 1 of 2</td>`: 1, `<td class="word bad">worse</td>`: 1,
		"Round 2 of 2 is shown, the first that failed.": 1, "3 relist at 12.0 s (2 requests).": 1,
		`class="pt moment"`: 3 * 4, `class="band"`: 8, ">storm</text>": 8, `id="loses"`: 0,
	} {
		if n := strings.Count(page, text); n != want {
			t.Errorf("%d times %q, want %d", n, text, want)
		}
	}
	if strings.Contains(page, "src=") || !strings.Contains(page, `default-src 'none'`) {
		t.Error("the page is not self-contained")
	}
}

// TestControllerOfOne: with one program no table has a column for it, and the legend has the verbs alone.
func TestControllerOfOne(t *testing.T) {
	o := controllerRun()
	o.Programs, o.Compared, o.Shrunk = o.Programs[1:], nil, nil
	o.Spec.Programs = o.Spec.Programs[1:]
	var plays []controller.Play
	for _, p := range o.Plays {
		if p.Program == "new" {
			plays = append(plays, p)
		}
	}
	o.Plays = plays
	page := controllerPage(t, o)
	for _, absent := range []string{">program</th>", `data-series="new"><svg`, `id="shrunk"`, `id="compared"`} {
		if strings.Contains(page, absent) {
			t.Errorf("the page has %q", absent)
		}
	}
}

// TestControllerWithoutPlay: a run that was interrupted in its first play has a report.
func TestControllerWithoutPlay(t *testing.T) {
	o := controllerRun()
	o.Plays, o.Compared, o.Shrunk, o.Interrupted = nil, nil, nil, true
	dir := t.TempDir()
	if err := report.WriteController(dir, o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lab.ReportFile, report.HTMLFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(data), "Interrupted: later plays are missing.") {
			t.Errorf("%s: %v, %d bytes", name, err, len(data))
		}
	}
}
