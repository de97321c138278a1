package experiment_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

// TestThreads: every thread has its parts, and every claim names one cell of its part for each figure.
func TestThreads(t *testing.T) {
	threads, err := experiment.Threads()
	if err != nil || len(threads) != 9 {
		t.Fatal(len(threads), err)
	}
	for _, q := range threads {
		if q.Asks == "" || q.About == "" || !strings.HasSuffix(q.Ref, "#"+q.Name) || !strings.HasSuffix(q.URL, "/"+q.Name) ||
			q.Reduced == "" || q.AtFull == "" || len(q.Claims) == 0 || len(q.Untested) == 0 {
			t.Errorf("%s is not complete: %+v", q.Name, q.Thread)
		}
		full := q.AtFullScale()
		cells := map[string][]lab.Cell{}
		for i, p := range q.Parts {
			if p.Bench != nil {
				continue
			}
			if err := full.Parts[i].Experiment.Validate(); err != nil {
				t.Errorf("%s, %s at full scale: %v", q.Name, p.Name, err)
			}
			if slices.Contains(storm.Names(), p.Experiment.Storm.Name) && p.Experiment.Storm.Pods > 1000 {
				p.Experiment.Storm.Pods = 1000
			}
			plan, err := experiment.New(t.Context(), p.Experiment, nil)
			if err != nil {
				t.Errorf("%s, %s: %v", q.Name, p.Name, err)
				continue
			}
			for _, c := range plan.Comparisons {
				cells[p.Name] = append(cells[p.Name], c.Cells...)
			}
		}
		for _, c := range q.Claims {
			at := slices.IndexFunc(q.Parts, func(p experiment.QuestionPart) bool { return p.Name == c.Part })
			if at < 0 || !slices.Contains(q.Parts[at].Columns, c.Unit) || c.Says == "" || c.Least == 0 && c.Most == 0 || (c.Fixed == 0) != (c.Than != nil) {
				t.Errorf("%s: %+v", q.Name, c)
				continue
			}
			for _, labels := range []map[string]string{c.Of, c.Than} {
				if labels == nil || q.Parts[at].Bench != nil {
					continue
				}
				n := 0
				for _, cl := range cells[c.Part] {
					fits := true
					for k, v := range labels {
						fits = fits && cl.Labels.Label(k) == v
					}
					if fits {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s: %d cells have %v", q.Name, n, labels)
				}
			}
		}
	}
	for _, name := range []string{"1326", "client-go#1326"} {
		if got, err := experiment.Threads(name); err != nil || len(got) != 1 || got[0].Name != "1326" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := experiment.Threads("77"); !errors.Is(err, experiment.ErrUnknownThread) || !strings.Contains(err.Error(), "130767") {
		t.Error(err)
	}
}

const benched = `goos: linux
goarch: amd64
cpu: A processor
BenchmarkAdd/impl=slow/items=9-2 1 1000 ns/op 500 add-p99-ns
BenchmarkAdd/impl=fast/items=9-2 1 100 ns/op 50 add-p99-ns
BenchmarkAdd/impl=slow/items=9-2 1 1010 ns/op 510 add-p99-ns
BenchmarkAdd/impl=fast/items=9-2 1 101 ns/op 51 add-p99-ns
BenchmarkAdd/impl=slow/items=9-2 1 990 ns/op 490 add-p99-ns
BenchmarkAdd/impl=fast/items=9-2 1 99 ns/op 49 add-p99-ns
BenchmarkAdd/impl=slow/items=9-2 1 1005 ns/op 505 add-p99-ns
BenchmarkAdd/impl=fast/items=9-2 1 102 ns/op 52 add-p99-ns
BenchmarkAdd/impl=slow/items=9-2 1 995 ns/op 495 add-p99-ns
BenchmarkAdd/impl=fast/items=9-2 1 98 ns/op 48 add-p99-ns
BenchmarkAdd/impl=slow/items=9-2 1 1002 ns/op 502 add-p99-ns
BenchmarkAdd/impl=fast/items=9-2 1 103 ns/op 53 add-p99-ns
`

func outcome(t *testing.T, text string) *lab.Outcome {
	t.Helper()
	o, err := experiment.Bench{Dir: "bench/x", Pattern: "Add"}.Outcome(strings.NewReader(text), "bench.txt", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestVerdict: a claim holds if the whole interval of the ratio is in its range. The ratio here is near 10.
func TestVerdict(t *testing.T) {
	full := outcome(t, benched)
	few := outcome(t, strings.Join(strings.Split(benched, "\n")[:7], "\n")+"\n")
	slow, fast := map[string]string{"impl": "slow"}, map[string]string{"impl": "fast"}
	for _, tc := range []struct {
		name  string
		claim experiment.Claim
		o     *lab.Outcome
		want  string
	}{
		{"above", experiment.Claim{Of: slow, Than: fast, Least: 5}, full, "agree"},
		{"below", experiment.Claim{Of: slow, Than: fast, Least: 20}, full, "disagree"},
		{"at the limit", experiment.Claim{Of: slow, Than: fast, Least: 10}, full, "cannot tell"},
		{"at most", experiment.Claim{Of: fast, Than: slow, Most: 0.5}, full, "agree"},
		{"not at most", experiment.Claim{Of: slow, Than: fast, Most: 5}, full, "disagree"},
		{"at most, at the limit", experiment.Claim{Of: slow, Than: fast, Most: 10}, full, "cannot tell"},
		{"in a range", experiment.Claim{Of: slow, Than: fast, Least: 5, Most: 20}, full, "agree"},
		{"above a range", experiment.Claim{Of: slow, Than: fast, Least: 1, Most: 3}, full, "disagree"},
		{"fixed", experiment.Claim{Of: slow, Fixed: 100, Least: 9}, full, "agree"},
		{"below fixed", experiment.Claim{Of: slow, Fixed: 1e6, Least: 1}, full, "disagree"},
		{"few rounds", experiment.Claim{Of: slow, Than: fast, Least: 5}, few, "cannot tell"},
		{"few rounds, fixed", experiment.Claim{Of: slow, Fixed: 100, Least: 5}, few, "cannot tell"},
		{"no cell", experiment.Claim{Of: map[string]string{"impl": "none"}, Than: fast, Least: 5}, full, "cannot tell"},
		{"two cells", experiment.Claim{Of: map[string]string{"items": "9"}, Than: fast, Least: 5}, full, "cannot tell"},
		{"not played", experiment.Claim{Of: slow, Than: fast, Least: 5}, nil, "cannot tell"},
	} {
		tc.claim.Part, tc.claim.Unit = "add", "ns/op"
		q := experiment.Question{Thread: &experiment.Thread{Claims: []experiment.Claim{tc.claim}}}
		if got := q.Verdict(experiment.Found{"add": tc.o}); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := (experiment.Question{Thread: &experiment.Thread{}}).Verdict(nil); got != "not reproduced" {
		t.Error(got)
	}
}

// TestAnalysis compares a thread's page, the page beside the documents, and the index with golden files.
func TestAnalysis(t *testing.T) {
	slow, fast := map[string]string{"impl": "slow"}, map[string]string{"impl": "fast"}
	q := experiment.Question{
		Name: "7", Asks: "an Add is slow", About: `an Add takes "10 ms".`,
		Parts: []experiment.QuestionPart{{
			Name: "add", Shows: "two queues", Columns: []string{"ns/op", "add-p99-ns"}, Bench: &experiment.Bench{Dir: "bench/x", Pattern: "Add/impl=(slow|fast)"},
		}, {Name: "later", Shows: "what was not played"}},
		Thread: &experiment.Thread{
			Ref: "project#7", URL: "https://example.com/7", Reduced: "9 items.", AtFull: "99 items.", Untested: []string{"Real clusters."},
			Claims: []experiment.Claim{
				{Says: "It is slow.", Part: "add", Unit: "ns/op", Of: slow, Than: fast, Least: 5},
				{Says: "p99 is below a hundredth of \"10 ms\".", Part: "add", Unit: "add-p99-ns", Of: slow, Fixed: 1e7, Most: 0.01},
				{Says: "It was played.", Part: "later", Unit: "ns/op", Of: slow, Than: fast, Most: 2},
				{Says: "Its rival is valid.", Part: "add", Unit: "ns/op", Of: slow, Than: map[string]string{"impl": "invalid"}, Most: 2},
			},
		},
	}
	found := experiment.Found{"add": outcome(t, benched)}
	var b strings.Builder
	if err := errors.Join(q.Page(&b, found), q.AtFullScale().Analysis(&b, found, "../../results/x/7"),
		experiment.Index(&b, []experiment.Question{q}, map[string]experiment.Found{"7": found})); err != nil {
		t.Fatal(err)
	}
	golden(t, "thread.md", b.String())
}
