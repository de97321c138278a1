package controller

import (
	"time"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// The states of a play in progress.
const (
	Starting = "starting" // until the watches of the programs are open
	Playing  = "playing"
	Settling = "settling" // after storm, workload and faults
)

// Observation is the state of a play in progress.
type Observation struct {
	Progress
	At, Length time.Duration // since the start of the storm, and of storm and workload
	Speed      float64
	Injections []fault.Injection
	Lags       []record.Lag    // of the open watches
	Samples    []record.Sample // newest one of each process
	Requests   int
	// Latency is the slowest answer between the last two looks at the record, nil if there was none.
	Latency *time.Duration
}

// slow is the longest latency that a look finds, which bounds its cost.
const slow = 15 * time.Second

// look returns the state of the play. The caller serialises the calls.
func (p *session) look() Observation {
	p.mu.Lock()
	began, o := p.began, Observation{Progress: p.progress, Length: p.prepared.length, Speed: p.spec.Speed}
	o.State = Starting
	if !began.IsZero() {
		o.At, o.State = time.Since(began), Playing
	}
	if p.settling {
		o.State = Settling
	}
	newest := map[string]record.Sample{}
	for _, s := range p.samples {
		newest[s.Client] = s
	}
	p.mu.Unlock()
	for _, client := range p.clients {
		if s, ok := newest[client]; ok {
			o.Samples = append(o.Samples, s)
		}
	}
	o.Latency = p.looked.latency
	o.Injections, o.Lags, o.Requests = p.faults.Log(), p.server.Lags(), p.recorder.Requests()
	if began.IsZero() || time.Now().Before(p.looked.next) {
		return o
	}
	from := time.Now()
	play := record.Play{Program: p.program.Label, Seed: p.seed, Phases: p.phases(), Over: o.At, End: o.At}
	play.Accesses, play.Changes = p.recorder.Result()
	o.Latency = nil
	for _, r := range p.prepared.rules.ReactionsSince(&play, p.looked.at-slow) {
		if r.Answer != nil && r.Answer.At > p.looked.at && (o.Latency == nil || r.Latency > *o.Latency) {
			o.Latency = new(r.Latency)
		}
	}
	p.looked.at, p.looked.latency = o.At, o.Latency
	p.looked.next = time.Now().Add(time.Duration(float64(time.Since(from)) / p.timing.looking))
	return o
}
