package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/study"
)

// quickWork is a workload that is over at once.
type quickWork struct{}

func (quickWork) Setup(context.Context) error { return nil }
func (quickWork) Check() error                { return nil }
func (quickWork) Teardown() error             { return nil }

func (quickWork) Run(_ context.Context, rec *cell.Recorder) error {
	rec.Begin()
	for start := time.Now(); !time.Now().After(start); { // A measurement takes time, be it the least.
	}
	rec.End()
	rec.Count(100, 100)
	return nil
}

// theatre stands in for the commands that a study plays, and logs them.
type theatre struct {
	played [][]string

	codes []int

	unfinished []int
}

func flagOf(args []string, name string) string {
	if at := slices.Index(args, name); at >= 0 {
		return args[at+1]
	}
	return ""
}

func (p *theatre) play(ctx context.Context, args []string, _, _ io.Writer) int {
	n := len(p.played)
	p.played = append(p.played, args)
	dir := flagOf(args, "--out")
	if resumed := flagOf(args, "--resume"); resumed != "" {
		// What stays of a run is not the matter here.
		dir = resumed
		if err := os.RemoveAll(dir); err != nil {
			return exitInvalid
		}
	}
	if n < len(p.codes) && p.codes[n] == exitUsage {
		return exitUsage
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	plays := 0
	_, err := lab.Run(ctx, []lab.Comparison{{Family: "f", Title: "t", Cells: []lab.Cell{{
		Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "ring"}, {Key: "batch", Value: "1"}, {Key: "readers", Value: "0"}, {Key: "skew", Value: "uniform"}},
		New: func() (lab.Workload, error) { return quickWork{}, nil },
	}}}}, lab.Options{Rounds: 2, NoAA: true, Dir: dir, Args: args, Progress: func(lab.Progress) {
		if plays++; plays == 4 && slices.Contains(p.unfinished, n) {
			cancel()
		}
	}})
	if err != nil {
		return exitInvalid
	}
	if n < len(p.codes) {
		return p.codes[n]
	}
	return exitOK
}

// staged begins a study of three parts with a theatre.
func staged(t *testing.T, budget time.Duration) (*studyRun, *theatre) {
	t.Helper()
	questions, err := study.Choose([]string{"batch-size", "hot-keys"})
	if err != nil {
		t.Fatal(err)
	}
	p := &theatre{}
	s := newStudyRun(filepath.Join(t.TempDir(), "deep", "study"), budget, []string{"study", "--out", "x"}, questions)
	s.play = p.play
	if err := s.create(); err != nil {
		t.Fatal(err)
	}
	return s, p
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"README.md", "batch-size/README.md", "hot-keys/README.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			out[name] = string(text)
		}
	}
	return out
}

func TestStudy(t *testing.T) {
	s, p := staged(t, 90*time.Second)
	var out, errs bytes.Buffer
	if err := s.run(t.Context(), &out, &errs); err != nil {
		t.Fatal(err)
	}
	if len(p.played) != 3 {
		t.Fatalf("%d commands were played: %q", len(p.played), p.played)
	}
	// Three parts of equal weight: what one leaves of its share is the others'.
	for i, args := range p.played {
		got, err := time.ParseDuration(flagOf(args, "--budget"))
		if err != nil || got < 30*time.Second || got > []time.Duration{30 * time.Second, 45 * time.Second, 90 * time.Second}[i] {
			t.Errorf("play %d has a budget of %v (%v)", i, got, err)
		}
	}
	if want := filepath.Join(s.dir, "batch-size", "handler"); flagOf(p.played[1], "--out") != want || p.played[1][0] != "surface" {
		t.Errorf("%q, want it to write %s", p.played[1], want)
	}
	got := pages(t, s.dir)
	if len(got) != 3 || got["README.md"] != out.String() || !strings.Contains(out.String(), "watchlab study --out x") {
		t.Errorf("%d pages; stdout\n%s", len(got), out.String())
	}
	for name, parts := range map[string][]string{
		"batch-size/README.md": {"ring, 0 readers: fastest in batches of 1", "2 rounds of each cell; 1 valid", "readers/report.html"},
		"hot-keys/README.md":   {"ring (batches of up to 1)"},
	} {
		for _, part := range parts {
			if !strings.Contains(got[name], part) && !strings.Contains(got[name], strings.Replace(part, "valid", "noisy", 1)) {
				t.Errorf("%s lacks %q:\n%s", name, part, got[name])
			}
		}
	}
}

// TestStudyResumed: an interrupted study goes on where it was, and nothing that is
// finished is played again.
func TestStudyResumed(t *testing.T) {
	s, p := staged(t, time.Minute)
	p.codes, p.unfinished = []int{exitOK, exitInterrupted}, []int{1}
	var errs bytes.Buffer
	if err := s.run(t.Context(), io.Discard, &errs); !errors.Is(err, errInterrupted) {
		t.Fatal(err)
	}
	if !strings.Contains(errs.String(), "watchlab study --resume "+s.dir) || len(p.played) != 2 {
		t.Errorf("%d plays, stderr\n%s", len(p.played), errs.String())
	}
	if got := pages(t, s.dir)["batch-size/README.md"]; !strings.Contains(got, "It was interrupted") {
		t.Errorf("the page doesn't say that it was interrupted:\n%s", got)
	}
	again, err := openStudy(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if again.budget != time.Minute || !slices.Equal(again.args, s.args) {
		t.Errorf("taken up as %v, %q", again.budget, again.args)
	}
	second := &theatre{}
	again.play = second.play
	var out bytes.Buffer
	if err := again.run(t.Context(), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(second.played) != 2 || flagOf(second.played[0], "--resume") != filepath.Join(s.dir, "batch-size", "handler") || second.played[0][0] != "surface" ||
		flagOf(second.played[1], "--out") != filepath.Join(s.dir, "hot-keys", "skew") {
		t.Errorf("played %q", second.played)
	}
	// A third time there is nothing to play.
	if again, err = openStudy(s.dir); err != nil {
		t.Fatal(err)
	}
	third := &theatre{}
	again.play = third.play
	var same bytes.Buffer
	if err := again.run(t.Context(), &same, io.Discard); err != nil || len(third.played) != 0 || same.String() != out.String() {
		t.Errorf("%v, %d plays, stdout\n%s", err, len(third.played), same.String())
	}
}

// TestStudyGoesOn after a broken invariant, and ends with it; bad input ends it at
// once.
func TestStudyGoesOn(t *testing.T) {
	s, p := staged(t, time.Minute)
	p.codes = []int{exitInvalid}
	if err := s.run(t.Context(), io.Discard, io.Discard); !errors.Is(err, errInvalid) || len(p.played) != 3 {
		t.Errorf("%v after %d plays", err, len(p.played))
	}
	s, p = staged(t, time.Minute)
	p.codes = []int{exitUsage}
	if err := s.run(t.Context(), io.Discard, io.Discard); err == nil || errors.Is(err, errInvalid) || len(p.played) != 1 ||
		!strings.Contains(err.Error(), "batch-size, readers: watchlab surface") {
		t.Errorf("%v after %d plays", err, len(p.played))
	}
}

// TestStudyOverBudget: what took too long leaves the others a second.
func TestStudyOverBudget(t *testing.T) {
	s, p := staged(t, time.Nanosecond)
	if err := s.run(t.Context(), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, args := range p.played {
		if flagOf(args, "--budget") != "1s" {
			t.Errorf("%q", args)
		}
	}
}

func TestStudyBadInput(t *testing.T) {
	there := t.TempDir()
	damaged := t.TempDir()
	unknown := t.TempDir()
	for dir, text := range map[string]string{damaged: "{", unknown: `{"budgetNs": 1, "questions": ["nobody"]}`} {
		if err := os.WriteFile(filepath.Join(dir, studyFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--question", "nobody"}, []string{`--question: unknown question "nobody"`, "relist"}},
		{[]string{"--budget", "0"}, []string{"--budget: 0s is not above 0"}},
		{[]string{"--budget", "-1m"}, []string{"--budget: -1m0s"}},
		{[]string{"--out", there}, []string{"--out: " + there + " exists"}},
		{[]string{"--resume", there}, []string{"--resume: " + there + " is no study's folder"}},
		{[]string{"--resume", damaged}, []string{"--resume: " + filepath.Join(damaged, studyFile)}},
		{[]string{"--resume", unknown}, []string{"--resume: " + filepath.Join(unknown, studyFile), `unknown question "nobody"`}},
		{[]string{"--resume", there, "--budget", "1m"}, []string{"--budget: is the study's"}},
		{[]string{"readers"}, []string{`study takes no argument "readers"`}},
	} {
		code, out, errs := call(t, append([]string{"study"}, tc.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", tc.args, code, out, errs)
		}
		for _, w := range tc.want {
			if !strings.Contains(errs, w) {
				t.Errorf("%q: stderr %q lacks %q", tc.args, errs, w)
			}
		}
	}
	if left, err := os.ReadDir(there); err != nil || len(left) != 0 {
		t.Errorf("%d files were left (%v)", len(left), err)
	}
}

// TestStudyCommands: every part's command can be played as it stands. Each is
// interrupted before its first cell.
func TestStudyCommands(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, q := range study.Questions() {
		for _, p := range q.Parts {
			// A smaller storm is made sooner.
			args := append(slices.Clone(p.Args), "--scale", "0.01", "--budget", "1s", "-o", "json")
			var out, errs bytes.Buffer
			code := run(ctx, args, &out, &errs)
			if code != exitInterrupted || !strings.Contains(errs.String(), "0 of ") {
				t.Errorf("%s, %s: exit code %d, stderr %q", q.Name, p.Name, code, errs.String())
			}
		}
	}
}
