package cell

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Result holds the figures of one measurement. Its JSON form is part of run.json;
// durations are in whole nanoseconds.
type Result struct {
	EventsIn           uint64        `json:"eventsIn"`           // input events
	DeltasOut          uint64        `json:"deltasOut"`          // output deltas
	Elapsed            time.Duration `json:"elapsedNs"`          // from Begin to End, monotonic
	EventsPerSecond    float64       `json:"eventsPerSecond"`    // EventsIn over Elapsed
	DeltasPerEvent     float64       `json:"deltasPerEvent"`     // below 1 if events coalesce
	AllocsPerEvent     float64       `json:"allocsPerEvent"`     // heap allocations of the process between Begin and End
	BytesPerEvent      float64       `json:"bytesPerEvent"`      // allocated heap bytes of the process between Begin and End
	CPUSecondsPerEvent float64       `json:"cpuSecondsPerEvent"` // user and system time of the process, GC included; 0 if unknown
	// PaidBytesPerEvent are the allocated bytes that the collections of the measurement pay for, and
	// GCNsPerByte is the price of all others; see [Result.PricedCPUSecondsPerEvent].
	PaidBytesPerEvent float64       `json:"paidBytesPerEvent,omitempty"`
	GCNsPerByte       float64       `json:"gcNsPerByte,omitempty"` // set by the owner of the recorder; 0 if unknown
	GCs               uint32        `json:"gcs"`                   // completed garbage collections
	GCPause           time.Duration `json:"gcPauseNs"`             // total stop-the-world time
	// GCPauseMax is the longest pause: the upper bound of the runtime's bucket
	// (/sched/pauses/total/gc:seconds), up to 25 % too long.
	GCPauseMax time.Duration `json:"gcPauseMaxNs,omitempty"`
	// LockWait is the time of all goroutines waiting for mutexes, as the runtime
	// estimates it (/sync/mutex/wait/total:seconds).
	LockWait time.Duration `json:"lockWaitNs"`
	Memory   *Memory       `json:"memory,omitempty"`  // nil unless the measurement had its own process
	Host     Host          `json:"host,omitzero"`     // disturbance by the machine
	Latency  []Latency     `json:"latency,omitempty"` // one entry per boundary, in the order of first use
	Lag      *Lag          `json:"lag,omitempty"`     // nil if unpaced
	Notes    []Note        `json:"notes,omitempty"`   // figures of the workload, in the order of the reports
}

// Memory is the memory use of a process between Begin and End.
type Memory struct {
	HeapBytes     uint64 `json:"heapBytes"`              // live heap at Begin, after a garbage collection
	PeakHeapBytes uint64 `json:"peakHeapBytes"`          // largest sample of /memory/classes/heap/objects:bytes
	PeakRSSBytes  uint64 `json:"peakRSSBytes,omitempty"` // peak resident set; 0 if unknown
}

// Host is the disturbance of the measurement by the machine and by the limits of the process.
type Host struct {
	StealShare float64       `json:"stealShare,omitempty"`  // share of the machine's CPU time that the hypervisor took
	Throttled  time.Duration `json:"throttledNs,omitempty"` // time that the CPU quota throttled the control group
	// GCLimited: the heap was at its limit and the runtime limited the collector
	// (/gc/limiter/last-enabled:gc-cycle). The duration is unknown.
	GCLimited bool `json:"gcLimited,omitempty"`
}

// Latency is the distribution of event times at one boundary.
type Latency struct {
	Boundary Boundary `json:"boundary"` // measured interval
	Quantiles
}

// Lag is the distribution of the generator's lag; see [Recorder.Lag]. An early release
// counts as zero lag, and in Negative.
type Lag struct {
	Quantiles
	Budget    time.Duration `json:"budgetNs"`  // allowed lag of a release; see [Recorder.Schedule]
	Late      uint64        `json:"late"`      // releases later than Budget
	LateShare float64       `json:"lateShare"` // Late over Count
	Missed    uint64        `json:"missed"`    // releases after the end of the schedule
}

// Note is a figure of the workload.
type Note struct {
	Unit  string  `json:"unit"`  // benchfmt unit
	Value float64 `json:"value"` // finite
}

// Result returns the figures, or an error that wraps [ErrMisuse] for each mistake:
// Begin, End or Count missing, a note that no line of bench.txt can have.
func (r *Recorder) Result() (Result, error) {
	r.Abandon()
	elapsed := r.stop.Sub(r.start)
	switch {
	case !r.started || !r.ended:
		r.wrong("Begin or End was not called")
	case r.eventsIn == 0:
		r.wrong("Count reported no events: nothing was measured")
	case elapsed <= 0:
		r.wrong("no time passed between Begin and End: nothing was measured")
	}
	if len(r.misuse) > 0 {
		return Result{}, errors.Join(r.misuse...)
	}

	n := float64(r.eventsIn)
	host := Host{Throttled: max(r.after.throttled-r.before.throttled, 0), GCLimited: r.after.gcLimited != r.before.gcLimited}
	host.StealShare, _ = StealShare(r.before.cpu, r.after.cpu)
	res := Result{
		EventsIn:        r.eventsIn,
		DeltasOut:       r.deltasOut,
		Elapsed:         elapsed,
		EventsPerSecond: n / elapsed.Seconds(),
		DeltasPerEvent:  float64(r.deltasOut) / n,
		Host:            host,
		Notes:           r.notes,

		AllocsPerEvent:     float64(r.after.mallocs-r.before.mallocs) / n,
		BytesPerEvent:      float64(r.after.bytes-r.before.bytes) / n,
		CPUSecondsPerEvent: (r.after.cpuTime - r.before.cpuTime).Seconds() / n,
		PaidBytesPerEvent:  paidBytes(r.before, r.after) / n,
		GCs:                r.after.gcs - r.before.gcs,
		GCPause:            r.after.gcPause - r.before.gcPause,
		GCPauseMax:         longest(r.before.pauses, r.after.pauses),
		LockWait:           r.after.lockWait - r.before.lockWait,
		Memory:             r.memory,
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
			Quantiles: q, Budget: cmp.Or(r.budget, LateAfter),
			Late: r.late, LateShare: float64(r.late) / float64(q.Count), Missed: r.missed,
		}
	}
	return res, nil
}

// At returns the latency of the boundary; false if there is none.
func (r Result) At(b Boundary) (Latency, bool) {
	if at := slices.IndexFunc(r.Latency, func(l Latency) bool { return l.Boundary == b }); at >= 0 {
		return r.Latency[at], true
	}
	return Latency{}, false
}
