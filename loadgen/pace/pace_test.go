package pace

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Numbers that are no rates.
func TestParseErrors(t *testing.T) {
	for _, in := range []string{
		"", " ", "0", "-0", "-1", "0.0000001", "2e9", "1e400", "inf", "+Inf", "nan", "0x10", "1_000", "max:1",
		"Max", "fast", "10/s", " 10", "10 ", "1,000", "--1", "1\n", "poisson", "poisson:", "trace:", "trace:2", "trace:x",
	} {
		got, err := Parse(in)
		if !errors.Is(err, ErrPace) {
			t.Errorf("Parse(%q) = %v, %v, want an error", in, got, err)
			continue
		}
		if m := err.Error(); !strings.Contains(m, "allowed: max") || strings.Contains(m, "\n") {
			t.Errorf("Parse(%q): the error doesn't say on one line what is allowed: %s", in, m)
		}
	}
}

func TestIntended(t *testing.T) {
	for _, tc := range []struct {
		rate Rate
		i    int
		want time.Duration
	}{
		{Unpaced, 1e6, 0},
		{Rate(math.Inf(1)), 7, 0},
		{Rate(math.NaN()), 7, 0},
		{-5, 7, 0},
		{2000, 0, 0},
		{2000, 1, 500 * time.Microsecond},
		{3, 1, 333333333},
		{3, 3, time.Second},
		{3, 1.5e9, 5e8 * time.Second}, // no drift
		{1e9, 1, 1},
		{0.001, 1, 1000 * time.Second},
		{0.001, math.MaxInt, maxIntended},
	} {
		if got := On(tc.rate).Intended(tc.i); got != tc.want {
			t.Errorf("rate %v: Intended(%d) = %v, want %v", tc.rate, tc.i, got, tc.want)
		}
	}
}

// TestOpenLoop: a slow consumer does not change intended times. Late events are released back
// to back until the schedule holds again.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withClock(1000, &timers{})
		t0 := time.Now()
		p.Start(t0)
		for i := range 100 {
			if err := p.Wait(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			want := time.Duration(i) * time.Millisecond
			if i > 10 {
				want = max(want, 60*time.Millisecond)
			}
			if got := time.Since(t0); got != want {
				t.Fatalf("event %d released at %v, want %v", i, got, want)
			}
			if i == 10 {
				<-time.After(50 * time.Millisecond) // the system is slow: fake time
			}
		}
	})
}

// TestProducers: the pacers of several producers with the same start share one schedule.
func TestProducers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const producers, events = 4, 400
		t0 := time.Now()
		var released [events]time.Duration
		var wg sync.WaitGroup
		for first := range producers {
			wg.Go(func() {
				p := withClock(8000, &timers{})
				p.Start(t0)
				for i := first; i < events; i += producers {
					if err := p.Wait(t.Context(), i); err != nil {
						t.Error(err)
					}
					released[i] = time.Since(t0)
				}
			})
		}
		wg.Wait()
		for i, got := range released {
			if want := time.Duration(i) * 125 * time.Microsecond; got != want {
				t.Fatalf("event %d released at %v, want %v", i, got, want)
			}
		}
	})
}

func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withClock(1, &timers{})
		t0 := time.Now()
		p.Start(t0)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := p.Wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %v", err)
		}
		if got := time.Since(t0); got != 300*time.Millisecond {
			t.Errorf("Wait returned after %v", got)
		}
		// A token of the interrupted wait must not release the next event early.
		if err := p.Wait(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if got := time.Since(t0); got != 2*time.Second {
			t.Errorf("event 2 released at %v", got)
		}
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range []Rate{Unpaced, 1000} {
		if err := On(r).Wait(ended, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("rate %v: Wait with an ended context = %v", r, err)
		}
	}
}

// withClock returns a pacer with another clock.
func withClock(r Rate, c clock) *Pacer {
	p := On(r)
	p.clock = c
	return p
}

// early is a clock whose sleep returns too early.
type early struct{ at time.Time }

func (c *early) now() time.Time                           { return c.at }
func (c *early) sleep(_ context.Context, d time.Duration) { c.at = c.at.Add(d/2 + 1) }
func (c *early) close() error                             { return nil }

func TestNeverEarly(t *testing.T) {
	c := &early{at: time.Unix(100, 0)}
	p := withClock(10, c)
	p.Start(c.at)
	for i := range 20 {
		if err := p.Wait(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if at := time.Unix(100, 0).Add(p.Intended(i)); c.at.Before(at) {
			t.Fatalf("event %d released %v early", i, at.Sub(c.at))
		}
	}
}

// TestPrecise runs on the real clock. Lateness depends on the machine, so the test only
// rejects early releases.
func TestPrecise(t *testing.T) {
	p := On(Rate(5000))
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	t0 := time.Now()
	p.Start(t0)
	for _, i := range []int{1, 2, 3, 4, 100, 101, 150, 149} {
		if err := p.Wait(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(t0); got < p.Intended(i) {
			t.Fatalf("event %d released at %v, before %v", i, got, p.Intended(i))
		}
	}
	if c, ok := p.clock.(interface{ usesTimerfd() bool }); ok && !c.usesTimerfd() {
		t.Error("the clock fell back to Go timers")
	}
}

func TestPreciseEndsWithContext(t *testing.T) {
	p := On(Rate(0.001))
	p.Start(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if err := p.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	for name, c := range map[string]clock{"precise": newPreciseClock(), "timers": &timers{}} {
		p := withClock(20000, c)
		p.Start(time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		i := 0
		if n := testing.AllocsPerRun(50, func() {
			i++
			if err := p.Wait(ctx, i); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for each Wait", name, n)
		}
		cancel()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkWait reports the cost and the lateness of a release.
func BenchmarkWait(b *testing.B) {
	for _, tc := range []struct {
		name  string
		clock clock
	}{{"precise", newPreciseClock()}, {"timers", &timers{}}} {
		b.Run("clock="+tc.name+"/rate=2000", func(b *testing.B) {
			p := withClock(2000, tc.clock)
			defer func() { _ = p.Close() }()
			var lag time.Duration
			i := 0
			t0 := time.Now()
			p.Start(t0)
			for b.Loop() {
				if err := p.Wait(b.Context(), i); err != nil {
					b.Fatal(err)
				}
				lag += time.Since(t0) - p.Intended(i)
				i++
			}
			b.ReportMetric(float64(lag.Nanoseconds())/float64(i), "lag-ns/event")
		})
	}
}
