// Package conformance_test runs every variant except the baselines for a long time. Each episode
// has a new instance, eight producers, slow and panicking handlers, and Close and Replace at random
// times. It checks that no event is lost, and that memory and goroutines do not grow.
//
//	go test -timeout 0 -v -run '^TestSoak$' ./impls/conformance -soak 10m
//
// The duration is divided among the variants. Without -soak the test is skipped.
package conformance_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

var duration = flag.Duration("soak", 0, "how long to soak all variants together; 0 skips it")

// producers is the number of producers per instance.
const producers = 8

// patience is the maximum wait for an event.
const patience = 30 * time.Second

// cell is a variant with one set of options.
type cell struct {
	name string
	// episode builds an instance, runs several rounds, closes it and checks the result.
	episode func(t *testing.T, rng *rand.Rand, m *meter)
}

// TestSoak divides the duration among all cells.
func TestSoak(t *testing.T) {
	if *duration <= 0 {
		t.Skip("asked for by -soak")
	}
	var cells []cell
	cells = append(cells, deltafifoCells()...)
	cells = append(cells, queueCells()...)
	cells = append(cells, mergeCells()...)
	share := *duration / time.Duration(len(cells))
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			m := newMeter(t)
			episodes := 0
			for until := time.Now().Add(share); time.Now().Before(until) && !t.Failed(); episodes++ {
				progress := watch(c.name, seed)
				c.episode(t, rng, m)
				progress.Stop()
				m.goroutinesGone()
			}
			m.flat()
			t.Logf("seed %d: %d episodes, %d rounds, %d events; heap %s", seed, episodes, len(m.heap), m.events, m)
		})
	}
}

// watch ends the process with all stacks if an episode hangs.
func watch(name string, seed uint64) *time.Timer {
	return time.AfterFunc(2*time.Minute, func() {
		debug.SetTraceback("all")
		fmt.Fprintf(os.Stderr, "%s hangs, with seed %d\n", name, seed)
		panic("an episode takes longer than two minutes")
	})
}

// meter samples memory and goroutines while the queue is empty.
type meter struct {
	t          *testing.T
	goroutines int
	heap       []uint64
	events     int
}

func newMeter(t *testing.T) *meter { return &meter{t: t, goroutines: runtime.NumGoroutine()} }

// sample records the heap at the end of a round, when the queue is empty.
func (m *meter) sample(events int) {
	m.events += events
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.heap = append(m.heap, s.HeapAlloc)
}

// goroutinesGone waits until the goroutines of an episode have ended.
func (m *meter) goroutinesGone() {
	// One further goroutine may be the watchdog's.
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > m.goroutines+1; {
		if time.Now().After(deadline) {
			m.t.Fatalf("%d goroutines, there were %d before", runtime.NumGoroutine(), m.goroutines)
		}
		<-time.After(time.Millisecond)
	}
}

// What the heap may grow by: a share of it, and what a sample may be off by.
const (
	maxGrowth = 0.1
	noise     = 1 << 20
)

// flat fits a line through the samples without the first quarter, and fails if
// its rise exceeds the limit.
func (m *meter) flat() {
	heap := m.heap[len(m.heap)/4:]
	if len(heap) < 8 || m.t.Failed() {
		return
	}
	mean, rise := fit(heap)
	if rise > maxGrowth*mean+noise {
		m.t.Errorf("the heap grew by %.1f MB from a mean of %.1f MB: %s", rise/1e6, mean/1e6, m)
	}
}

// fit returns the mean of the samples, and the rise of the fitted line from the first to the last.
func fit(samples []uint64) (mean, rise float64) {
	n := float64(len(samples))
	for _, s := range samples {
		mean += float64(s) / n
	}
	var covariance, variance float64
	for i, s := range samples {
		x := float64(i) - (n-1)/2
		covariance += x * (float64(s) - mean)
		variance += x * x
	}
	return mean, covariance / variance * (n - 1)
}

// String returns some of the samples.
func (m *meter) String() string {
	s := "MB:"
	for i := range 8 {
		if at := i * len(m.heap) / 8; at < len(m.heap) {
			s += fmt.Sprintf(" %.1f", float64(m.heap[at])/1e6)
		}
	}
	return s
}

// TestFit compares fit with known lines.
func TestFit(t *testing.T) {
	if mean, rise := fit([]uint64{5, 5, 5, 5}); mean != 5 || rise != 0 {
		t.Errorf("a flat line has mean %v and rises by %v", mean, rise)
	}
	if mean, rise := fit([]uint64{10, 20, 30, 40, 50}); mean != 30 || rise != 40 {
		t.Errorf("a line from 10 to 50 has mean %v and rises by %v", mean, rise)
	}
}
