package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
)

// quickWork is a workload that ends at once.
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

// part is a call of a fake player.
type part struct {
	spec   experiment.Spec
	dir    string
	resume bool
}

// fakePlayer logs the parts of a study. Part i ends with error i; an interrupted part is
// unfinished.
type fakePlayer struct {
	played []part
	errs   []error
}

func (p *fakePlayer) play(ctx context.Context, s experiment.Spec, dir string, resume bool, _ io.Writer) error {
	n := len(p.played)
	p.played = append(p.played, part{s, dir, resume})
	var failed error
	if n < len(p.errs) {
		failed = p.errs[n]
	}
	var usage usageError
	if errors.As(failed, &usage) {
		return failed
	}
	if resume { // What is left of a run is no matter here.
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	plays := 0
	_, err := lab.Run(ctx, []lab.Comparison{{Family: "f", Title: "t", Cells: []lab.Cell{{
		Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "ring"}, {Key: "batch", Value: "1"}, {Key: "readers", Value: "0"}, {Key: "skew", Value: "uniform"}},
		New: func() (lab.Workload, error) { return quickWork{}, nil },
	}}}}, lab.Options{Rounds: 2, NoAA: true, IgnoreHost: true, Dir: dir, Progress: func(lab.Progress) {
		if plays++; plays == 4 && errors.Is(failed, errInterrupted) {
			cancel()
		}
	}})
	return errors.Join(err, failed)
}

// startStudy starts a study of three parts with a fake player.
func startStudy(t *testing.T, budget time.Duration, errs ...error) (*studyRun, *fakePlayer) {
	t.Helper()
	questions, err := experiment.Questions("batch-size", "hot-keys")
	if err != nil {
		t.Fatal(err)
	}
	s, err := createStudy(filepath.Join(t.TempDir(), "deep", "study"), budget, questions)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePlayer{errs: errs}
	s.play = p.play
	return s, p
}

func page(t *testing.T, s *studyRun, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStudy(t *testing.T) {
	s, p := startStudy(t, 90*time.Second)
	var out bytes.Buffer
	if err := s.run(t.Context(), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(p.played) != 3 {
		t.Fatalf("%d parts were played", len(p.played))
	}
	// Three parts of equal weight: later parts share the unused time of earlier ones.
	for i, got := range p.played {
		if b := got.spec.Budget.Duration; b < 30*time.Second || b > []time.Duration{30 * time.Second, 45 * time.Second, 90 * time.Second}[i] {
			t.Errorf("part %d has a budget of %v", i, b)
		}
	}
	if got := p.played[1]; got.dir != filepath.Join(s.dir, "batch-size", "handler") || got.spec.Search.Scale == nil || got.resume {
		t.Errorf("played %+v", got)
	}
	if page(t, s, "README.md") != out.String() {
		t.Errorf("stdout is not the index:\n%s", out.String())
	}
	for name, want := range map[string]string{
		"batch-size/README.md": "readers: best events/s: ring", "hot-keys/README.md": "skew, skew uniform: best events/s: ring",
	} {
		if got := page(t, s, name); !strings.Contains(got, want) || !strings.Contains(got, "Medians of 2 rounds") || !strings.Contains(got, "/report.html") {
			t.Errorf("%s lacks %q:\n%s", name, want, got)
		}
	}
}

// TestStudyResumed: an interrupted study continues, and plays nothing twice.
func TestStudyResumed(t *testing.T) {
	s, p := startStudy(t, time.Minute, nil, errInterrupted)
	var errs bytes.Buffer
	if err := s.run(t.Context(), io.Discard, &errs); !errors.Is(err, errInterrupted) {
		t.Fatal(err)
	}
	if !strings.Contains(errs.String(), "watchlab study --resume "+s.dir+" --budget 1m0s\n") || len(p.played) != 2 {
		t.Errorf("%d plays, stderr\n%s", len(p.played), errs.String())
	}
	if got := page(t, s, "batch-size/README.md"); !strings.Contains(got, "It was interrupted") {
		t.Errorf("the page doesn't say that it was interrupted:\n%s", got)
	}
	var first string
	for again := range 2 {
		resumed, err := openStudy(s.dir, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p := &fakePlayer{}
		resumed.play = p.play
		var out bytes.Buffer
		if err := resumed.run(t.Context(), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		switch {
		case again == 1 && (len(p.played) > 0 || out.String() != first):
			t.Errorf("a finished study played %d parts, and prints\n%s", len(p.played), out.String())
		case again == 0 && (len(p.played) != 2 || !p.played[0].resume || p.played[0].dir != filepath.Join(s.dir, "batch-size", "handler") ||
			p.played[1].resume || p.played[1].dir != filepath.Join(s.dir, "hot-keys", "skew")):
			t.Errorf("played %+v", p.played)
		}
		first = out.String()
	}
}

// TestStudyGoesOn: a study continues after a broken invariant and returns that error at
// the end. Bad input ends it at once.
func TestStudyGoesOn(t *testing.T) {
	s, p := startStudy(t, time.Minute, errInvalid)
	if err := s.run(t.Context(), io.Discard, io.Discard); !errors.Is(err, errInvalid) || len(p.played) != 3 {
		t.Errorf("%v after %d plays", err, len(p.played))
	}
	s, p = startStudy(t, time.Minute, usageError{errors.New("bad")})
	if err := s.run(t.Context(), io.Discard, io.Discard); err == nil || errors.Is(err, errInvalid) || len(p.played) != 1 || !strings.Contains(err.Error(), "batch-size, readers: bad") {
		t.Errorf("%v after %d plays", err, len(p.played))
	}
}

// TestStudyOverBudget: after a part that exceeded the budget, each other part gets one second.
func TestStudyOverBudget(t *testing.T) {
	s, p := startStudy(t, time.Nanosecond)
	if err := s.run(t.Context(), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, got := range p.played {
		if got.spec.Budget.Duration != time.Second {
			t.Errorf("a budget of %v", got.spec.Budget)
		}
	}
}

func TestStudyBadInput(t *testing.T) {
	there := t.TempDir()
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--question", "nobody"}, []string{`--question: unknown question "nobody"`, "relist"}},
		{[]string{"--budget", "0"}, []string{"--budget: 0s is not above 0"}},
		{[]string{"--budget", "-1m"}, []string{"--budget: -1m0s"}},
		{[]string{"--out", there}, []string{"--out: " + there + " exists"}},
		{[]string{"--resume", there}, []string{"--resume: " + there + " is no study's folder"}},
		{[]string{"--resume", there, "--question", "readers"}, []string{"--question: is not for --resume"}},
		{[]string{"readers"}, []string{`study takes only flags, not ["readers"]`}},
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
