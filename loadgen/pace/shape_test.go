package pace

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func mustParse(t testing.TB, s string) Pace {
	t.Helper()
	p, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"max":         "max",
		"2000":        "2000",
		"2.5e3":       "2500",
		"poisson:0.5": "poisson:0.5",
		"trace":       "trace",
		"trace:1x":    "trace",
		"trace:0.25x": "trace:0.25x",
	} {
		p, err := Parse(in)
		if err != nil {
			t.Errorf("Parse(%q): %v", in, err)
			continue
		}
		if got := p.String(); got != want {
			t.Errorf("Parse(%q).String() = %q, want %q", in, got, want)
		}
		if got, want := p.Paced(), in != "max"; got != want {
			t.Errorf("Parse(%q).Paced() = %v", in, got)
		}
	}
}

// FuzzParse: String of a parsed pace parses to the same pace, and its schedule never decreases.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"max", "2000", "poisson:2000", "trace:2x", "trace", "trace:1e-3x", "poisson:nan", ":",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		p, err := Parse(in)
		if err != nil {
			if !errors.Is(err, ErrPace) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("Parse(%q): %v", in, err)
			}
			return
		}
		again, err := Parse(p.String())
		if err != nil || again.String() != p.String() {
			t.Fatalf("Parse(%q) is %q, parsed again %q, %v", in, p, again, err)
		}
		s := p.Schedule(Score{Events: 50, At: func(i int) time.Duration { return time.Duration(i) * time.Second }})
		last := time.Duration(0)
		for _, i := range []int{0, 1, 2, 3, 7, 8, 9, 49, 50, 51, 1000, 1001, 1e6, 1e6 + 1, math.MaxInt32} {
			at := s.Intended(i)
			if at < last-1 {
				t.Fatalf("%q: Intended(%d) is %v, after %v", in, i, at, last)
			}
			last = at
		}
	})
}

// TestConstant: an event is due each period, the first one at once.
func TestConstant(t *testing.T) {
	s := mustParse(t, "500").Schedule(Score{})
	for i := range 2000 {
		if got, want := s.Intended(i), time.Duration(i)*2*time.Millisecond; got != want {
			t.Fatalf("event %d is due at %v, want %v", i, got, want)
		}
	}
}

func TestPoisson(t *testing.T) {
	const n = 200_000
	p := mustParse(t, "poisson:1000")
	s := p.Schedule(Score{Events: n, Seed: 7})
	var sum, squares float64
	for i := range n - 1 {
		gap := (s.Intended(i+1) - s.Intended(i)).Seconds() * 1000
		if gap < 0 {
			t.Fatalf("event %d is due before event %d", i+1, i)
		}
		sum += gap
		squares += gap * gap
	}
	// Exponential distribution: the standard deviation equals the mean.
	mean := sum / (n - 1)
	dev := math.Sqrt(squares/(n-1) - mean*mean)
	if math.Abs(mean-1) > 0.02 || math.Abs(dev-1) > 0.02 {
		t.Errorf("gaps have mean %.3f and deviation %.3f of the period", mean, dev)
	}
	same, other := p.Schedule(Score{Events: n, Seed: 7}), p.Schedule(Score{Events: n, Seed: 8})
	if same.Intended(n-1) != s.Intended(n-1) || other.Intended(n-1) == s.Intended(n-1) {
		t.Error("the times do not depend on the seed alone")
	}
	if got, want := s.Intended(n+9)-s.Intended(n-1), 10*time.Millisecond; got != want {
		t.Errorf("ten events beyond the drawn ones take %v, want %v", got, want)
	}
}

func TestCount(t *testing.T) {
	at := func(i int) time.Duration { return time.Duration(i) * time.Millisecond }
	for text, want := range map[string]int{
		"1000": 2000, "max": 9000, "1": 2, "0.1": 1, "trace": 2000, "trace:4x": 8000, "trace:0.5x": 1000,
	} {
		if got := Count(mustParse(t, text).Schedule(Score{At: at}), 2*time.Second, 9000); got != want {
			t.Errorf("%s: %d events before 2s, want %d", text, got, want)
		}
	}
}

func TestIntendedDoesNotAllocate(t *testing.T) {
	at := func(i int) time.Duration { return time.Duration(i) }
	for _, text := range []string{"max", "7", "poisson:7", "trace:2x"} {
		s := mustParse(t, text).Schedule(Score{Events: 10, At: at})
		i := 0
		if n := testing.AllocsPerRun(100, func() { i++; _ = s.Intended(i) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

func TestBudget(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2000": time.Millisecond,      // 1 % of 500 µs is less
		"1":    10 * time.Millisecond, // 1 % of a second
		"max":  time.Millisecond,
	} {
		if got := Budget(mustParse(t, text).Schedule(Score{}), 101); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
