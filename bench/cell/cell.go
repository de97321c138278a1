// Package cell measures one run of one workload: how many events went in and
// out, how long it took, what it allocated, and how long events waited at each
// stage boundary.
//
// The way of one measurement:
//
//  1. A workload is handed a [Recorder] and calls Begin, does the work, and
//     calls End. Nothing else is reported in between, so that reporting costs
//     nothing while the clock runs.
//  2. After End it reports what it has stamped: Count, Latency, Lag, Note,
//     Timeline.
//  3. The owner of the recorder asks for the [Result], or is told what was
//     left out or reported twice.
//
// Durations go into HdrHistograms of 1 ns units, three significant digits and
// a range of one hour. A longer one is counted as one hour, a negative one as
// zero, and both are counted apart ([Quantiles].Clamped and Negative), so that
// nothing drops out of sight.
package cell

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Boundary names a stretch of an event's way, from one stage to a later one,
// such as "intended→handled".
type Boundary string

// LateAfter is how late a release may be before it counts as late, where
// [Recorder.Schedule] says nothing else.
const LateAfter = time.Millisecond

// ErrMisuse is wrapped by the error for a recorder that was not used as it is
// meant to be: what it holds is then no measurement.
var ErrMisuse = errors.New("recorder misused")

// Recorder is what a workload reports to while it runs. Begin and End enclose
// what is measured; the other methods are called after End, from one
// goroutine, so that reporting costs nothing while the clock runs.
//
// The zero value is ready for one measurement. A Recorder must not be copied,
// nor used from several goroutines at once. Mistakes do not panic: they are
// kept, and [Recorder.Result] returns them.
type Recorder struct {
	shared                     bool
	alone                      bool
	begun, ended               bool
	start, stop                time.Time
	before                     usage
	after                      usage
	memStats                   *runtime.MemStats
	perf                       *perf
	counted                    []Note
	watcher                    *watcher
	memory                     *Memory
	starting, stopping, ending func()
	summed                     bool
	eventsIn, deltasOut        uint64
	boundaries                 []*boundary
	byName                     map[Boundary]*boundary
	last                       *boundary
	lag                        *durations
	late                       uint64
	missed                     uint64
	budget, over               time.Duration
	notes                      []Note
	timeline                   []Moment
	misuse                     []error
	seen                       map[string]bool
}

type boundary struct {
	name Boundary
	durations
}

// Shared returns a recorder for a measurement beside others in the same process:
// what only the process as a whole can be asked for is left out of its result.
func Shared() *Recorder { return &Recorder{shared: true} }

// Alone returns a recorder for the only measurement of a process: its result tells
// of memory, too. Between Begin and End the heap is looked at every few
// milliseconds. Begin gives memory back to the system first, which takes a while.
func Alone() *Recorder { return &Recorder{alone: true} }

// Around returns a recorder that calls start before the clock starts, and stop after
// it has stopped, both outside what is measured. Profiles are taken so, that they
// tell of what is measured and of nothing else. stop is called once if start was: at
// the latest by [Recorder.Abandon].
func Around(start, stop func()) *Recorder { return &Recorder{starting: start, stopping: stop} }

// Begin starts the measured part: it collects garbage, reads the counters and
// starts the clock.
func (r *Recorder) Begin() {
	if r.begun {
		r.wrong("Begin was called twice")
		return
	}
	r.begun = true
	runtime.GC()
	if r.alone {
		r.watcher = watch()
	}
	if !r.shared {
		r.perf = openPerf()
	}
	if r.starting != nil {
		r.ending = r.stopping
		r.starting()
	}
	// What allocates and takes time comes first, that it isn't counted; at the end
	// it comes last.
	r.before.readHost()
	r.before.readRuntime()
	r.memStats = new(runtime.MemStats)
	r.before.readMemory(r.memStats)
	r.before.rusage = readRusage()
	r.perf.on()
	r.start = time.Now()
}

// End stops the clock and reads the counters. It must follow Begin.
func (r *Recorder) End() {
	now := time.Now()
	switch {
	case !r.begun:
		r.wrong("End was called before Begin")
		return
	case r.ended:
		r.wrong("End was called twice")
		return
	}
	r.ended = true
	r.stop = now
	r.perf.off()
	r.after.rusage = readRusage()
	r.after.readMemory(r.memStats)
	r.release()
	r.after.readRuntime()
	r.after.readHost()
}

// Abandon ends what Begin began, if End wasn't called since a workload failed. It
// does nothing otherwise.
func (r *Recorder) Abandon() {
	if !r.ended {
		r.release()
	}
}

// release ends what runs while the clock does.
func (r *Recorder) release() {
	if r.ending != nil {
		r.ending()
		r.ending = nil
	}
	r.counted = r.perf.close()
	r.perf = nil
	if r.watcher != nil {
		m := r.watcher.stop()
		r.memory, r.watcher = &m, nil
	}
}

// Count reports how many events went in and how many deltas came out. It is
// called once.
func (r *Recorder) Count(eventsIn, deltasOut uint64) {
	r.afterEnd("Count")
	if r.summed {
		r.wrong("Count was called twice")
		return
	}
	r.summed = true
	r.eventsIn, r.deltasOut = eventsIn, deltasOut
}

// Latency records one event's stay between two stages. O(1).
func (r *Recorder) Latency(b Boundary, d time.Duration) {
	r.afterEnd("Latency")
	if r.last == nil || r.last.name != b {
		r.last = r.boundary(b)
	}
	r.last.record(d)
}

func (r *Recorder) boundary(name Boundary) *boundary {
	if have, ok := r.byName[name]; ok {
		return have
	}
	if name == "" || strings.ContainsFunc(string(name), badInUnit) {
		r.wrong(fmt.Sprintf("Latency: boundary %q: a name without spaces, commas or quotes is needed", name))
	}
	if r.byName == nil {
		r.byName = make(map[Boundary]*boundary)
	}
	b := &boundary{name: name, durations: newDurations()}
	r.byName[name] = b
	r.boundaries = append(r.boundaries, b)
	return b
}

// Schedule says by what the releases that Lag reports are judged: one is late
// beyond the budget, and missed if it came later than that after the last
// intended time, when the schedule was over. It is called once, before Lag.
func (r *Recorder) Schedule(budget, last time.Duration) {
	r.afterEnd("Schedule")
	switch {
	case r.lag != nil:
		r.wrong("Schedule was called after Lag")
	case r.budget != 0:
		r.wrong("Schedule was called twice")
	case budget <= 0:
		r.wrong("Schedule: the budget has to be more than 0")
	default:
		r.budget, r.over = budget, last+budget
	}
}

// Lag reports how the generator kept its schedule: how late (released minus
// intended) a release was, and when it was meant to be, from the start of the
// schedule. Recorded for paced cells only.
func (r *Recorder) Lag(d, intended time.Duration) {
	r.afterEnd("Lag")
	if r.lag == nil {
		l := newDurations()
		r.lag = &l
	}
	r.lag.record(d)
	if d > r.allowed() {
		r.late++
	}
	if r.over > 0 && intended+d > r.over {
		r.missed++
	}
}

// allowed is how late a release may be.
func (r *Recorder) allowed() time.Duration {
	if r.budget > 0 {
		return r.budget
	}
	return LateAfter
}

// Note records a figure of the workload's own under a benchfmt unit, such as
// "relists" or "wire-B/event". Each unit is noted once.
func (r *Recorder) Note(unit string, value float64) {
	r.afterEnd("Note")
	switch {
	case unit == "" || strings.ContainsFunc(unit, badInUnit):
		r.wrong(fmt.Sprintf("Note: unit %q: a name without spaces, commas or quotes is needed", unit))
		return
	case math.IsNaN(value) || math.IsInf(value, 0):
		r.wrong(fmt.Sprintf("Note %s: %v is no figure", unit, value))
		return
	}
	for _, n := range r.notes {
		if n.Unit == unit {
			r.wrong(fmt.Sprintf("Note %s was called twice", unit))
			return
		}
	}
	r.notes = append(r.notes, Note{Unit: unit, Value: value})
}

// Timeline reports how the schedule went, a stretch after the other, from its
// start. It is called once.
func (r *Recorder) Timeline(moments []Moment) {
	r.afterEnd("Timeline")
	if r.timeline != nil {
		r.wrong("Timeline was called twice")
		return
	}
	for i, m := range moments {
		if i > 0 && m.At <= moments[i-1].At {
			r.wrong(fmt.Sprintf("Timeline: moment %d ends at %v, the one before it at %v", i+1, m.At, moments[i-1].At))
			return
		}
	}
	r.timeline = slices.Clone(moments)
}

// badInUnit reports what would break a line of benchfmt or of a histogram log.
func badInUnit(c rune) bool {
	return unicode.IsSpace(c) || unicode.IsControl(c) || c == ',' || c == '"'
}

// afterEnd marks a report that came while the clock ran, or before it: it
// would have been measured itself.
func (r *Recorder) afterEnd(method string) {
	if !r.ended {
		r.wrong(method + " was called before End")
	}
}

// wrong keeps a mistake, each wording once, as the hot methods may repeat it
// for every event.
func (r *Recorder) wrong(what string) {
	if r.seen[what] {
		return
	}
	if r.seen == nil {
		r.seen = make(map[string]bool)
	}
	r.seen[what] = true
	r.misuse = append(r.misuse, fmt.Errorf("%w: %s", ErrMisuse, what))
}
