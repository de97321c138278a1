package apiserver

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// Player releases the events of a server's storms at their intended times. It is an open loop: it never
// waits for a watch, and releases all due events together. A storm begins again with a new server. Its
// methods are safe for concurrent use.
type Player struct {
	server *Server
	storms []*Prepared
	speed  float64

	mu    sync.Mutex // guards the fields below
	next  []int      // index of the next event of each storm
	began time.Time  // zero before Run
}

// PlayerStatus is the state of a [Player].
type PlayerStatus struct {
	At, Length       time.Duration // time of the storm, and of its last event
	Released, Events int           // of all storms, after the initial lists
}

// NewPlayer returns a player of all storms of the server, in the order of [Open]. The speed divides the
// times of the storm and is above 0.
func NewPlayer(s *Server, storms []*Prepared, speed float64) *Player {
	p := &Player{server: s, storms: storms, next: make([]int, len(storms)), speed: speed}
	for i, st := range storms {
		p.next[i] = st.storm.Initial
	}
	return p
}

// Run plays until all events are released. The error is ctx's, or wraps [ErrState] for a second Run.
func (p *Player) Run(ctx context.Context) error {
	p.mu.Lock()
	again := !p.began.IsZero()
	if !again {
		p.began = time.Now()
	}
	p.mu.Unlock()
	if again {
		return fmt.Errorf("apiserver: %w: the player ran already", ErrState)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, over := p.release()
		if over {
			return nil
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release releases the due events. It returns the time until the next one.
func (p *Player) release() (wait time.Duration, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := func(of time.Duration) time.Time { return p.began.Add(time.Duration(float64(of) / p.speed)) }
	now, first, over := p.clock(), time.Duration(math.MaxInt64), true
	for i, st := range p.storms {
		events, from := st.storm.Events, p.next[i]
		for p.next[i] < len(events) && events[p.next[i]].At <= now {
			p.next[i]++
		}
		if p.next[i] > from {
			p.server.storms[i].log.Release(uint64(p.next[i]), due)
		}
		if p.next[i] < len(events) {
			first, over = min(first, events[p.next[i]].At), false
		}
	}
	return max(0, time.Duration(math.Ceil(float64(first-p.clock())/p.speed))), over
}

// clock returns the time of the storm. The caller holds mu.
func (p *Player) clock() time.Duration {
	if p.began.IsZero() {
		return 0
	}
	return time.Duration(float64(time.Since(p.began)) * p.speed)
}

// Status returns the state of the player.
func (p *Player) Status() PlayerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s PlayerStatus
	for i, st := range p.storms {
		if events := st.storm.Events; len(events) > st.storm.Initial {
			s.Length = max(s.Length, events[len(events)-1].At)
		}
		s.Released += p.next[i] - st.storm.Initial
		s.Events += len(st.storm.Events) - st.storm.Initial
	}
	s.At = min(p.clock(), s.Length)
	return s
}
