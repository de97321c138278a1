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
	"slices"
	"testing"
	"time"
)

var (
	duration = flag.Duration("soak", 0, "how long to soak all variants together; 0 skips it")
	count    = flag.Float64("events", 0, "how many events each variant plays; 0 means -soak")
)

// producers is the number of producers per instance.
const producers = 8

// patience is the maximum wait for an event.
const patience = time.Minute

// cell is a variant with one set of options.
type cell struct {
	name string
	// open makes an instance with random options, which it describes.
	open func(t *testing.T, rng *rand.Rand, e *episode) (options string)
}

// TestSoak divides the duration among all cells, or plays the number of events in each.
func TestSoak(t *testing.T) {
	if *duration <= 0 && *count <= 0 {
		t.Skip("asked for by -soak or -events")
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
			m := newMeter(t, fmt.Sprintf("%s, seed %d", c.name, seed))
			began, episodes := time.Now(), 0
			for ; !t.Failed() && (time.Since(began) < share || m.events < int(*count)); episodes++ {
				m.lives = append(m.lives, nil)
				m.progress.Reset(hang)
				e := newEpisode(m)
				options := c.open(t, rng, e)
				if err := e.play(rng); err != nil {
					t.Errorf("%s: %v", options, err)
				}
				m.goroutinesGone()
				if m.long {
					t.Logf("%d events: heap %s; goroutines %d, files %d", m.events, m, runtime.NumGoroutine(), files())
				}
			}
			m.progress.Stop()
			m.flat()
			t.Logf("soaked %s: %d events, %.0f/s, %d instances, seed %d; heap after %d collections %s; goroutines %d to %d, files %d to %d",
				c.name, m.events, float64(m.events)/time.Since(began).Seconds(), episodes, seed, len(m.all()), m,
				m.goroutines, runtime.NumGoroutine(), m.files, files())
		})
	}
}

// hang is the longest time between two samples.
const hang = 2 * time.Minute

// meter samples memory and goroutines while the queue is empty.
type meter struct {
	t          *testing.T
	goroutines int
	files      int
	// lives are the samples of the heap in each instance's life.
	lives  [][]uint64
	events int
	// long: episodes of a tenth of the events.
	long bool
	// progress ends the process with all stacks if an episode hangs.
	progress *time.Timer
}

func newMeter(t *testing.T, name string) *meter {
	progress := time.AfterFunc(hang, func() {
		debug.SetTraceback("all")
		fmt.Fprintf(os.Stderr, "%s hangs\n", name)
		panic("a round takes longer than two minutes")
	})
	return &meter{t: t, goroutines: runtime.NumGoroutine(), files: files(), long: *count > 0, progress: progress}
}

// files returns the number of open file descriptors, 0 where the system has no list of them.
func files() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open) - 1 // One reads the folder.
}

// longRounds is the number of rounds in a long life.
const longRounds = 50

// pick returns the number for a short or a long life.
func (m *meter) pick(short, long int) int {
	if m.long {
		return long
	}
	return short
}

// each returns how many events a producer plays in a round.
func (m *meter) each(short int) int {
	return m.pick(short, int(*count/(10*longRounds*producers)))
}

// sample records the heap at the end of a round, when the queue is empty.
func (m *meter) sample(events int) {
	m.events += events
	m.progress.Reset(hang)
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	life := &m.lives[len(m.lives)-1]
	*life = append(*life, s.HeapAlloc)
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

// flat fits a line through the samples without the first quarter, and fails if its rise exceeds
// the limit. Options, which set the level of the heap, differ between instances: a long life has a
// line of its own, and the last samples of all lives have one.
func (m *meter) flat() {
	lines := [][]uint64{m.all()}
	if m.long {
		var last []uint64
		for _, life := range m.lives {
			last = append(last, life[len(life)-1])
		}
		lines = append(m.lives, last)
	}
	for _, heap := range lines {
		heap = heap[len(heap)/4:]
		if len(heap) < 8 || m.t.Failed() {
			continue
		}
		mean, rise := fit(heap)
		if rise > maxGrowth*mean+noise {
			m.t.Errorf("the heap grew by %.1f MB from a mean of %.1f MB: %s", rise/1e6, mean/1e6, m)
		}
	}
	if now := files(); now > m.files {
		m.t.Errorf("%d open files, there were %d before", now, m.files)
	}
}

// all returns the samples of all lives.
func (m *meter) all() []uint64 { return slices.Concat(m.lives...) }

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

// String returns some of the samples and the largest.
func (m *meter) String() string {
	s, heap := "MB:", m.all()
	for i := range 8 {
		if at := i * len(heap) / 8; at < len(heap) {
			s += fmt.Sprintf(" %.1f", float64(heap[at])/1e6)
		}
	}
	return s + fmt.Sprintf(", at most %.1f", float64(slices.Max(heap))/1e6)
}
