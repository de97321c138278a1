package live

import (
	"sync"
	"time"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
)

// Turn is the turn of a served storm that a page shows and controls.
type Turn struct {
	mu       sync.Mutex // guards all fields
	server   *apiserver.Server
	player   *apiserver.Player
	injector *fault.Injector
	begun    bool // the storm has begun

	// The totals at the last look, for rates.
	looked time.Time
	bytes  int64
}

// Set changes the turn.
func (s *Turn) Set(server *apiserver.Server, player *apiserver.Player, injector *fault.Injector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.player, s.injector, s.begun, s.looked = server, player, injector, false, time.Time{}
}

// Begin starts the storm of the turn.
func (s *Turn) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

// Transport controls the turn.
func (s *Turn) Transport() Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.player
}

// Status is the state of the turn now.
func (s *Turn) Status(name string) StormStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.player.Status()
	out := StormStatus{
		Name: name, State: "playing", At: p.At.Seconds(), Length: p.Length.Seconds(), Released: p.Released, Events: p.Events, Speed: p.Speed,
		Faults: StormFaults(s.injector.Log()), Watches: []StormWatch{}, Plays: []StormPlay{}, Control: true,
	}
	switch {
	case p.Over():
		out.State = "over"
	case p.Paused:
		out.State = "paused"
	case !s.begun:
		out.State = "waiting"
	}
	lag, unsent := 0.0, 0.0
	for _, l := range s.server.Lags() {
		out.Watches = append(out.Watches, StormWatch{Client: l.Client, Resource: l.Resource.GroupResource().String(), Events: l.Events, Bytes: int(l.Bytes)})
		lag, unsent = max(lag, float64(l.Events)), max(unsent, float64(l.Bytes))
	}
	released, bytes, now := float64(p.Released), s.server.WireBytes(), time.Now()
	var rate *float64
	if past := now.Sub(s.looked).Seconds(); !s.looked.IsZero() && past > 0 {
		v := float64(bytes-s.bytes) / past
		rate = &v
	}
	s.looked, s.bytes = now, bytes
	out.Figures = []StormFigure{
		{Name: "Watch lag", Unit: "events", Value: &lag}, {Name: "Unsent bytes", Unit: "B", Value: &unsent},
		{Name: "Sent a second", Unit: "B", Value: rate}, {Name: "Released", Unit: "events", Value: &released},
	}
	return out
}

// StormFaults returns the occurrences of the faults, each once.
func StormFaults(log []fault.Injection) []StormFault {
	type occurrence struct{ spec, n int }
	seen, out := map[occurrence]bool{}, []StormFault{}
	for _, in := range log {
		if k := (occurrence{in.Spec, in.Occurrence}); !seen[k] {
			seen[k] = true
			out = append(out, StormFault{At: time.Duration(in.At).Seconds(), Name: string(in.Fault)})
		}
	}
	return out
}
