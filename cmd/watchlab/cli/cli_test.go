package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/controller/program"
	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/source"
)

// lossy is the variant cond, except that it loses one event in 1,000.
const lossy = "test-lossy"

// asCommand is the environment variable that turns the test binary into the command.
const asCommand = "WATCHLAB_TEST_COMMAND"

func TestMain(m *testing.M) {
	source.RunChild()
	program.RunChild()
	deltafifo.Register(deltafifo.Variant{
		Name: lossy, Summary: "loses events",
		Guarantees: []impls.Guarantees{{
			Mode: string(deltafifo.InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.QueueWithBatch",
		}},
		New: func(o deltafifo.Options) (deltafifo.Queue, error) {
			q, err := deltafifo.New("cond", o)
			if err != nil {
				return nil, err
			}
			return &lossyQueue{BatchQueue: q.(deltafifo.BatchQueue)}, nil
		},
	})
	if os.Getenv(asCommand) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

type lossyQueue struct {
	deltafifo.BatchQueue
	n int
}

var _ cache.QueueWithBatch = (*lossyQueue)(nil)

func (q *lossyQueue) Update(obj any) error {
	if q.n++; q.n%1000 == 0 {
		return nil
	}
	return q.BatchQueue.Update(obj)
}

// run runs the command. It continues in this process, since another one would run the tests.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, args, stdout, stderr, run)
}

// call runs the command as a user would.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// small are the flags of a short run.
var small = []string{"run", "--family", "deltafifo", "--delivery", "in-order", "--events", "3000", "--rounds", "1", "--ignore-host", "--storm", tiny}

// tiny is a recording of three pods in the format of a real one.
const tiny = "testdata/input/tiny.jsonl"

func with(args []string, more ...string) []string {
	return append(append([]string{}, args...), more...)
}

func TestResultsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	args := with(small, "--impl", "cond", "-o", "json", "--out", dir)
	code, out, errs := call(t, args...)
	if code != exitOK || !strings.Contains(errs, dir) {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	var printed lab.Outcome
	noError(t, json.Unmarshal([]byte(out), &printed))
	kept := must(lab.Load(dir))(t)
	if len(kept.Comparisons) != 1 || len(kept.Comparisons[0].Cells) != 2 || kept.Comparisons[0].Cells[0].Verdict.Status == lab.Invalid || kept.Comparisons[0].Cells[1].Repeats == "" {
		t.Errorf("the folder holds %+v", kept.Comparisons)
	}
	before := snapshot(t, dir)
	if code, _, errs := call(t, args...); code != exitUsage || !strings.Contains(errs, "--out") {
		t.Errorf("a second run into the folder: exit code %d, stderr %q", code, errs)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("a second run changed the folder\nfrom\n%s\nto\n%s", before, after)
	}
	for _, name := range []string{"run.json", "env.json", "bench.txt", "report.md"} {
		if !strings.Contains(before, name) {
			t.Errorf("the folder lacks %s:\n%s", name, before)
		}
	}
}

// snapshot returns the names and contents of all files of a folder.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		b.WriteString(path + "\n" + string(content) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLostEvent: a variant that loses an event is reported by name and exit code, without figures.
func TestLostEvent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, out, errs := call(t, with(small, "--impl", lossy+",cond", "--out", dir)...)
	if code != exitInvalid {
		t.Errorf("exit code %d, want %d", code, exitInvalid)
	}
	if !strings.Contains(errs, lossy) || !strings.Contains(errs, "lost") {
		t.Errorf("stderr does not say what was lost by whom: %q", errs)
	}
	row := regexp.MustCompile(`(?m)^ *` + lossy + ` .*$`).FindString(out)
	if !strings.Contains(row, "invalid: lost") || regexp.MustCompile(`\d[kM ]* ±|\d×`).MatchString(row) {
		t.Errorf("the row of %s shows figures, or no verdict: %q", lossy, row)
	}
	bench := must(os.ReadFile(filepath.Join(dir, "bench.txt")))(t)
	if bytes.Contains(bench, []byte("impl="+lossy)) || !bytes.Contains(bench, []byte("impl=cond")) {
		t.Errorf("bench.txt must hold cond and not %s:\n%s", lossy, bench)
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := call(t, "--version")
	if code != exitOK || errs != "" || !regexp.MustCompile(`^watchlab version \S+, go1\.`).MatchString(out) {
		t.Errorf("exit code %d, stderr %q, stdout %q", code, errs, out)
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError ends the test with the error of a call.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
