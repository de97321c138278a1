package apiserver

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// Player releases the events of a server's storms at their intended times. It is an open loop: it never
// waits for a watch, and releases all due events together. It can be paused, and its clock goes forward
// only: a storm begins again, or at an earlier time, with a new server. Its methods are safe for
// concurrent use, and before Run, too.
type Player struct {
	server  *Server
	storms  []*Prepared
	changed chan struct{} // wakes Run; has capacity 1

	mu      sync.Mutex // guards the fields below
	next    []int      // index of the next event of each storm
	running bool       // between the begin and the end of Run
	paused  bool
	speed   float64
	// The clock was at this time of the storm at since. It stands if it is paused or before Run.
	at    time.Duration
	since time.Time
}

// PlayerStatus is the state of a [Player].
type PlayerStatus struct {
	At       time.Duration `json:"at"`     // time of the storm
	Length   time.Duration `json:"length"` // time of the last event
	Released int           `json:"released"`
	Events   int           `json:"events"` // of all storms, after the initial lists
	Speed    float64       `json:"speed"`
	Paused   bool          `json:"paused"`
}

// Over reports whether all events are released.
func (s PlayerStatus) Over() bool { return s.Released == s.Events }

// NewPlayer returns a player of all storms of the server, in the order of [Open]. The speed divides the
// times of the storm and is above 0.
func NewPlayer(s *Server, storms []*Prepared, speed float64) *Player {
	p := &Player{server: s, storms: storms, changed: make(chan struct{}, 1), next: make([]int, len(storms)), speed: speed}
	for i, st := range storms {
		p.next[i] = st.storm.Initial
	}
	return p
}

// Run plays until all events are released. The error is ctx's, or wraps [ErrState] for a second Run.
func (p *Player) Run(ctx context.Context) error {
	p.mu.Lock()
	if !p.since.IsZero() {
		p.mu.Unlock()
		return fmt.Errorf("apiserver: %w: the player ran already", ErrState)
	}
	p.since, p.running = time.Now(), true
	p.mu.Unlock()
	defer p.set(func(*Player) { p.running = false })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, over := p.release()
		if over {
			return nil
		}
		wake := timer.C
		if wait < 0 {
			wake = nil
		} else {
			timer.Reset(wait)
		}
		select {
		case <-wake:
		case <-p.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release releases the due events. It returns the time until the next one, negative for a paused player.
func (p *Player) release() (wait time.Duration, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused {
		since, at, speed := p.since, p.at, p.speed
		p.upto(p.clock(), func(of time.Duration) time.Time {
			return since.Add(time.Duration(float64(of-at) / speed))
		})
	}
	next, ok := p.first()
	if !ok {
		return 0, true
	}
	if p.paused {
		return -1, false
	}
	return max(0, time.Duration(math.Ceil(float64(p.timeOf(next)-p.clock())/p.speed))), false
}

// clock returns the time of the storm. The caller holds mu, as for all functions below.
func (p *Player) clock() time.Duration {
	if p.paused || !p.running {
		return p.at
	}
	return p.at + time.Duration(float64(time.Since(p.since))*p.speed)
}

// upto releases the events up to a time. due returns their intended times, nil for now.
func (p *Player) upto(t time.Duration, due func(time.Duration) time.Time) {
	for i, st := range p.storms {
		from := p.next[i]
		for p.next[i] < len(st.storm.Events) && p.timeOf(i) <= t {
			p.next[i]++
		}
		if p.next[i] > from {
			p.server.storms[i].log.Release(uint64(p.next[i]), due)
		}
	}
}

// timeOf returns the time of a storm's next event.
func (p *Player) timeOf(storm int) time.Duration {
	return p.storms[storm].storm.Events[p.next[storm]].At
}

// first returns the storm with the next event; false at the end of all.
func (p *Player) first() (storm int, ok bool) {
	for i, st := range p.storms {
		if p.next[i] < len(st.storm.Events) && (!ok || p.timeOf(i) < p.timeOf(storm)) {
			storm, ok = i, true
		}
	}
	return storm, ok
}

// set changes the clock, which goes on from its present time.
func (p *Player) set(change func(*Player)) {
	p.mu.Lock()
	p.at = p.clock()
	if p.running {
		p.since = time.Now()
	}
	change(p)
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Pause stops the clock of the storm. The server goes on.
func (p *Player) Pause() { p.set(func(p *Player) { p.paused = true }) }

// Resume continues after a pause.
func (p *Player) Resume() { p.set(func(p *Player) { p.paused = false }) }

// SetSpeed changes the speed. The error wraps [ErrOptions] unless it is above 0.
func (p *Player) SetSpeed(speed float64) error {
	if !(speed > 0) {
		return fmt.Errorf("apiserver: %w: speed %v", ErrOptions, speed)
	}
	p.set(func(p *Player) { p.speed = speed })
	return nil
}

// Step pauses and releases the next n events of all storms, in the order of their times. The clock goes
// to the last one. Events are due at their release. It returns the number of released events.
func (p *Player) Step(n int) (released int) {
	p.set(func(p *Player) {
		p.paused = true
		for ; released < n; released++ {
			i, ok := p.first()
			if !ok {
				return
			}
			p.at = max(p.at, p.timeOf(i))
			p.next[i]++
			p.server.storms[i].log.Release(uint64(p.next[i]), nil)
		}
	})
	return released
}

// Seek sets the clock to a later time, at most the end, and releases all events up to it at once. They are
// due at their release. The error wraps [ErrState] for an earlier time.
func (p *Player) Seek(t time.Duration) (err error) {
	p.set(func(p *Player) {
		if t < p.at {
			err = fmt.Errorf("apiserver: %w: the storm is at %v, after %v", ErrState, p.at, t)
			return
		}
		p.at = max(p.at, min(t, p.length()))
		p.upto(p.at, nil)
	})
	return err
}

func (p *Player) length() (last time.Duration) {
	for _, st := range p.storms {
		if events := st.storm.Events; len(events) > st.storm.Initial {
			last = max(last, events[len(events)-1].At)
		}
	}
	return last
}

// Status returns the state of the player.
func (p *Player) Status() PlayerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PlayerStatus{At: p.clock(), Length: p.length(), Speed: p.speed, Paused: p.paused}
	for i, st := range p.storms {
		s.Released += p.next[i] - st.storm.Initial
		s.Events += len(st.storm.Events) - st.storm.Initial
	}
	s.At = min(s.At, s.Length)
	return s
}
