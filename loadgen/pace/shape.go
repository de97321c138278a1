package pace

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"time"
)

// ErrPace is wrapped by the errors for invalid paces.
var ErrPace = errors.New("invalid pace")

// grammar lists the valid forms, for error messages.
const grammar = "max, RATE, poisson:RATE, trace or trace:SPEEDx; a RATE in events per second from 0.001 to 1000000000"

// Limits of a trace's speed.
const (
	minSpeed = 1e-3
	maxSpeed = 1e6
)

// Pace assigns intended times to the events of a storm. The zero value releases them as fast as the receiver takes
// them. [Parse] and [Rate.Pace] return other paces.
type Pace struct {
	rate   Rate
	random bool    // gaps are exponential with mean 1/rate
	speed  float64 // divides the storm's own times; 0 without them
}

// Parse reads a pace:
//
//	max                      as fast as the receiver takes them
//	2000                     an event every 500 µs
//	poisson:2000             2000 a second on average, at random times
//	trace, trace:2x          the storm's own times; twice as fast
//
// The error wraps [ErrPace] and lists the valid forms.
func Parse(s string) (p Pace, err error) {
	ok, why := true, ""
	shape, rest, _ := strings.Cut(s, ":")
	switch {
	case s == "max":
	case s == "trace":
		p.speed = 1
	case shape == "trace":
		text, isSpeed := strings.CutSuffix(rest, "x")
		p.speed, ok = parseNumber(text, minSpeed, maxSpeed)
		ok, why = ok && isSpeed, "a speed is a number from 0.001 to 1000000, then x"
	case shape == "poisson":
		p.random, why = true, "it needs a rate"
		p.rate, ok = parseRate(rest)
	default:
		why = "neither a shape nor a rate"
		p.rate, ok = parseRate(s)
	}
	if !ok {
		return Pace{}, fmt.Errorf("%w %q: %s (allowed: %s)", ErrPace, s, why, grammar)
	}
	return p, nil
}

func parseRate(s string) (Rate, bool) {
	v, ok := parseNumber(s, minRate, maxRate)
	return Rate(v), ok
}

// parseNumber reads a decimal number in a range. strconv also accepts hexadecimal, underscores,
// "inf" and "nan", none of which is a valid rate.
func parseNumber(s string, low, high float64) (v float64, ok bool) {
	if strings.Trim(s, "0123456789.eE+-") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && v >= low && v <= high
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Pace returns a pace with this constant rate; max for [Unpaced].
func (r Rate) Pace() Pace {
	if !(r > 0) || math.IsInf(float64(r), 0) {
		return Pace{}
	}
	return Pace{rate: r}
}

// OwnTimes reports whether events are released at the storm's own times.
func (p Pace) OwnTimes() bool { return p.speed > 0 }

// Paced reports whether events have intended times: true for every pace but max.
func (p Pace) Paced() bool { return p != Pace{} }

// String returns the pace in the format of [Parse].
func (p Pace) String() string {
	switch {
	case p.speed == 1:
		return "trace"
	case p.speed > 0:
		return "trace:" + formatNumber(p.speed) + "x"
	case p.random:
		return "poisson:" + p.rate.String()
	}
	return p.rate.String()
}

// MarshalText writes what UnmarshalText reads.
func (p Pace) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is [Parse].
func (p *Pace) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(string(text))
	return err
}

// Events returns the number of events within d, from 1 to most; of random times, the mean. For max and the storm's own
// times the number is unknown and the result is most. O(log most).
func (p Pace) Events(d time.Duration, most int) int {
	if p.rate == 0 {
		return most
	}
	return max(1, Count(p.rate, d, most))
}

// Schedule assigns an intended time to each event. It is immutable, so several producers can
// share one.
type Schedule interface {
	// Intended returns the time of event i, from 0, relative to the start. It does not decrease
	// with i, but for 1 ns of rounding. It does not allocate and is safe for concurrent use.
	Intended(i int) time.Duration
}

// Func is a function of the event's number as a [Schedule].
type Func func(i int) time.Duration

// Intended implements [Schedule].
func (f Func) Intended(i int) time.Duration { return f(i) }

// Score describes a storm to a pace.
type Score struct {
	Events int // number of events; random times are drawn for so many, then at the mean gap
	// At returns the storm's own time of event i, for a pace with [Pace.OwnTimes]. It must not decrease with i.
	At   func(i int) time.Duration
	Seed int64 // decides random times
}

// Schedule returns the schedule of a pace in O(1). For random times, which are all drawn first,
// it takes O(events) and 8 bytes per event. Intended is O(1).
func (p Pace) Schedule(s Score) Schedule {
	switch {
	case p.random:
		return newPoisson(float64(p.rate), s.Events, s.Seed)
	case p.speed > 0 && s.At != nil:
		return Func(func(i int) time.Duration {
			return time.Duration(min(math.Round(float64(s.At(i))/p.speed), maxIntended))
		})
	}
	return p.rate
}

// Count returns the number of events of a schedule before d, at most most. O(log most).
func Count(s Schedule, d time.Duration, most int) int {
	return sort.Search(most, func(i int) bool { return s.Intended(i) >= d })
}

// Budget returns the lag of a release that does not count against the generator: 1 % of the mean time between two
// events, and 1 ms at least. O(1).
func Budget(s Schedule, events int) time.Duration {
	var gap time.Duration
	if events > 1 {
		gap = (s.Intended(events-1) - s.Intended(0)) / time.Duration(events-1)
	}
	return max(gap/100, time.Millisecond)
}

// nanos converts seconds to a duration of at most maxIntended.
func nanos(seconds float64) time.Duration {
	return time.Duration(min(math.Round(seconds*1e9), maxIntended))
}

type poisson struct {
	at  []time.Duration
	gap float64 // the mean, in seconds
}

func newPoisson(rate float64, events int, seed int64) *poisson {
	p := &poisson{at: make([]time.Duration, max(events, 1)), gap: 1 / rate}
	rng := rand.New(rand.NewPCG(uint64(seed), 0x706163652f706f69))
	t := 0.0
	for i := range p.at {
		// The first event has a gap too: the whole process is random.
		t += rng.ExpFloat64() * p.gap
		p.at[i] = nanos(t)
	}
	return p
}

func (p *poisson) Intended(i int) time.Duration {
	if i < len(p.at) {
		return p.at[max(i, 0)]
	}
	last := len(p.at) - 1
	return min(p.at[last]+nanos(float64(i-last)*p.gap), maxIntended)
}
