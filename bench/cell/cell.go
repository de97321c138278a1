// Package cell measures one run of one workload: events in and out, elapsed time,
// allocations, and the latency at each stage boundary.
//
//  1. A workload gets a [Recorder] and calls Begin, does the work, and calls End. It
//     reports nothing in between, so reporting does not disturb the measurement.
//  2. After End it reports its timestamps: Count, Latency, Lag, Note.
//  3. The owner of the recorder reads the [Result], or an error that lists missing and
//     duplicate reports.
//
// Durations go into HdrHistograms with 1 ns units, three significant digits and a range
// of one hour. Longer durations count as one hour and negative ones as zero.
// [Quantiles].Clamped and Negative count both, so no value is lost.
package cell

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
)

// Boundary names the interval from one stage to a later one, such as "intended→handled".
type Boundary string

// LateAfter is the default budget of a release; see [Recorder.Schedule].
const LateAfter = time.Millisecond

// ErrMisuse is wrapped by the errors for incorrect use of a recorder. There is no result then.
var ErrMisuse = errors.New("recorder misused")

// Recorder collects the reports of a workload. Begin and End enclose the measured part.
// The other methods are called after End, so they do not disturb the measurement.
//
// The zero value is ready for one measurement. A Recorder must not be copied and is not safe for
// concurrent use. Incorrect use does not panic: [Recorder.Result] returns the errors.
type Recorder struct {
	// Alone: the process has no other measurement. The result has memory figures. The heap is sampled
	// every 2 ms between Begin and End. Begin first returns free memory to the system, which takes a while.
	Alone bool

	started, ended      bool
	start, stop         time.Time
	before              usage
	after               usage
	memStats            *runtime.MemStats // buffer of readMemory, allocated before the clock starts
	watcher             *watcher          // samples memory; nil unless alone
	memory              *Memory
	starting            []func() (stop func()) // from Before
	stopping            []func()               // the results of starting, until they are called
	eventsIn, deltasOut uint64
	boundaries          []*boundary // in the order of first use
	last                *boundary   // one-entry cache, as reports come in runs of one boundary
	lag                 *durations
	late                uint64        // releases later than the budget
	missed              uint64        // releases after the end of the schedule
	budget, over        time.Duration // budget of a release; end of the schedule
	notes               []Note
	misuse              []error
}

type boundary struct {
	name Boundary
	durations
}

// Before adds a function that Begin calls before the clock starts. stop is called after it stops, and once if
// start was, at the latest by [Recorder.Abandon]. Neither call is measured: a profile taken between them covers
// exactly the measured part.
func (r *Recorder) Before(start func() (stop func())) { r.starting = append(r.starting, start) }

// Begin starts the measured part: it collects garbage, reads the counters and starts the clock.
func (r *Recorder) Begin() {
	r.started = true
	runtime.GC()
	if r.Alone {
		r.watcher = watch()
	}
	for _, start := range r.starting {
		r.stopping = append(r.stopping, start())
	}
	// Reads that allocate or take time come first here and last in End, so that they
	// are not measured.
	r.before.readHost()
	r.before.readRuntime()
	r.memStats = new(runtime.MemStats)
	r.before.readMemory(r.memStats)
	r.before.cpuTime = cpuTime()
	r.start = time.Now()
}

// End stops the clock and reads the counters. It must follow Begin.
func (r *Recorder) End() {
	r.stop = time.Now()
	r.ended = true
	r.after.cpuTime = cpuTime()
	r.after.readMemory(r.memStats)
	r.release()
	r.after.readRuntime()
	r.after.readHost()
}

// Abandon releases the resources of Begin if a failed workload did not call End. It
// does nothing after End.
func (r *Recorder) Abandon() {
	if !r.ended {
		r.release()
	}
}

func (r *Recorder) release() {
	for _, stop := range r.stopping {
		stop()
	}
	r.stopping = nil
	if r.watcher != nil {
		r.memory, r.watcher = new(r.watcher.stop()), nil
	}
}

// Count reports the numbers of input events and output deltas.
func (r *Recorder) Count(eventsIn, deltasOut uint64) {
	r.eventsIn, r.deltasOut = eventsIn, deltasOut
}

// Latency records the time of one event between two stages. O(1).
func (r *Recorder) Latency(b Boundary, d time.Duration) {
	if r.last == nil || r.last.name != b {
		r.last = r.boundary(b)
	}
	r.last.record(d)
}

func (r *Recorder) boundary(name Boundary) *boundary {
	if at := slices.IndexFunc(r.boundaries, func(b *boundary) bool { return b.name == name }); at >= 0 {
		return r.boundaries[at]
	}
	b := &boundary{name: name, durations: newDurations()}
	r.boundaries = append(r.boundaries, b)
	return b
}

// Schedule sets the limits for later calls of Lag. A release is late if it exceeds the
// budget. It is missed if it comes more than the budget after the last intended time.
func (r *Recorder) Schedule(budget, last time.Duration) { r.budget, r.over = budget, last+budget }

// Lag reports one release of a paced cell: d is released minus intended time, without the
// delay by calls of the variant. intended counts from the start of the schedule.
func (r *Recorder) Lag(d, intended time.Duration) {
	if r.lag == nil {
		r.lag = new(newDurations())
	}
	r.lag.record(d)
	if d > cmp.Or(r.budget, LateAfter) {
		r.late++
	}
	if r.over > 0 && intended+d > r.over {
		r.missed++
	}
}

// Note records a figure of the workload under a benchfmt unit, such as "relists" or
// "wire-B/event". Each unit can be noted once.
func (r *Recorder) Note(unit string, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		r.wrong(fmt.Sprintf("Note %s: %v is no figure", unit, value))
		return
	}
	r.notes = append(r.notes, Note{Unit: unit, Value: value})
}

func (r *Recorder) wrong(what string) {
	r.misuse = append(r.misuse, fmt.Errorf("%w: %s", ErrMisuse, what))
}
