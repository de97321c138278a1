package controller_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// judged returns a result of two programs; the new one has a hot loop with faults. Its texts have markup.
func judged() *controller.Result {
	r := &controller.Result{
		Sentence: "new fails 2 of 8 verdicts under storm nodeloss: hot loop, 100% of <pods>.",
		Env:      lab.Env{Started: time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)},
		Programs: []string{"old", "new"},
		Spec: controller.Spec{Programs: []controller.Program{
			{Label: "old", Command: []string{"./old"}}, {Label: "new", Command: []string{"./new", "--workers=4"}},
		}},
		Shrunk: &controller.Shrunk{Plan: "all", Verdict: verdict.HotLoop, Faults: []string{"relist:at=12s"}, Of: 9, Plays: 6, Failed: 3,
			Repeated: 3, Command: "watchlab controller --faults relist:at=12s -- ./new --workers=4"},
		Compared: []controller.Compared{
			{Cell: "faults=none", Unit: "p99-ns", Stats: stats.Comparison{From: 2e6, To: 3e6, Ratio: 1.5, Lo: 1.4, Hi: 1.6, Testable: true}, Lost: true},
			{Cell: "faults=all", Unit: "requests", Stats: stats.Comparison{From: 1000, To: 1010, Ratio: 1.01}},
		},
	}
	for _, program := range r.Programs {
		for _, plan := range []string{"none", "all"} {
			for round := range 2 {
				name := "program=" + program + "/faults=" + plan + "/round=" + string(rune('1'+round))
				p := controller.Play{Name: name, Plan: plan, Round: round + 1, Folder: "plays/" + strings.ReplaceAll(name, "/", ",")}
				p.Play = record.Play{Program: program, End: 45*time.Second + 100*time.Millisecond}
				hot := verdict.Verdict{Name: verdict.HotLoop, Text: "0 writes without a change"}
				if program == "new" && plan == "all" {
					hot = verdict.Verdict{Name: verdict.HotLoop, Failed: true, Text: "812 writes without a change to 3 objects, 100% of <pods>",
						Evidence: []verdict.Evidence{
							{At: 12345 * time.Millisecond, Text: "update deployments.apps default/web|1: version 1208 again"},
							{At: 12346 * time.Millisecond, Text: "update deployments.apps default/web: ```, \x1b[31m & \"quotes\""},
						}}
				}
				lost := verdict.Verdict{Name: verdict.LostUpdates, Text: "everything is as the rules say"}
				if program == "old" && plan == "none" && round == 1 {
					lost = verdict.Verdict{Name: verdict.LostUpdates, Failed: true, Text: "deployments.apps default/web: 3 pods, want 5"}
				}
				p.Verdicts = []verdict.Verdict{lost, hot}
				r.Plays = append(r.Plays, p)
			}
		}
	}
	return r
}

func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJUnit(t *testing.T) {
	got := text(t, judged().WriteJUnit)
	golden.Check(t, "junit.xml", got)
	conform(t, got)
	conform(t, text(t, (&controller.Result{Programs: []string{"new"}}).WriteJUnit))
}

// junitForm is what the readers of JUnit's XML (Jenkins' junit-10.xsd, GitLab, GitHub's actions) all take: the
// parents of an element and its attributes, required ones first, up to the empty one.
var junitForm = map[string]struct{ parents, attributes []string }{
	"testsuites": {[]string{""}, []string{"", "name", "tests", "failures", "errors", "time", "disabled"}},
	"testsuite":  {[]string{"testsuites"}, []string{"name", "tests", "", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"}},
	"properties": {[]string{"testsuite"}, nil},
	"property":   {[]string{"properties"}, []string{"name", "value", ""}},
	"testcase":   {[]string{"testsuite"}, []string{"name", "", "classname", "time", "status"}},
	"failure":    {[]string{"testcase"}, []string{"", "message", "type"}},
}

// conform checks elements, attributes and counts against the junitForm.
func conform(t *testing.T, text string) {
	t.Helper()
	type element struct {
		name            string
		tests, failures string
		cases, failed   int
	}
	path := []element{{}}
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			name := token.Name.Local
			s, ok := junitForm[name]
			if parent := path[len(path)-1].name; !ok || !slices.Contains(s.parents, parent) {
				t.Errorf("%s in %q", name, parent)
			}
			given := map[string]string{}
			for _, a := range token.Attr {
				given[a.Name.Local] = a.Value
				if !slices.Contains(s.attributes, a.Name.Local) {
					t.Errorf("%s has %s", name, a.Name.Local)
				}
			}
			for _, a := range s.attributes {
				if a == "" {
					break
				}
				if _, ok := given[a]; !ok {
					t.Errorf("%s without %s", name, a)
				}
			}
			if at, ok := given["timestamp"]; ok {
				if _, err := time.Parse("2006-01-02T15:04:05", at); err != nil {
					t.Error(err)
				}
			}
			if name == "testcase" || name == "failure" {
				for i := range path {
					if name == "testcase" {
						path[i].cases++
					} else {
						path[i].failed++
					}
				}
			}
			path = append(path, element{name: name, tests: given["tests"], failures: given["failures"]})
		case xml.EndElement:
			e := path[len(path)-1]
			path = path[:len(path)-1]
			if strings.HasPrefix(e.name, "testsuite") && (e.tests != strconv.Itoa(e.cases) || e.failures != strconv.Itoa(e.failed)) {
				t.Errorf("%s: %s tests, %s failures, want %d and %d", e.name, e.tests, e.failures, e.cases, e.failed)
			}
		}
	}
}

func TestAnnotations(t *testing.T) {
	r := judged()
	golden.Check(t, "annotations.txt", text(t, r.WriteAnnotations))
	golden.Check(t, "summary.md", text(t, r.WriteSummary))
	for i := range r.Plays {
		for k := range r.Plays[i].Verdicts {
			r.Plays[i].Verdicts[k].Failed = false
		}
	}
	r.Compared, r.Sentence = nil, "new passes.\nreally"
	if got, want := text(t, r.WriteAnnotations), "::notice title=watchlab controller::new passes.%0Areally\n"; got != want {
		t.Errorf("annotations %s, want %s", got, want)
	}
	if got := text(t, r.WriteSummary); strings.Contains(got, "failed") || strings.Contains(got, "<details>") {
		t.Errorf("summary of a success: %s", got)
	}
	if got, want := text(t, (&controller.Result{Sentence: "No play.", Interrupted: true}).WriteSummary),
		"### watchlab controller\n\nNo play.\n\nThe run was interrupted.\n"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	full := errors.New("disk full")
	for _, write := range []func(io.Writer) error{r.WriteJUnit, r.WriteAnnotations, r.WriteSummary} {
		if err := write(failing{full}); !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	summary := filepath.Join(dir, "summary.md")
	if err := os.WriteFile(summary, []byte("of another command\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GITHUB_STEP_SUMMARY", summary)
	r := judged()
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, github := range []string{"", "true"} {
		t.Setenv("GITHUB_ACTIONS", github)
		annotations, wantSummary := "", "of another command\n"
		if github != "" {
			annotations, wantSummary = text(t, r.WriteAnnotations), wantSummary+text(t, r.WriteSummary)
		}
		if got := text(t, func(w io.Writer) error { return r.Publish(dir, w) }); got != annotations {
			t.Errorf("GITHUB_ACTIONS=%s: output %s", github, got)
		}
		if got := read("summary.md"); got != wantSummary {
			t.Errorf("GITHUB_ACTIONS=%s: summary %s", github, got)
		}
		if got := read(controller.JUnitFile); got != text(t, r.WriteJUnit) {
			t.Errorf("JUnit %s", got)
		}
	}
	if err := r.Publish(filepath.Join(dir, "none"), io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
