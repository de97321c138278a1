package informer_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/impls/informer"
)

// logs records log lines.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) logger() *klog.Logger {
	logger := funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, prefix+" "+args)
	}, funcr.Options{})
	return &logger
}

// count returns how many lines contain all words.
func (l *logs) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

// clock records the seconds of the test at which a handler receives a resync.
type clock struct {
	mu    sync.Mutex
	start time.Time
	at    []float64
}

func (c *clock) OnAdd(any, bool) {}
func (c *clock) OnDelete(any)    {}
func (c *clock) OnUpdate(_, _ any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.start).Seconds())
}

// times returns the recorded seconds.
func (c *clock) times() []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at)
}

// resyncCase is an informer of one object, with its resync period, and handlers that ask for
// periods (-1: none in particular), early, before it is run, or late, half a second after. want is
// when each is called within 10 seconds, first the early ones.
type resyncCase struct {
	name        string
	informer    time.Duration
	early, late []time.Duration
	want        [][]float64
	warnings    int
}

var resyncCases = []resyncCase{
	{"nobody asks", 0, []time.Duration{-1, 0}, nil, [][]float64{nil, nil}, 0},
	{"the informer does none", 0, []time.Duration{2 * time.Second}, nil, [][]float64{nil}, 1},
	{"default", 3 * time.Second, []time.Duration{-1}, nil, [][]float64{{3, 6, 9}}, 0},
	{"each its own", time.Second, []time.Duration{0, 2 * time.Second, 3 * time.Second}, nil, [][]float64{nil, {2, 4, 6, 8, 10}, {3, 6, 9}}, 0},
	// Looked at every 2 seconds.
	{"not a multiple", 2 * time.Second, []time.Duration{3 * time.Second}, nil, [][]float64{{4, 8}}, 0},
	{"a shorter one sets the pace", 100 * time.Second, []time.Duration{5 * time.Second, 2 * time.Second}, nil, [][]float64{{6}, {2, 4, 6, 8, 10}}, 0},
	{"too short", 2 * time.Second, []time.Duration{time.Millisecond}, nil, [][]float64{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, 1},
	// Late handlers come at 0.5 and wait at least their period.
	{"late", 2 * time.Second, nil, []time.Duration{-1, 3 * time.Second}, [][]float64{{4, 6, 8, 10}, {4, 8}}, 0},
	{"late and shorter", 4 * time.Second, nil, []time.Duration{2 * time.Second}, [][]float64{{8}}, 1},
	{"late and the informer does none", 0, nil, []time.Duration{2 * time.Second}, [][]float64{nil}, 1},
}

// TestResync also holds client-go's own informer to the cases: if it fails, they are wrong.
func TestResync(t *testing.T) {
	for _, c := range resyncCases {
		t.Run(c.name, func(t *testing.T) {
			t.Run("upstream", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					src := newSource(t)
					c.check(t, src, cache.NewSharedIndexInformer(src, &v1.Pod{}, c.informer, nil))
				})
			})
			eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
				opts.ResyncPeriod = c.informer
				src := newSource(t)
				c.check(t, src, newInformer(t, src, opts))
			})
		})
	}
}

func (c resyncCase) check(t *testing.T, src source, inf cache.SharedIndexInformer) {
	src.Add(pod("a"))
	warnings := &logs{}
	start := time.Now()
	var clocks []*clock
	add := func(periods []time.Duration) {
		for _, p := range periods {
			h := &clock{start: start}
			clocks = append(clocks, h)
			opts := cache.HandlerOptions{Logger: warnings.logger()}
			if p >= 0 {
				opts.ResyncPeriod = &p
			}
			if _, err := inf.AddEventHandlerWithOptions(h, opts); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(c.early)
	run(t, inf)
	time.Sleep(500 * time.Millisecond)
	add(c.late)
	time.Sleep(9500 * time.Millisecond)
	synctest.Wait()
	for i, h := range clocks {
		if got := h.times(); !slices.Equal(got, c.want[i]) {
			t.Errorf("handler %d was called at %v, want %v", i, got, c.want[i])
		}
	}
	if got := warnings.count("Warning"); got != c.warnings {
		t.Errorf("%d warnings, want %d: %v", got, c.warnings, warnings.lines)
	}
}
