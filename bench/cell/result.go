package cell

import (
	"errors"
	"fmt"
	"time"
)

// Result is what one measurement found. Its JSON form is part of run.json;
// durations are whole nanoseconds there.
type Result struct {
	EventsIn           uint64        `json:"eventsIn"`         // events in
	DeltasOut          uint64        `json:"deltasOut"`        // deltas out
	Elapsed            time.Duration `json:"elapsedNs"`        // from Begin to End, monotonic
	EventsPerSecond    float64       `json:"eventsPerSecond"`  // EventsIn over Elapsed
	DeltasPerEvent     float64       `json:"deltasPerEvent"`   // below 1 where events coalesce
	Shared             bool          `json:"shared,omitempty"` // measured beside others: what only the process can tell is 0
	AllocsPerEvent     float64       `json:"allocsPerEvent"`   // of the whole process between Begin and End
	BytesPerEvent      float64       `json:"bytesPerEvent"`
	CPUSecondsPerEvent float64       `json:"cpuSecondsPerEvent"`     // user and system time of the process, GC included; 0 if unknown
	GCs                uint32        `json:"gcs"`                    // collections that ended
	GCPause            time.Duration `json:"gcPauseNs"`              // in all
	GCPauseMax         time.Duration `json:"gcPauseMaxNs,omitempty"` // upper edge of the runtime's bucket: up to a quarter too long
	LockWait           time.Duration `json:"lockWaitNs"`             // of all goroutines, as the runtime samples it
	Memory             *Memory       `json:"memory,omitempty"`       // nil without a process of its own
	Host               Host          `json:"host,omitzero"`          // disturbance by the machine
	Counters           []Note        `json:"counters,omitempty"`     // per event, of processor and system, as far as the kernel gives them
	Latency            []Latency     `json:"latency,omitempty"`      // one entry per boundary, in the order of first use
	Lag                *Lag          `json:"lag,omitempty"`          // nil if unpaced
	Notes              []Note        `json:"notes,omitempty"`        // the workload's own figures, in order
	Timeline           []Moment      `json:"timeline,omitempty"`     // empty if not reported
}

// Memory is what a process took at its height, between Begin and End.
type Memory struct {
	HeapBytes     uint64 `json:"heapBytes"`              // live heap at Begin, after a collection
	PeakHeapBytes uint64 `json:"peakHeapBytes"`          // largest sampled size of heap objects
	PeakRSSBytes  uint64 `json:"peakRSSBytes,omitempty"` // 0 where the kernel does not tell
}

// Host is what happened to the machine and to the process between Begin and End
// that no variant is to blame for.
type Host struct {
	StealShare float64       `json:"stealShare,omitempty"`  // of the machine's CPU time
	Throttled  time.Duration `json:"throttledNs,omitempty"` // time held back by the CPU quota
	GCLimited  bool          `json:"gcLimited,omitempty"`   // the runtime limited the collector at the heap limit
}

// Moment is one stretch of a measurement: what happened in it, and what was
// waiting at its end.
type Moment struct {
	At       time.Duration `json:"atNs"`     // end of the interval, from the start of the schedule
	Released uint64        `json:"released"` // in the interval
	Handled  uint64        `json:"handled"`  // in the interval
	Depth    uint64        `json:"depth"`    // events queued at its end
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
	Budget    time.Duration `json:"budgetNs"`  // allowed lateness, see [Recorder.Schedule]
	Late      uint64        `json:"late"`      // releases later than the budget
	LateShare float64       `json:"lateShare"` // of all releases
	Missed    uint64        `json:"missed"`    // releases after the schedule was over
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
