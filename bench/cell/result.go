package cell

import (
	"errors"
	"fmt"
	"time"
)

// Result is what one measurement found. Its JSON form is part of run.json;
// durations are whole nanoseconds there.
type Result struct {
	// EventsIn is how many events went in, DeltasOut how many deltas came out.
	EventsIn  uint64 `json:"eventsIn"`
	DeltasOut uint64 `json:"deltasOut"`
	// Elapsed is the time from Begin to End on the monotonic clock.
	Elapsed time.Duration `json:"elapsedNs"`
	// EventsPerSecond is EventsIn over Elapsed.
	EventsPerSecond float64 `json:"eventsPerSecond"`
	// DeltasPerEvent is DeltasOut over EventsIn: below 1 where events were
	// folded together, above 1 where one event caused several.
	DeltasPerEvent float64 `json:"deltasPerEvent"`
	// Shared: others were measured in this process at the same time, so that
	// allocations, CPU time, garbage collections, lock waits and counters are not
	// known, and 0.
	Shared bool `json:"shared,omitempty"`
	// AllocsPerEvent and BytesPerEvent are heap allocations of the whole
	// process between Begin and End, over EventsIn.
	AllocsPerEvent float64 `json:"allocsPerEvent"`
	BytesPerEvent  float64 `json:"bytesPerEvent"`
	// CPUSecondsPerEvent is user and system time of the whole process, garbage
	// collection included, over EventsIn. Zero where the system does not tell.
	CPUSecondsPerEvent float64 `json:"cpuSecondsPerEvent"`
	// GCs is how many garbage collections ended in between, GCPause how long
	// they stopped the world in all.
	GCs     uint32        `json:"gcs"`
	GCPause time.Duration `json:"gcPauseNs"`
	// GCPauseMax is the longest of them, as the upper edge of the runtime's
	// bucket (/sched/pauses/total/gc:seconds): up to a quarter too long.
	GCPauseMax time.Duration `json:"gcPauseMaxNs,omitempty"`
	// LockWait is how long goroutines waited for mutexes, summed over them, as
	// the runtime estimates it (/sync/mutex/wait/total:seconds, a sample).
	LockWait time.Duration `json:"lockWaitNs"`
	// Memory is what the measurement took at its height; nil where it had no
	// process to itself, as others' leavings would be in it.
	Memory *Memory `json:"memory,omitempty"`
	// Host is what the machine did to the measurement.
	Host Host `json:"host,omitzero"`
	// Counters are the processor's ("cycles/op", "instructions/op",
	// "cache-misses/op", "branch-misses/op", or "user-cycles/op" and so on where the
	// kernel's share isn't let to be counted) and the system's
	// ("context-switches/op", "page-faults/op"), of the whole process, over
	// EventsIn; those only that the kernel gives.
	Counters []Note `json:"counters,omitempty"`
	// Latency holds one entry for each boundary, in the order in which the
	// workload first named them.
	Latency []Latency `json:"latency,omitempty"`
	// Lag tells how the generator kept its schedule; nil where none was
	// reported.
	Lag *Lag `json:"lag,omitempty"`
	// Notes are the workload's own figures, in the order of their reports.
	Notes []Note `json:"notes,omitempty"`
	// Timeline tells how the schedule went; empty where none was reported.
	Timeline []Moment `json:"timeline,omitempty"`
}

// Memory is what a process took at its height, between Begin and End.
type Memory struct {
	// HeapBytes is the live heap at Begin, after a collection; PeakHeapBytes the
	// most that the heap's objects took, as sampled (/memory/classes/heap/objects:bytes).
	HeapBytes     uint64 `json:"heapBytes"`
	PeakHeapBytes uint64 `json:"peakHeapBytes"`
	// PeakRSSBytes is the most that the kernel had resident for the process; 0
	// where it doesn't tell.
	PeakRSSBytes uint64 `json:"peakRSSBytes,omitempty"`
}

// Host is what happened to the machine and to the process between Begin and End
// that no variant is to blame for.
type Host struct {
	// StealShare is which share of the machine's CPU time the hypervisor gave to
	// others.
	StealShare float64 `json:"stealShare,omitempty"`
	// Throttled is how long the control group was held back for its CPU quota.
	Throttled time.Duration `json:"throttledNs,omitempty"`
	// GCLimited: the runtime's limiter on the collector came into force
	// (/gc/limiter/last-enabled:gc-cycle): the heap was at its limit, and the
	// collector was not let to keep up. The runtime doesn't tell for how long.
	GCLimited bool `json:"gcLimited,omitempty"`
}

// Moment is one stretch of a measurement: what happened in it, and what was
// waiting at its end.
type Moment struct {
	// At is the stretch's end, from the start of the schedule.
	At time.Duration `json:"atNs"`
	// Released and Handled are how many events were, in the stretch.
	Released uint64 `json:"released"`
	Handled  uint64 `json:"handled"`
	// Depth is how many events were queued at its end: taken by the queue and
	// not handed over.
	Depth uint64 `json:"depth"`
}

// Latency is how long events stayed between two stages.
type Latency struct {
	Boundary Boundary `json:"boundary"`
	Quantiles
}

// Lag is how late releases were: released minus intended time. A release
// before its time is one of zero lag, counted in Negative.
type Lag struct {
	Quantiles
	// Budget is how late a release may be, see [Recorder.Schedule]. Late is how
	// many were later, LateShare their share of all.
	Budget    time.Duration `json:"budgetNs"`
	Late      uint64        `json:"late"`
	LateShare float64       `json:"lateShare"`
	// Missed is how many events had not been released when the schedule was
	// over.
	Missed uint64 `json:"missed"`
}

// Note is a figure of the workload's own.
type Note struct {
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// Result returns the figures. The error wraps [ErrMisuse] for each mistake in
// the use of the recorder: Begin or End missing or called twice, no Count, a
// report before End. With an error there are no figures.
func (r *Recorder) Result() (Result, error) {
	r.Abandon()
	problems := r.misuse
	missing := func(cond bool, what string) {
		if cond {
			problems = append(problems, fmt.Errorf("%w: %s", ErrMisuse, what))
		}
	}
	elapsed := r.stop.Sub(r.start)
	missing(!r.begun, "Begin was not called")
	missing(!r.ended, "End was not called")
	missing(!r.summed, "Count was not called")
	missing(r.summed && r.eventsIn == 0, "Count reported no events: nothing was measured")
	missing(r.ended && elapsed <= 0, "no time passed between Begin and End: nothing was measured")
	if len(problems) > 0 {
		return Result{}, errors.Join(problems...)
	}

	n := float64(r.eventsIn)
	res := Result{
		EventsIn:        r.eventsIn,
		DeltasOut:       r.deltasOut,
		Elapsed:         elapsed,
		EventsPerSecond: n / elapsed.Seconds(),
		DeltasPerEvent:  float64(r.deltasOut) / n,
		Shared:          r.shared,
		Host:            hostBetween(r.before, r.after),
		Notes:           r.notes,
		Timeline:        r.timeline,
	}
	if !r.shared {
		res.AllocsPerEvent = float64(r.after.mallocs-r.before.mallocs) / n
		res.BytesPerEvent = float64(r.after.bytes-r.before.bytes) / n
		res.CPUSecondsPerEvent = (r.after.rusage.cpu - r.before.rusage.cpu).Seconds() / n
		res.GCs = r.after.gcs - r.before.gcs
		res.GCPause = r.after.gcPause - r.before.gcPause
		res.GCPauseMax = longest(r.before.pauses, r.after.pauses)
		res.LockWait = r.after.lockWait - r.before.lockWait
		res.Counters = counterNotes(r.counted, r.before.rusage, r.after.rusage, n)
		res.Memory = r.memory
	}
	for _, b := range r.boundaries {
		q, err := b.quantiles()
		if err != nil {
			return Result{}, fmt.Errorf("latency %s: %w", b.name, err)
		}
		res.Latency = append(res.Latency, Latency{Boundary: b.name, Quantiles: q})
	}
	if r.lag != nil {
		q, err := r.lag.quantiles()
		if err != nil {
			return Result{}, fmt.Errorf("lag: %w", err)
		}
		res.Lag = &Lag{
			Quantiles: q, Budget: r.allowed(),
			Late: r.late, LateShare: float64(r.late) / float64(q.Count), Missed: r.missed,
		}
	}
	return res, nil
}

// At returns the latency of the named boundary.
func (r Result) At(b Boundary) (Latency, bool) {
	for _, l := range r.Latency {
		if l.Boundary == b {
			return l, true
		}
	}
	return Latency{}, false
}
