package controller

import (
	"sync"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/bench/telemetry/live"
)

// fresh is the time for which viewers of a page share a look at the play.
const fresh = 400 * time.Millisecond

// Page makes the state of the page of watchlab
type Page struct {
	mu     sync.Mutex // guards all fields below
	look   func() Observation
	plays  []live.StormPlay
	status live.StormStatus
	looked time.Time // when status was made
	before Observation
	cpu    *float64 // of the last two samples
}

// Playing is [Options].Playing.
func (p *Page) Playing(look func() Observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look, p.looked, p.before, p.cpu = look, time.Time{}, Observation{}, nil
}

// Judged is [Options].Judged.
func (p *Page) Judged(play *Play) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := live.StormPlay{Name: play.Name, Verdict: "passed"}
	if v := play.Failure(); v != nil {
		out.Verdict, out.Failed = v.Name+": "+v.Text, true
	}
	p.plays, p.looked = append(p.plays, out), time.Time{}
}

// Now returns the state.
func (p *Page) Now() live.StormStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.look == nil {
		return live.StormStatus{Name: "controller", State: Starting, Speed: 1, Faults: []live.StormFault{}, Watches: []live.StormWatch{}, Plays: []live.StormPlay{}}
	}
	if time.Since(p.looked) < fresh {
		return p.status
	}
	o, before := p.look(), p.before
	s := live.StormStatus{
		Name: o.Name, State: o.State, At: min(o.At, o.Length).Seconds(), Length: o.Length.Seconds(), Speed: o.Speed,
		Faults: live.StormFaults(o.Injections), Watches: []live.StormWatch{}, Plays: append([]live.StormPlay{}, p.plays...),
	}
	lag := 0.0
	for _, l := range o.Lags {
		s.Watches = append(s.Watches, live.StormWatch{Client: l.Client, Resource: l.Resource.GroupResource().String(), Events: l.Events, Bytes: int(l.Bytes)})
		lag = max(lag, float64(l.Events))
	}
	figure := func(name, unit string, value *float64) {
		s.Figures = append(s.Figures, live.StormFigure{Name: name, Unit: unit, Value: value})
	}
	var latency, requests, cpu, rss *float64
	if o.Latency != nil {
		latency = new(o.Latency.Seconds())
	}
	if past := (o.At - before.At).Seconds(); before.At > 0 && past > 0 {
		requests = new(float64(o.Requests-before.Requests) / past)
	}
	if len(o.Samples) > 0 {
		if v := cores(before.Samples, o.Samples); v != nil {
			p.cpu = v
		}
		cpu, rss = p.cpu, new(0.0)
		for _, v := range o.Samples {
			*rss += float64(v.RSS)
		}
	}
	figure("Slowest reconcile latency", "s", latency)
	figure("Requests a second", "", requests)
	figure("Watch lag", "events", &lag)
	figure("Memory", "B", rss)
	figure("CPU", "cores", cpu)
	p.status, p.before, p.looked = s, o, time.Now()
	return s
}

// cores returns the CPU time a second between two samples of each process, nil without two.
func cores(before, now []record.Sample) *float64 {
	var sum float64
	known := false
	for _, v := range now {
		for _, b := range before {
			if b.Client == v.Client && v.At > b.At && v.CPU >= b.CPU {
				sum, known = sum+float64(v.CPU-b.CPU)/float64(v.At-b.At), true
			}
		}
	}
	if !known {
		return nil
	}
	return &sum
}
