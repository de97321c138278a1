package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/experiment"
)

// TestReproduce plays a thread at a tiny scale. The page tells what was played, and the copy of the page
// has links that lead back to the run.
func TestReproduce(t *testing.T) {
	threads, err := experiment.Threads("132240")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	s, err := createStudy(filepath.Join(root, "results", "x"), time.Minute, threads)
	if err != nil {
		t.Fatal(err)
	}
	s.pages = filepath.Join(root, "docs", "found")
	s.play = func(ctx context.Context, spec experiment.Spec, dir string, resume bool, stderr io.Writer) error {
		spec.Budget.Duration, spec.Rounds, spec.Processes = 0, 1, 1
		spec.Storm.Nodes, spec.Events = 100, 200
		return playPart(ctx, spec, dir, resume, stderr)
	}
	var out strings.Builder
	if err := s.run(t.Context(), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if want := "| [kubernetes#132240](132240/README.md) |"; !strings.Contains(out.String(), want) {
		t.Errorf("the index lacks %q:\n%s", want, out.String())
	}
	for _, want := range []string{"kubernetes/pull/132240", "Reduced scale:", "**cannot tell**", "too few rounds", "| clientgo-realfifo-batch | 8 |", "## Untested"} {
		if text := page(t, s, "132240/README.md"); !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	text, err := os.ReadFile(filepath.Join(s.pages, "132240.md"))
	if err != nil {
		t.Fatal(err)
	}
	link := "../../results/x/132240/batches/report.md"
	if _, err := os.Stat(filepath.Join(s.pages, link)); err != nil || !strings.Contains(string(text), "("+link+")") {
		t.Errorf("no link to %s (%v):\n%s", link, err, text)
	}
}

// TestReproduceBench: a benchmark of the tree is run, read again, and an error shows what go says.
func TestReproduceBench(t *testing.T) {
	src, dir := t.TempDir(), filepath.Join(t.TempDir(), "part")
	for name, text := range map[string]string{
		"go.mod":    "module m\n\ngo 1.26.0\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) {\n\tb.Run(\"impl=a\", func(b *testing.B) { b.ReportMetric(7, \"x-ns\") })\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := experiment.Bench{Dir: src, Pattern: "X"}
	if o, err := loadBench(b, dir); o != nil || err != nil {
		t.Errorf("before the run: %v, %v", o, err)
	}
	if err := playBench(t.Context(), b, dir, 2); err != nil {
		t.Fatal(err)
	}
	o, err := loadBench(b, dir)
	if err != nil || !finished(o) || o.Rounds != 2 || o.Comparisons[0].Cells[0].Label("impl") != "a" {
		t.Fatalf("%+v, %v", o, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := playBench(ctx, b, dir, 1); !errors.Is(err, errInterrupted) {
		t.Errorf("canceled: %v", err)
	}
	b.Pattern = "("
	if err := playBench(t.Context(), b, dir, 1); err == nil || !strings.Contains(err.Error(), "missing closing") {
		t.Errorf("a bad pattern: %v", err)
	}
}

func TestReproduceList(t *testing.T) {
	code, out, errs := call(t, "reproduce", "--list")
	want, err := os.ReadFile(filepath.Join("testdata", "threads.txt"))
	if err != nil || code != exitOK || errs != "" || out != string(want) {
		t.Errorf("exit code %d, stderr %q, error %v, stdout\n%s", code, errs, err, out)
	}
}

func TestReproduceBadInput(t *testing.T) {
	there := t.TempDir()
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"77"}, []string{`unknown thread "77" (have 103789, 130767,`, "3415"}},
		{nil, []string{"takes threads or --all (have 103789,"}},
		{[]string{"--all", "1326"}, []string{"takes threads or --all"}},
		{[]string{"1326", "--budget", "0s"}, []string{"--budget: 0s is not above 0"}},
		{[]string{"1326", "--out", there}, []string{"--out: " + there + " exists"}},
		{[]string{"--resume", there}, []string{"--resume: " + there + " is no study's folder"}},
		{[]string{"1326", "--resume", there}, []string{"--resume: goes on with"}},
		{[]string{"controller-runtime#3415"}, []string{"3415: its benchmark is in bench/controllerruntime, which is not here"}},
	} {
		code, out, errs := call(t, append([]string{"reproduce"}, tc.args...)...)
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
