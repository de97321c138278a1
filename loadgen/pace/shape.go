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

// Shape is the function of time that a [Pace] follows.
type Shape string

const (
	Max      Shape = "max"      // releases events as fast as the receiver takes them
	Constant Shape = "constant" // releases an event every 1/rate
	Poisson  Shape = "poisson"  // releases events at random: gaps are exponential with mean 1/rate
	Trace    Shape = "trace"    // releases events at the storm's own times, divided by a speed
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

// Pace assigns intended times to the events of a storm. The zero value is [Max]. [Parse] and
// [Rate.Pace] return other paces.
type Pace struct {
	shape Shape
	rate  float64
	speed float64
}

// Parse reads a pace:
//
//	max                      as fast as the receiver takes them
//	2000                     an event every 500 µs
//	poisson:2000             2000 a second on average, at random times
//	trace, trace:2x          the storm's own times; twice as fast
//
// The error wraps [ErrPace] and lists the valid forms.
func Parse(s string) (Pace, error) {
	p, why := parse(s)
	if why != "" {
		return Pace{}, fmt.Errorf("%w %q: %s (allowed: %s)", ErrPace, s, why, grammar)
	}
	return p, nil
}

// parse returns the reason why s is no pace, or none.
func parse(s string) (p Pace, why string) {
	name, rest, hasRest := strings.Cut(s, ":")
	p.shape = Shape(name)
	switch p.shape {
	case Max:
		if hasRest {
			return p, "max takes nothing"
		}
		return Pace{}, ""
	case Trace:
		p.speed = 1
		if hasRest {
			text, isSpeed := strings.CutSuffix(rest, "x")
			speed, ok := parseNumber(text, minSpeed, maxSpeed)
			if !isSpeed || !ok {
				return p, "a speed is a number from 0.001 to 1000000, then x"
			}
			p.speed = speed
		}
		return p, ""
	case Poisson:
		var ok bool
		if p.rate, ok = parseNumber(rest, minRate, maxRate); !ok {
			return p, "it needs a rate"
		}
		return p, ""
	}
	if hasRest {
		return p, "unknown shape"
	}
	rate, ok := parseNumber(s, minRate, maxRate)
	if !ok {
		return p, "neither a shape nor a rate"
	}
	return Rate(rate).Pace(), ""
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

// Pace returns a pace with this constant rate; Max for [Unpaced].
func (r Rate) Pace() Pace {
	if !(r > 0) || math.IsInf(float64(r), 0) {
		return Pace{}
	}
	return Pace{shape: Constant, rate: float64(r)}
}

// Shape returns the shape of the pace.
func (p Pace) Shape() Shape {
	if p.shape == "" {
		return Max
	}
	return p.shape
}

// Paced reports whether events have intended times: true for every shape but [Max].
func (p Pace) Paced() bool { return p.Shape() != Max }

// String returns the pace in the format of [Parse].
func (p Pace) String() string {
	switch p.Shape() {
	case Max:
		return string(Max)
	case Constant:
		return formatNumber(p.rate)
	case Poisson:
		return string(Poisson) + ":" + formatNumber(p.rate)
	default:
		if p.speed == 1 {
			return string(Trace)
		}
		return string(Trace) + ":" + formatNumber(p.speed) + "x"
	}
}

// MarshalText writes what UnmarshalText reads.
func (p Pace) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is [Parse].
func (p *Pace) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(string(text))
	return err
}

// Events returns the number of events within d, from 1 to most; for Poisson, the mean. For Max
// and Trace the number is unknown and the result is most. O(log most).
func (p Pace) Events(d time.Duration, most int) int {
	if p.rate == 0 {
		return most
	}
	return max(1, Count(Rate(p.rate), d, most))
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
	Events int // number of events; [Poisson] times are random for so many, then at the mean gap
	// At returns the storm's own time of event i, for [Trace]. It must not decrease with i.
	At   func(i int) time.Duration
	Seed int64 // decides the random times of [Poisson]
}

// Schedule returns the schedule of a pace in O(1). For Poisson, which draws all times first,
// it takes O(events) and 8 bytes per event. Intended is O(1).
func (p Pace) Schedule(s Score) Schedule {
	switch p.Shape() {
	case Constant:
		return Rate(p.rate)
	case Poisson:
		return newPoisson(p.rate, s.Events, s.Seed)
	case Trace:
		if s.At != nil && p.speed == 1 {
			return Func(s.At)
		}
		if s.At != nil {
			return Func(func(i int) time.Duration {
				return time.Duration(min(math.Round(float64(s.At(i))/p.speed), maxIntended))
			})
		}
	}
	return Unpaced
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
