package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"watchlab/bench/telemetry/live"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
)

// pageAddress is the address of --page without a value.
const pageAddress = "127.0.0.1:0"

// closing is the time that requests of a page have to end.
const closing = time.Second

// stage is the turn that the page of serve shows and controls.
type stage struct {
	mu       sync.Mutex // guards all fields
	server   *apiserver.Server
	player   *apiserver.Player
	injector *fault.Injector
	begun    bool // the storm has begun

	// The totals at the last look, for rates.
	looked time.Time
	bytes  int64
}

// set changes the turn.
func (s *stage) set(server *apiserver.Server, player *apiserver.Player, injector *fault.Injector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.player, s.injector, s.begun, s.looked = server, player, injector, false, time.Time{}
}

func (s *stage) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

func (s *stage) transport() live.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.player
}

func (s *stage) status(name string) live.StormStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.player.Status()
	out := live.StormStatus{
		Name: name, State: "playing", At: p.At.Seconds(), Length: p.Length.Seconds(), Released: p.Released, Events: p.Events, Speed: p.Speed,
		Faults: stormFaults(s.injector.Log()), Watches: []live.StormWatch{}, Plays: []live.StormPlay{}, Control: true,
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
		out.Watches = append(out.Watches, live.StormWatch{Client: l.Client, Resource: l.Resource.GroupResource().String(), Events: l.Events, Bytes: int(l.Bytes)})
		lag, unsent = max(lag, float64(l.Events)), max(unsent, float64(l.Bytes))
	}
	released, bytes, now := float64(p.Released), s.server.WireBytes(), time.Now()
	var rate *float64
	if past := now.Sub(s.looked).Seconds(); !s.looked.IsZero() && past > 0 {
		v := float64(bytes-s.bytes) / past
		rate = &v
	}
	s.looked, s.bytes = now, bytes
	out.Figures = []live.StormFigure{
		{Name: "Watch lag", Unit: "events", Value: &lag}, {Name: "Unsent bytes", Unit: "B", Value: &unsent},
		{Name: "Sent a second", Unit: "B", Value: rate}, {Name: "Released", Unit: "events", Value: &released},
	}
	return out
}

// stormFaults returns the occurrences of the faults, each once.
func stormFaults(log []fault.Injection) []live.StormFault {
	type occurrence struct{ spec, n int }
	seen, out := map[occurrence]bool{}, []live.StormFault{}
	for _, in := range log {
		if k := (occurrence{in.Spec, in.Occurrence}); !seen[k] {
			seen[k] = true
			out = append(out, live.StormFault{At: time.Duration(in.At).Seconds(), Name: string(in.Fault)})
		}
	}
	return out
}

// startPage serves a page until stop is called. It says where, what the page does, and the token if the user does
// not have it. Without an address it does nothing.
func startPage(opts live.StormOptions, does string, say func(string)) (stop func() error, err error) {
	if opts.Addr == "" {
		return func() error { return nil }, nil
	}
	s, err := live.StartStorm(opts)
	if errors.Is(err, live.ErrAddress) {
		return nil, badFlag("page", err)
	}
	if err != nil {
		return nil, err
	}
	say(fmt.Sprintf("%s %s; it opens once, in one browser", s.Link(), does))
	if opts.Token == "" {
		say("bearer token of the page, or password of any user: " + s.Token())
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		return s.Close(ctx)
	}, nil
}
