// Package action runs the GitHub Action of scripts/action with a stand-in for GitHub's runner.
package action

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/e2e/programs"
)

// theirs is a workflow of a controller's author: command, flags, watchlab, baseline, gate.
const theirs = `
name: storm
on: [push]
jobs:
  storm:
    runs-on: ubuntu-latest
    steps:
    - run: |
        cat >workload.yaml <<'END'
        objects:
        - object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {storm: "yes"}}, data: {n: first}}
          copies: 4
          change: [{at: 100ms, for: 1s, rate: 100, set: {data.n: "{n}"}}]
        END
        cat >rules.yaml <<'END'
        rules:
        - after: configmaps
          by: workload
          expect: write to it
        final:
        - name: each change is seen
          each: configmaps
          where: .metadata.labels.storm == "yes"
          has: .metadata.annotations.seen == .data.n
        END
    - id: watchlab
      uses: watchlab/scripts/action@main
      with:
        command: %q
        flags: --workload workload.yaml --rules 'rules.yaml' --faults none %s
        watchlab: %q
        baseline: %q
        gate: %q
    - if: always()
      run: echo "::notice title=outputs::${{ steps.watchlab.outputs.results }} ${{ steps.watchlab.outputs.junit }}"
    - run: echo "::notice title=deployed::yes"
`

// play is a run of that workflow.
type play struct {
	args     string // of the controller
	flags    string // of watchlab controller
	baseline string // input; a folder old in the workspace has the text of old
	old      string
	gate     string // flags
	build    bool   // the action builds watchlab
}

func (p play) run(t *testing.T) (r *runner, ok bool) {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asController, "1")
	watchlab := ""
	if !p.build {
		watchlab = programs.Watchlab(t)
	}
	r = newRunner(t, map[string]string{"watchlab/scripts/action@main": filepath.Join(root, "scripts", "action")})
	if p.old != "" {
		if err := os.Mkdir(filepath.Join(r.workspace, "old"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.workspace, "old", "bench.txt"), []byte(p.old), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ok = r.run(fmt.Sprintf(theirs, "'"+self+"' --kubeconfig={kubeconfig} "+p.args, p.flags, watchlab, p.baseline, p.gate))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the job:\n%s\nsummary:\n%s", r.log, r.summary)
		}
	})
	return r, ok
}

// find returns the text of an annotation.
func (r *runner) find(kind, title string) (text string, found bool) {
	i := slices.IndexFunc(r.annotations, func(a annotation) bool { return a.kind == kind && a.title == title })
	if i < 0 {
		return "", false
	}
	return r.annotations[i].text, true
}

// junit returns the number of test cases and the types of the failures in the file of the outputs.
func (r *runner) junit(t *testing.T) (cases int, failures []string) {
	t.Helper()
	outputs, _ := r.find("notice", "outputs")
	results, path, _ := strings.Cut(outputs, " ")
	if results != "watchlab-results" {
		t.Errorf("outputs: %q", outputs)
	}
	data, err := os.ReadFile(filepath.Join(r.workspace, path))
	if err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Failure *struct {
					Type string `xml:"type,attr"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &suites); err != nil {
		t.Fatal(err)
	}
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			if cases++; c.Failure != nil {
				failures = append(failures, c.Failure.Type)
			}
		}
	}
	return cases, failures
}

// TestPasses: a correct controller passes; the action builds watchlab, and a missing baseline is a notice.
func TestPasses(t *testing.T) {
	r, ok := play{baseline: "old", build: true}.run(t)
	if !ok {
		t.Error("the job failed")
	}
	if _, deployed := r.find("notice", "deployed"); !deployed {
		t.Error("the step after the action did not run")
	}
	if slices.ContainsFunc(r.annotations, func(a annotation) bool { return a.kind != "notice" }) {
		t.Errorf("annotations: %+v, want notices alone", r.annotations)
	}
	if text, _ := r.find("notice", "watchlab controller"); text == "" {
		t.Errorf("annotations: %+v, want the sentence of the result", r.annotations)
	}
	if text, _ := r.find("notice", "watchlab gate"); text != "there is no baseline yet: old" {
		t.Errorf("annotation of the gate: %q", text)
	}
	if !strings.Contains(r.summary, "### watchlab controller") || !strings.Contains(r.summary, "lost updates") {
		t.Errorf("summary: %s", r.summary)
	}
	if cases, failures := r.junit(t); cases < 5 || failures != nil {
		t.Errorf("JUnit: %d test cases with the failures %v, want none", cases, failures)
	}
}

// TestFails: a controller that loses updates fails the step, with the reason in all places; the job goes on with
// steps that ask for it alone.
func TestFails(t *testing.T) {
	r, ok := play{args: "--lossy"}.run(t)
	if ok {
		t.Error("the job succeeded")
	}
	if !strings.Contains(r.log, "## Play\nexit code 1\n") || !strings.Contains(r.log, "## Gate is skipped\n") {
		t.Error("the step Play has another exit code than 1, or Gate ran without a baseline")
	}
	if _, deployed := r.find("notice", "deployed"); deployed {
		t.Error("the step after the action ran")
	}
	if text, _ := r.find("error", "lost updates (new)"); !strings.Contains(text, "each change is seen") {
		t.Errorf("annotations: %+v, want an error for lost updates with the rule", r.annotations)
	}
	if !strings.Contains(r.summary, "each change is seen") {
		t.Errorf("summary: %s", r.summary)
	}
	if _, failures := r.junit(t); !slices.Equal(failures, []string{"lost updates"}) {
		t.Errorf("JUnit: failures %v, want lost updates", failures)
	}
}

// fewer is a benchmark file of four rounds with few requests.
func fewer() string {
	var out strings.Builder
	for i := range 4 {
		fmt.Fprintf(&out, "BenchmarkController/impl=new/storm=workload.yaml/faults=none 1 %d requests/run %d writes/run 3 relists/run\n", 21+i%2, 20+i%2)
	}
	return out.String()
}

// TestRegresses: the step fails where the gate does, against a run that had fewer requests.
func TestRegresses(t *testing.T) {
	r, ok := play{flags: "--rounds 4", baseline: "old", old: fewer()}.run(t)
	if ok || strings.Count(r.log, "exit code 1\n") != 1 || !strings.Contains(r.log, "## Gate\nexit code 1\n") {
		t.Error("the job succeeded, or another step than Gate failed")
	}
	if text, _ := r.find("error", "watchlab gate"); !strings.HasPrefix(text, "gate failed: of 3 figures, ") {
		t.Errorf("annotations: %+v, want an error of the gate", r.annotations)
	}
	if !strings.Contains(r.summary, "### watchlab gate") || !strings.Contains(r.summary, "regressed: Controller/impl=new/") {
		t.Errorf("summary: %s", r.summary)
	}
}

// TestCannotTell: one round is too few for the gate. That is a warning, and fails the step only with --strict.
func TestCannotTell(t *testing.T) {
	for gate, passes := range map[string]bool{"": true, "--strict": false} {
		r, ok := play{baseline: "old", old: fewer(), gate: gate}.run(t)
		if text, _ := r.find("warning", "watchlab gate"); ok != passes || !strings.HasPrefix(text, "gate cannot tell: ") {
			t.Errorf("with the flags %q: passed %v, %+v, want passed %v and a warning", gate, ok, r.annotations, passes)
		}
	}
}

// TestBadInput: a command that is no list of words fails before the play.
func TestBadInput(t *testing.T) {
	r, ok := play{args: "'"}.run(t)
	if ok || !strings.Contains(r.log, "unmatched single quote") || strings.Contains(r.log, "play 1 of") {
		t.Error("a command with an open quote was played")
	}
}

func TestExpressions(t *testing.T) {
	names := map[string]string{"inputs.a": "x", "inputs.none": "", "failure()": "true", "cancelled()": "false"}
	for text, want := range map[string]string{
		"inputs.a": "x", "inputs.absent": "", "'it''s'": "it's", "inputs.a == 'X'": "true", "inputs.a != 'x'": "false",
		"!inputs.none && inputs.a": "x", "inputs.none || 'default'": "default", "!(inputs.a == 'x') || failure()": "true",
		"inputs.a != '' && !cancelled() && inputs.none != ''": "false",
	} {
		if got, err := evaluate(text, names); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a ==", "(a", "a b", "a + b", "contains()"} {
		if got, err := evaluate(text, names); err == nil {
			t.Errorf("%s: %q, want an error", text, got)
		}
	}
	if got, err := expand("-${{ inputs.a }}-${{inputs.none}}-", names); err != nil || got != "-x--" {
		t.Errorf("expand: %q, %v", got, err)
	}
}
