package cli

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
)

// burner is a workload that only uses CPU time: some 100 ms, times times.
type burner struct {
	stage string
	times int
}

func (burner) Setup(context.Context) error { return nil }
func (burner) Check() error                { return nil }
func (burner) Teardown() error             { return nil }

func (b burner) Run(ctx context.Context, rec *cell.Recorder) error {
	rec.Begin()
	var x uint64
	profile.Do(ctx, b.stage, func(context.Context) {
		// More than the bytes between two samples of the allocation profile.
		block := make([]byte, 4<<20)
		for range b.times {
			x += burn()
		}
		runtime.KeepAlive(block)
	})
	// Two collections publish the samples of the allocation profile.
	runtime.GC()
	runtime.GC()
	rec.End()
	rec.Count(1000, max(x&1, 1))
	return nil
}

// burn uses some 50 ms of CPU time, also on a busy machine.
//
//go:noinline
func burn() uint64 {
	x := uint64(1)
	for range 60_000_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// profiledRun plays two cells with profiles and returns the results folder.
func profiledRun(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	c := lab.Comparison{Family: "queue", Title: "burning"}
	// The difference of two equal cells can be 0, and pprof does not show it.
	for i, impl := range []string{"cond", "ring"} {
		c.Cells = append(c.Cells, lab.Cell{
			Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: impl}, {Key: "storm", Value: "gang"}},
			New: func() (lab.Workload, error) { return burner{stage: "pop", times: 1 + 2*i}, nil },
		})
	}
	_, err := lab.Run(t.Context(), []lab.Comparison{c}, lab.Options{
		Rounds: 1, Dir: dir, NoAA: true, IgnoreHost: true,
		Profile: profile.NewProfiler(dir, []profile.Kind{profile.CPU, profile.Allocs}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestProfile(t *testing.T) {
	dir := profiledRun(t)
	t.Run("shown", func(t *testing.T) { testProfileShown(t, dir) })
	t.Run("bad input", func(t *testing.T) { testProfileBadInput(t, dir) })
}

func testProfileShown(t *testing.T, dir string) {
	perEvent := filepath.Join(t.TempDir(), "per-event")
	file := filepath.Join(dir, profile.Dir, profile.CPU.FileName("Queue/impl=ring/storm=gang"))
	const perMillion = ", values of 1000000 events\n"
	for name, tc := range map[string]struct {
		args         []string
		want, stderr []string
	}{
		"diff of cells": {
			[]string{"diff", dir, dir, "--cell", "impl=cond", "--cell", "storm=gang,impl=ring", "--pprof", perEvent},
			[]string{"Showing nodes accounting for", "cli.burn"},
			[]string{"before: Queue/impl=cond/storm=gang in " + dir + perMillion, "after: Queue/impl=ring/storm=gang in " + dir + perMillion},
		},
		"by stage":   {[]string{"top", dir, "--cell", "impl=ring", "--", "-top", "-tagleaf=stage"}, []string{" pop\n"}, nil},
		"by variant": {[]string{"top", dir, "--cell", "impl=ring", "--", "-top", "-tagleaf=variant", "-tagfocus=stage=pop"}, []string{" ring\n"}, nil},
		"a file":     {[]string{"top", file}, []string{"cli.burn"}, []string{"Queue/impl=ring/storm=gang in " + dir + perMillion}},
		"other kind": {[]string{"top", dir, "--cell", "Queue/impl=cond/storm=gang", "--kind", "allocs"}, []string{"Type: alloc_space"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"profile"}, tc.args...)...)
			if code != exitOK {
				t.Fatalf("exit code %d, %s", code, stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in:\n%s", want, stdout)
				}
			}
			for _, want := range tc.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in:\n%s", want, stderr)
				}
			}
		})
	}
	for _, name := range []string{"before.pb.gz", "after.pb.gz"} {
		if _, err := os.Stat(filepath.Join(perEvent, name)); err != nil {
			t.Error(err)
		}
	}
}

func testProfileBadInput(t *testing.T, dir string) {
	file := filepath.Join(dir, profile.Dir, profile.CPU.FileName("Queue/impl=ring/storm=gang"))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no argument":    {[]string{"top"}, "takes a profile or a results folder, not []"},
		"one of two":     {[]string{"diff", file}, "takes two profiles"},
		"no file":        {[]string{"top", filepath.Join(dir, "none")}, "no such file"},
		"no run":         {[]string{"top", t.TempDir()}, "run.json"},
		"another file":   {[]string{"top", filepath.Join(dir, "run.json")}, "not a profile"},
		"several cells":  {[]string{"top", dir}, `--cell: "" is not one cell of`},
		"no such cell":   {[]string{"top", dir, "--cell", "impl=x"}, "have Queue/impl=cond/storm=gang, Queue/impl=ring/storm=gang"},
		"half a part":    {[]string{"top", dir, "--cell", "impl=rin"}, "--cell: no cell of"},
		"cell of a file": {[]string{"top", file, "--cell", "impl=x"}, "is a file"},
		"too many cells": {[]string{"top", dir, "--cell", "a", "--cell", "b"}, "--cell: given 2 times for 1 profiles"},
		"not profiled":   {[]string{"top", dir, "--kind", "mutex"}, "run --profile mutex takes them"},
		"kind":           {[]string{"top", dir, "--kind", "x"}, `--kind: no such kind of profile "x"`},
		"trace":          {[]string{"top", dir, "--kind", "trace"}, "go tool trace"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"profile"}, tc.args...)...)
			if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want one line with %q", code, stdout, stderr, tc.want)
			}
		})
	}
}
