package profile_test

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

	pprof "github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"watchlab/bench/profile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is the profiled load: CPU time, live and temporary memory, a contended lock, and
// a waiting goroutine.
func work(ctx context.Context) {
	profile.Do(profile.With(ctx, cellLabels), "pop", func(context.Context) {
		var (
			mu     sync.Mutex
			held   = make(chan struct{})
			ended  = make(chan struct{})
			waited sync.WaitGroup
		)
		mu.Lock()
		waited.Go(func() { close(held); mu.Lock(); defer mu.Unlock() })
		<-held
		// A goroutine profile is taken when their number has grown by more than a tenth.
		for range 20 {
			waited.Go(func() { <-ended })
		}
		live := make([][]byte, 64)
		for i := range live {
			live[i] = allocate(1 << 20)
		}
		burn(300 * time.Millisecond)
		runtime.GC()
		runtime.GC()
		burn(50 * time.Millisecond) // time for a poll of the heap
		mu.Unlock()
		close(ended)
		waited.Wait()
		runtime.KeepAlive(live)
	})
	runtime.GC()
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

func parsed(t *testing.T, path string) *pprof.Profile {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p, err := pprof.Parse(file)
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
	at := slices.IndexFunc(p.SampleType, func(v *pprof.ValueType) bool { return v.Type == value })
	if at < 0 {
		t.Fatalf("%s has no %s", filepath.Base(path), value)
	}
	var sum int64
	for _, s := range p.Sample {
		for _, l := range s.Location {
			if slices.ContainsFunc(l.Line, func(l pprof.Line) bool { return strings.HasSuffix(l.Function.Name, "."+function) }) {
				sum += s.Value[at]
				break
			}
		}
	}
	return sum
}

func TestProfilerKinds(t *testing.T) {
	dir := t.TempDir()
	p := profile.NewProfiler(dir, profile.Kinds())
	paths := map[profile.Kind]string{}
	for _, cell := range []string{"Queue/impl=idle", "Queue/impl=ring"} {
		stop, err := p.Start(cell)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(cell, "ring") {
			work(t.Context())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for _, k := range profile.Kinds() {
			paths[k] = filepath.Join(dir, profile.Dir, k.FileName(cell))
			if _, err := os.Stat(paths[k]); err != nil {
				t.Error(err)
			}
		}
	}
	for _, tc := range []struct {
		kind            profile.Kind
		value, function string
		least, most     int64
	}{
		{profile.CPU, "cpu", "burn", 1, int64(20 * time.Second)},
		{profile.Heap, "inuse_space", "allocate", 40 << 20, 90 << 20}, // of 64 MB, as sampled
		{profile.Allocs, "alloc_space", "allocate", 40 << 20, 90 << 20},
		{profile.Mutex, "contentions", "work", 1, 10}, // the runtime's own locks among them
		{profile.Goroutine, "goroutine", "work.func1.1", 1, 1},
	} {
		if got := total(t, paths[tc.kind], tc.value, tc.function); got < tc.least || got > tc.most {
			t.Errorf("%s: %d of %s in %s, want %d to %d", tc.kind, got, tc.value, tc.function, tc.least, tc.most)
		}
	}
	if got := total(t, paths[profile.Block], "contentions", "work.func1.1"); got < 1 {
		t.Errorf("no goroutine waited for the lock")
	}
	if got := comments(t, paths[profile.CPU]); !slices.Contains(got, "watchlab cell Queue/impl=ring") {
		t.Errorf("comments %q", got)
	}
	entries, err := os.ReadDir(filepath.Join(dir, profile.Dir))
	if err != nil || len(entries) != 2*len(profile.Kinds()) {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestProfilesPerCell checks that profiles do not contain earlier allocations and waits.
func TestProfilesPerCell(t *testing.T) {
	dir := t.TempDir()
	p := profile.NewProfiler(dir, []profile.Kind{profile.Allocs, profile.Mutex})
	for _, cell := range []string{"a", "b"} {
		stop, err := p.Start(cell)
		if err != nil {
			t.Fatal(err)
		}
		if cell == "a" {
			work(t.Context())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	for kind, value := range map[profile.Kind]string{profile.Allocs: "alloc_space", profile.Mutex: "contentions"} {
		before := total(t, filepath.Join(dir, profile.Dir, kind.FileName("a")), value, "work")
		after := total(t, filepath.Join(dir, profile.Dir, kind.FileName("b")), value, "work")
		if before <= 0 || after != 0 {
			t.Errorf("%s: %d in the busy cell, %d in the next", kind, before, after)
		}
	}
}

// TestPlaysAccumulate checks that plays of a cell add up, except for kinds of one moment.
func TestPlaysAccumulate(t *testing.T) {
	dir := t.TempDir()
	p := profile.NewProfiler(dir, profile.Kinds())
	path := func(k profile.Kind) string { return filepath.Join(dir, profile.Dir, k.FileName("a")) }
	var first os.FileInfo
	sizes := []int{16 << 20, 32 << 20, 8 << 20}
	for i, n := range sizes {
		stop, err := p.Start("a")
		if err != nil {
			t.Fatal(err)
		}
		block := allocate(n)
		runtime.GC()
		runtime.GC()
		burn(30 * time.Millisecond) // time for a poll
		runtime.KeepAlive(block)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		trace, err := os.Stat(path(profile.Trace))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = trace
		} else if !os.SameFile(first, trace) {
			t.Error("the trace is of another play")
		}
	}
	if got := total(t, path(profile.Allocs), "alloc_space", "allocate"); got < 56<<20 || got > 58<<20 {
		t.Errorf("%d B allocated, want 56 MB, as sampled", got)
	}
	if got := total(t, path(profile.Heap), "inuse_space", "allocate"); got < 32<<20 || got > 33<<20 {
		t.Errorf("%d B live at the peak, want 32 MB", got)
	}
	for k, want := range map[profile.Kind]int{profile.CPU: 3, profile.Allocs: 3, profile.Heap: 1, profile.Goroutine: 1} {
		if got := comments(t, path(k)); !slices.Equal(got, []string{"watchlab cell a", fmt.Sprintf("watchlab plays %d", want)}) {
			t.Errorf("%s: comments %q, want %d plays", k, got, want)
		}
	}
}

func TestProfilerIsBusy(t *testing.T) {
	dir := t.TempDir()
	p := profile.NewProfiler(dir, []profile.Kind{profile.Heap, profile.CPU, profile.Trace})
	stop, err := p.Start("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Start("b"); !errors.Is(err, profile.ErrBusy) {
		t.Errorf("a second cell at the same time: %v", err)
	}
	// Another CPU profile is running; Start stops the kinds that it has started.
	if _, err := profile.NewProfiler(dir, profile.Kinds()).Start("c"); !errors.Is(err, profile.ErrBusy) {
		t.Errorf("a second CPU profile: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, profile.Dir))
	if err != nil || len(entries) != 3 {
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
	if _, err := profile.NewProfiler(dir, profile.Kinds()).Start("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is there")
	}
}

func TestParse(t *testing.T) {
	for list, want := range map[string][]profile.Kind{
		"all":            profile.Kinds(),
		"cpu":            {profile.CPU},
		"trace, cpu,cpu": {profile.Trace, profile.CPU},
	} {
		if got, err := profile.Parse(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "cpu,", "CPU", "cpu,all"} {
		if got, err := profile.Parse(list); !errors.Is(err, profile.ErrKind) || !strings.Contains(err.Error(), "have all, cpu, heap") {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}

// TestFileNames checks that names are unique and valid in every file system.
func TestFileNames(t *testing.T) {
	seen := map[string]string{}
	for _, cell := range []string{"A/b=c", "A_b=c", "A/b=ü", "A/b=é", strings.Repeat("x", 300), strings.Repeat("x", 301), "A/b=../../c"} {
		for _, k := range profile.Kinds() {
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
	if got := profile.CPU.FileName("Queue/impl=ring"); got != "Queue_impl=ring.cpu.pb.gz" {
		t.Error(got)
	}
}
