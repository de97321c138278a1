package pprof_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"watchlab/bench/pprof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is the profiled load: CPU time, live and temporary memory, a contended lock, and
// a waiting goroutine. It returns the live memory.
func work(ctx context.Context) (live [][]byte) {
	pprof.Do(pprof.With(ctx, "queue", cellLabels), "pop", func(context.Context) {
		var (
			mu     sync.Mutex
			held   = make(chan struct{})
			waited sync.WaitGroup
		)
		mu.Lock()
		waited.Go(func() { close(held); mu.Lock(); defer mu.Unlock() })
		<-held
		for range 64 {
			live = append(live, allocate(1<<20))
		}
		burn(300 * time.Millisecond)
		mu.Unlock()
		waited.Wait()
	})
	return live
}

//go:noinline
func allocate(n int) []byte { return make([]byte, n) }

// burn takes at least d, with some CPU time even on a busy machine.
//
//go:noinline
func burn(d time.Duration) uint64 {
	start, x := time.Now(), uint64(1)
	for range d / time.Millisecond {
		for range 400_000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	for time.Since(start) < d {
		runtime.Gosched()
	}
	return x
}

func parsed(t *testing.T, path string) *profile.Profile {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p, err := profile.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func comments(t *testing.T, path string) []string {
	t.Helper()
	return parsed(t, path).Comments
}

// total is the sum of a value over the samples with the function in their stack.
func total(t *testing.T, path, value, function string) int64 {
	t.Helper()
	p := parsed(t, path)
	at := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == value })
	if at < 0 {
		t.Fatalf("%s has no %s", filepath.Base(path), value)
	}
	var sum int64
	for _, s := range p.Sample {
		for _, l := range s.Location {
			if slices.ContainsFunc(l.Line, func(l profile.Line) bool { return strings.HasSuffix(l.Function.Name, "."+function) }) {
				sum += s.Value[at]
				break
			}
		}
	}
	return sum
}

// TestProfilerKinds: each kind shows the work of its cell, and nothing of the cell before.
func TestProfilerKinds(t *testing.T) {
	dir := t.TempDir()
	p := pprof.NewProfiler(dir, pprof.Kinds())
	path := func(k pprof.Kind, cell string) string { return filepath.Join(dir, pprof.Dir, k.FileName(cell)) }
	const busy, idle = "Queue/impl=ring", "Queue/impl=idle"
	for _, cell := range []string{busy, idle} {
		stop, err := p.Start(cell)
		if err != nil {
			t.Fatal(err)
		}
		var live [][]byte
		if cell == busy {
			live = work(t.Context())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(live)
	}
	for _, tc := range []struct {
		kind            pprof.Kind
		value, function string
		least, most     int64
	}{
		{pprof.CPU, "cpu", "burn", 1, int64(20 * time.Second)},
		{pprof.Heap, "inuse_space", "allocate", 40 << 20, 90 << 20}, // of 64 MB, as sampled
		{pprof.Allocs, "alloc_space", "allocate", 40 << 20, 90 << 20},
		{pprof.Mutex, "contentions", "work", 1, 10}, // the runtime's own locks among them
		{pprof.Block, "contentions", "work.func1.1", 1, 10},
	} {
		if got := total(t, path(tc.kind, busy), tc.value, tc.function); got < tc.least || got > tc.most {
			t.Errorf("%s: %d of %s in %s, want %d to %d", tc.kind, got, tc.value, tc.function, tc.least, tc.most)
		}
		if got := total(t, path(tc.kind, idle), tc.value, tc.function); got != 0 {
			t.Errorf("%s: %d of %s in the next cell", tc.kind, got, tc.value)
		}
	}
	if got := comments(t, path(pprof.CPU, busy)); !slices.Contains(got, "watchlab cell Queue/impl=ring") {
		t.Errorf("comments %q", got)
	}
	entries, err := os.ReadDir(filepath.Join(dir, pprof.Dir))
	if err != nil || len(entries) != 2*len(pprof.Kinds()) {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestPlaysAccumulate: plays of a cell add up. The heap is that of the last one.
func TestPlaysAccumulate(t *testing.T) {
	dir := t.TempDir()
	p := pprof.NewProfiler(dir, pprof.Kinds())
	path := func(k pprof.Kind) string { return filepath.Join(dir, pprof.Dir, k.FileName("a")) }
	for _, n := range []int{16 << 20, 8 << 20, 32 << 20} {
		stop, err := p.Start("a")
		if err != nil {
			t.Fatal(err)
		}
		block := allocate(n)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(block)
	}
	if got := total(t, path(pprof.Allocs), "alloc_space", "allocate"); got < 56<<20 || got > 58<<20 {
		t.Errorf("%d B allocated, want 56 MB, as sampled", got)
	}
	if got := total(t, path(pprof.Heap), "inuse_space", "allocate"); got < 32<<20 || got > 33<<20 {
		t.Errorf("%d B live, want 32 MB", got)
	}
	for k, want := range map[pprof.Kind]int{pprof.CPU: 3, pprof.Allocs: 3, pprof.Heap: 1} {
		if got := comments(t, path(k)); !slices.Equal(got, []string{"watchlab cell a", fmt.Sprintf("watchlab plays %d", want)}) {
			t.Errorf("%s: comments %q, want %d plays", k, got, want)
		}
	}
}

func TestProfilerIsBusy(t *testing.T) {
	dir := t.TempDir()
	p := pprof.NewProfiler(dir, []pprof.Kind{pprof.Heap, pprof.CPU})
	stop, err := p.Start("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Start("b"); !errors.Is(err, pprof.ErrBusy) {
		t.Errorf("a second cell at the same time: %v", err)
	}
	// Another CPU profile is running; Start stops the kinds that it has started.
	if _, err := pprof.NewProfiler(dir, pprof.Kinds()).Start("c"); !errors.Is(err, pprof.ErrBusy) {
		t.Errorf("a second CPU profile: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, pprof.Dir))
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if stop, err = p.Start("b"); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestProfilerWithoutFolder checks that Start does not create a missing results folder.
func TestProfilerWithoutFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if _, err := pprof.NewProfiler(dir, pprof.Kinds()).Start("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is there")
	}
}

func TestParse(t *testing.T) {
	for list, want := range map[string][]pprof.Kind{
		"all":           pprof.Kinds(),
		"cpu":           {pprof.CPU},
		"heap, cpu,cpu": {pprof.Heap, pprof.CPU},
	} {
		if got, err := pprof.Parse(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "cpu,", "CPU", "cpu,all"} {
		if got, err := pprof.Parse(list); !errors.Is(err, pprof.ErrKind) || !strings.Contains(err.Error(), "have all, cpu, heap") {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}

// TestFileNames checks that names are unique and valid in every file system.
func TestFileNames(t *testing.T) {
	seen := map[string]string{}
	for _, cell := range []string{"A/b=c", "A_b=c", "A/b=ü", "A/b=é", strings.Repeat("x", 300), strings.Repeat("x", 301), "A/b=../../c"} {
		for _, k := range pprof.Kinds() {
			name := k.FileName(cell)
			if have, ok := seen[name]; ok {
				t.Errorf("%s and %s are both %s", have, cell, name)
			}
			seen[name] = cell
			if len(name) > 250 || strings.ContainsAny(name, "/\\: ") {
				t.Errorf("%s", name)
			}
		}
	}
	if got := pprof.CPU.FileName("Queue/impl=ring"); got != "Queue_impl=ring.cpu.pb.gz" {
		t.Error(got)
	}
}
