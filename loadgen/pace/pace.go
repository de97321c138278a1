// Package pace releases the events of a storm on an open loop: each at its
// intended time, which follows from its number and the schedule alone.
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
// The loop is open: where the system under test is slow, the intended times
// stay where they are, the next releases follow back to back until the
// schedule is caught up with, and what the events had to wait is part of their
// latency. A closed loop would wait with the system and hide that (Gil Tene's
// coordinated omission).
package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is how many events are released in a second; 0 means unpaced.
type Rate float64

// Unpaced releases events as fast as they are taken.
const Unpaced Rate = 0

// maxRate keeps the gap between two events at a nanosecond or more: beyond
// that a schedule says nothing.
const maxRate = 1e9

// minRate keeps the schedule of a storm of a million events within what a
// [time.Duration] can hold.
const minRate = 1e-3

// maxIntended is about 146 years; a schedule ends there rather than overflow.
const maxIntended = 1 << 62

// ErrRate is wrapped by the error for a rate that is not allowed.
var ErrRate = errors.New("invalid rate")

// ParseRate reads a rate: "max" for unpaced, or events per second. The error
// wraps [ErrRate] and says what is allowed.
func ParseRate(s string) (Rate, error) {
	if s == "max" {
		return Unpaced, nil
	}
	// strconv also takes hexadecimal, underscores, "inf" and "nan", none of
	// which anybody means as a rate.
	plain := s != "" && strings.Trim(s, "0123456789.eE+-") == ""
	v, err := strconv.ParseFloat(s, 64)
	if !plain || err != nil || math.IsNaN(v) || v < minRate || v > maxRate {
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

// Intended returns when event i, counted from 0, is meant to happen, from the
// start: i/rate to the nanosecond, without drift; 0 for all where the rate is
// [Unpaced]. O(1).
func (r Rate) Intended(i int) time.Duration {
	if r == Unpaced || i <= 0 {
		return 0
	}
	// One rounding for each event rather than a sum of gaps.
	return time.Duration(min(math.Round(float64(i)*1e9/float64(r)), maxIntended))
}

// Pacer releases numbered events on a schedule. It is for one goroutine; several
// producers have one each, started at the same time, and each waits for the
// numbers that are its own.
//
// What it costs while it waits is a sleeping goroutine: it never spins, which
// would take a core from the system under test. So releases are late by what
// its [Clock] takes to wake it up, and a caller that reports latencies should
// report that lag beside them.
type Pacer struct {
	schedule Schedule
	paced    bool
	clock    Clock
	t0       time.Time
}

// Option changes how a [Pacer] works.
type Option func(*Pacer)

// WithClock has the pacer use c, which it closes.
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

// Start sets the time from which the schedule counts. It must be called before
// Wait, and may be called again for another schedule.
func (p *Pacer) Start(t0 time.Time) { p.t0 = t0 }

// Paced reports whether events have intended times: whether the schedule is not
// [Unpaced].
func (p *Pacer) Paced() bool { return p.paced }

// Intended returns when event i, counted from 0, is meant to happen, from the
// start of the schedule; 0 for all where the pacer is unpaced.
func (p *Pacer) Intended(i int) time.Duration { return p.schedule.Intended(i) }

// Wait returns at the intended time of event i or later, never earlier; at
// once where that has passed or the pacer is unpaced. If ctx ends first, or has
// ended before, it returns ctx's error. It does not allocate once it has waited
// for the first time.
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

// Close frees what the clock holds. The pacer can be used no more.
func (p *Pacer) Close() error { return p.clock.Close() }
