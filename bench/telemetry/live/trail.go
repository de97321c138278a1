package live

import (
	"math"
	"slices"
	"time"
)

// Point is a look at a play. Its counts are those since the play began.
type Point struct {
	At                time.Duration // since the play began
	Released, Handled uint64        // events
	Depth             int           // queue depth
	P99               float64       // latency from the intended time in seconds since the previous point; NaN for none
	Relists, Faults   uint64
}

// trailPoints bounds a trail. A longer play keeps every second point, and so on.
const trailPoints = 240

// trail has the points of one play. [Set.Look] adds them.
type trail struct {
	began  time.Time
	origin Point        // the totals when the play began
	before Distribution // of latency at the last point
	every  int          // looks for each point
	looks  int
	points []Point
}

func newTrail(f *Figures) *trail {
	return &trail{began: f.began, origin: totals(f), before: *f.Distribution(IntendedHandled), every: 1}
}

// Rest ends the trail of a play, with the queue's depth at its end.
func (s *Set) Rest(depth int) {
	s.Update(func(f *Figures) {
		f.QueueDepth = depth
		if s.trail != nil {
			s.trail.looks = s.trail.every - 1
			s.trail.look(f, time.Now())
		}
	})
}

// Trail returns the points of the current play, or of the last one.
func (s *Set) Trail() (points []Point) {
	s.Update(func(*Figures) {
		if s.trail != nil {
			points = slices.Clone(s.trail.points)
		}
	})
	return points
}

func totals(f *Figures) Point {
	p := Point{Released: f.Total(Released), Handled: f.Total(Handled), Depth: f.QueueDepth, Relists: f.Relists}
	for _, n := range f.Faults {
		p.Faults += n
	}
	return p
}

func (t *trail) look(f *Figures, now time.Time) {
	if t.looks++; t.looks%t.every != 0 {
		return
	}
	p, latency := totals(f), f.Distribution(IntendedHandled)
	p.At, p.P99 = now.Sub(t.began), latency.since(&t.before).Quantile(0.99)
	t.before = *latency
	p.Released -= t.origin.Released
	p.Handled -= t.origin.Handled
	p.Relists -= t.origin.Relists
	p.Faults -= t.origin.Faults
	if t.points = append(t.points, p); len(t.points) == trailPoints {
		t.thin()
	}
}

// thin drops every second point. The later one of two keeps the longer latency.
func (t *trail) thin() {
	var kept []Point
	for pair := range slices.Chunk(t.points, 2) {
		p := pair[1]
		if before := pair[0].P99; math.IsNaN(p.P99) || before > p.P99 {
			p.P99 = before
		}
		kept = append(kept, p)
	}
	t.points, t.every, t.looks = kept, 2*t.every, 0
}
