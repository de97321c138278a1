// Package pace releases the events of a storm in an open loop: each at its intended
// time, which only depends on its number and the schedule.
//
//	rate, err := pace.Parse("ramp:1000..5000/10s")
//	p := pace.On(rate.Schedule(pace.Score{Events: len(events)}))
//	p.Start(time.Now())
//	for i, e := range events {
//		if err := p.Wait(ctx, i); err != nil {
//			return err
//		}
//		released := time.Now() // the lag is released - (t0 + p.Intended(i))
//		send(e)
//	}
//
// In an open loop a slow system under test does not change the intended times. The
// next releases follow without a pause until they have caught up with the schedule,
// and the wait of their events is part of the latency. A closed loop would wait with
// the system and hide that (Gil Tene's coordinated omission).
package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Rate is a number of events per second; 0 means unpaced.
type Rate float64

// Unpaced releases events as fast as the receiver takes them.
const Unpaced Rate = 0

const (
	// maxRate keeps the gap between two events at a nanosecond or more.
	maxRate = 1e9
	// minRate keeps the schedule of a million events within a [time.Duration].
	minRate = 1e-3
	// maxIntended is about 146 years; a schedule ends there before it overflows.
	maxIntended = 1 << 62
)

// ErrRate is wrapped by the error for a rate that is not allowed.
var ErrRate = errors.New("invalid rate")

// ParseRate reads a rate: "max" for unpaced, or events per second. The error
// wraps [ErrRate] and says what is allowed.
func ParseRate(s string) (Rate, error) {
	if s == "max" {
		return Unpaced, nil
	}
	v, err := parseNumber(s)
	if err != nil || v < minRate || v > maxRate {
		return 0, fmt.Errorf("%w %q (allowed: max, or events per second from 0.001 to 1000000000)", ErrRate, s)
	}
	return Rate(v), nil
}

// String returns the rate as [ParseRate] reads it: "max" or a number such as
// "2000".
func (r Rate) String() string {
	if r == Unpaced {
		return "max"
	}
	return strconv.FormatFloat(float64(r), 'f', -1, 64)
}

// Intended returns the intended time of event i, counted from 0: i/rate to the
// nanosecond, without drift; 0 for all where the rate is [Unpaced]. O(1).
func (r Rate) Intended(i int) time.Duration {
	if r == Unpaced || i <= 0 {
		return 0
	}
	// One rounding for each event rather than a sum of gaps.
	return time.Duration(min(math.Round(float64(i)*1e9/float64(r)), maxIntended))
}

// Pacer releases numbered events on a schedule. It is for one goroutine. Several
// producers have one each, start at the same time, and wait for their own numbers.
//
// A waiting pacer is a sleeping goroutine. It never spins, which would take a core
// from the system under test. So releases are late by the wake-up time of its
// [Clock]; a report of latencies should show that lag beside them.
type Pacer struct {
	schedule Schedule
	paced    bool
	clock    Clock
	t0       time.Time
}

// Option is an option of a [Pacer].
type Option func(*Pacer)

// WithClock sets the clock, which the pacer closes.
func WithClock(c Clock) Option { return func(p *Pacer) { p.clock = c } }

// New returns a pacer at a constant rate, with the [Precise] clock. A rate that
// is not a positive finite number is unpaced.
func New(r Rate, opts ...Option) *Pacer {
	if !(r > 0) || math.IsInf(float64(r), 0) {
		r = Unpaced
	}
	return On(r, opts...)
}

// On returns a pacer on a schedule, with the [Precise] clock.
func On(s Schedule, opts ...Option) *Pacer {
	p := &Pacer{schedule: s, paced: s != Schedule(Unpaced)}
	for _, o := range opts {
		o(p)
	}
	if p.clock == nil {
		p.clock = Precise()
	}
	return p
}

// Start sets the start of the schedule. Call it before Wait; another call starts the
// schedule again.
func (p *Pacer) Start(t0 time.Time) { p.t0 = t0 }

// Paced reports whether events have intended times.
func (p *Pacer) Paced() bool { return p.paced }

// Intended returns the intended time of event i, counted from 0, from the start of
// the schedule; 0 for all where the pacer is unpaced.
func (p *Pacer) Intended(i int) time.Duration { return p.schedule.Intended(i) }

// Wait returns at the intended time of event i or later, never earlier; at once where
// that has passed or the pacer is unpaced. It returns ctx's error if ctx has ended
// or ends first. After the first wait it does not allocate.
func (p *Pacer) Wait(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !p.paced {
		return nil
	}
	at := p.t0.Add(p.Intended(i))
	for {
		gap := at.Sub(p.clock.Now())
		if gap <= 0 {
			return nil
		}
		p.clock.Sleep(ctx, gap)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Close closes the clock. The pacer cannot be used afterwards.
func (p *Pacer) Close() error { return p.clock.Close() }
