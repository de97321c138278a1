// Package cell measures one run of one workload: how many events went in and
// out, how long it took, what it allocated, and how long events waited at each
// stage boundary.
package cell

import "time"

// Boundary names a stretch of an event's way, from one stage to a later one,
// such as "intended→handled".
type Boundary string

// Recorder is what a workload reports to while it runs. Begin and End enclose
// what is measured; the other methods are called after End, from one
// goroutine, so that reporting costs nothing while the clock runs.
type Recorder struct{}

// Begin starts the measured part: it collects garbage, reads the counters and
// starts the clock.
func (r *Recorder) Begin() {}

// End stops the clock and reads the counters. It must follow Begin.
func (r *Recorder) End() {}

// Count reports how many events went in and how many deltas came out.
func (r *Recorder) Count(eventsIn, deltasOut uint64) {}

// Latency records one event's stay between two stages.
func (r *Recorder) Latency(b Boundary, d time.Duration) {}

// Lag reports how the generator kept its schedule: how late (released minus
// intended) each release was. Recorded for paced cells only.
func (r *Recorder) Lag(d time.Duration) {}

// Note records a figure of the workload's own under a benchfmt unit, such as
// "relists" or "wire-B/event".
func (r *Recorder) Note(unit string, value float64) {}
