// Package pace releases the events of a storm in an open loop: each event at its intended
// time, which depends only on its number and the schedule.
//
//	rate, err := pace.Parse("poisson:5000")
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
// In an open loop, a slow system under test does not change the intended times. Late releases
// follow without a pause until they catch up with the schedule, so the waiting time of their
// events is part of the latency. A closed loop waits for the system and hides that time
// (coordinated omission, Gil Tene).
package pace

import (
	"context"
	"math"
	"time"
)

// Rate is a number of events per second; 0 means unpaced.
type Rate float64

// Unpaced releases events as fast as the receiver takes them.
const Unpaced Rate = 0

const (
	maxRate     = 1e9     // keeps the gap between two events at 1 ns or more
	minRate     = 1e-3    // keeps the schedule of a million events within a [time.Duration]
	maxIntended = 1 << 62 // about 146 years; a schedule ends there before it overflows
)

// String returns "max" or a number such as "2000".
func (r Rate) String() string {
	if r == Unpaced {
		return "max"
	}
	return formatNumber(float64(r))
}

// Intended returns the intended time of event i, from 0: i/rate, rounded to 1 ns, without
// drift. It returns 0 for [Unpaced] and for rates below it. O(1).
func (r Rate) Intended(i int) time.Duration {
	if !(r > 0) || i <= 0 {
		return 0
	}
	// One rounding per event, instead of a sum of rounded gaps, avoids drift.
	return time.Duration(min(math.Round(float64(i)*1e9/float64(r)), maxIntended))
}

// Pacer releases numbered events on a schedule. It is not safe for concurrent use. With several
// producers, each has its own Pacer with the same start time and waits for its own event numbers.
//
// A waiting pacer sleeps. It never spins, because that takes a core from the system under
// test. Releases are therefore late by the wake-up time of its clock: 30 µs on an idle Linux
// machine. Report that lag next to latencies.
type Pacer struct {
	schedule Schedule
	paced    bool
	clock    clock
	t0       time.Time
}

// On returns a pacer on a schedule.
func On(s Schedule) *Pacer {
	return &Pacer{schedule: s, paced: s != Schedule(Unpaced), clock: newPreciseClock()}
}

// Start sets the start time of the schedule. Call it before Wait. Another call restarts the
// schedule.
func (p *Pacer) Start(t0 time.Time) { p.t0 = t0 }

// Started returns the time of Start.
func (p *Pacer) Started() time.Time { return p.t0 }

// Paced reports whether events have intended times.
func (p *Pacer) Paced() bool { return p.paced }

// Intended returns the intended time of event i, from 0, relative to the start of the
// schedule. It returns 0 if the pacer is unpaced.
func (p *Pacer) Intended(i int) time.Duration { return p.schedule.Intended(i) }

// Wait returns at the intended time of event i or later, never earlier. It returns at once if
// that time has passed or the pacer is unpaced. If ctx ends first, it returns ctx's error. It
// does not allocate after the first wait.
func (p *Pacer) Wait(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !p.paced {
		return nil
	}
	at := p.t0.Add(p.Intended(i))
	for {
		gap := at.Sub(p.clock.now())
		if gap <= 0 {
			return nil
		}
		p.clock.sleep(ctx, gap)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Close closes the clock. The pacer is unusable afterwards.
func (p *Pacer) Close() error { return p.clock.close() }
