package storm

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/pace"
)

// Step is an event in compact form. It names an object by stream, key and state.
type Step struct {
	At     time.Duration   // intended time, from the start of the storm
	Type   watch.EventType // ADDED, MODIFIED or DELETED
	Key    int32           // number of the object's key within its stream
	Stream uint8           // index of the resource in [Generator.Resources]
	State  uint8           // state of the object after the event
}

const never = time.Duration(math.MaxInt64) // time of an event that does not happen

// plan is a profile with its parameters resolved: the objects and their events.
type plan struct {
	streams    []*stream
	lifecycles []lifecycle
	updates    []updates
	marks      []timedMark   // of the first stream, in order of time
	end        time.Duration // end of the storm: no event happens at end or later
}

// stream is one resource of a plan. Keys are numbered from 0.
type stream struct {
	resource resource
	objects  objects
	initial  int // the first initial keys exist from the start, in state 0
}

type timedMark struct {
	at  time.Duration
	typ MarkType
}

type transition struct {
	after time.Duration // the previous transition
	typ   watch.EventType
	state uint8
}

// lifecycle takes the keys first to first+n-1 through a script.
type lifecycle struct {
	stream   uint8
	first, n int32
	from     time.Duration // key first+i starts at from + starts.Intended(i)
	starts   pace.Schedule
	script   []transition
	jitter   float64 // relative variation of each delay: 0.25 for ±25 %
}

// updates is a series of MODIFIED events of existing keys.
type updates struct {
	stream    uint8
	first, n  int32
	skew      Skew
	inTurn    bool // every key once per pass, in an order of the seed, instead of drawn by skew
	from, to  time.Duration
	perSecond float64 // mean rate; poisson makes the times random
	poisson   bool
	atOnce    int     // number of events, all at from; perSecond is then unused
	states    []uint8 // states of each key, in turn
}

// series is the state of an [updates].
type series struct {
	*updates
	at     time.Duration
	count  int64
	rng    uint64
	ranks  []float64 // of a zipf distribution; nil for a uniform one
	stride int64
	offset int64
	turns  []uint8 // index of each key's next state
	gap    float64 // mean time between two events in ns
}

// lifecycleSteps returns the steps of all lifecycles in order of time.
func (p *plan) lifecycleSteps(seed uint64) []Step {
	var steps []Step
	actor := uint64(0) // number of the key in all lifecycles, which decides the jitter
	for _, l := range p.lifecycles {
		for k := range l.n {
			at := l.from + l.starts.Intended(int(k))
			for i, t := range l.script {
				delay := t.after
				if l.jitter > 0 {
					u := float64(mix(seed^actor<<8^uint64(i))>>11) / (1 << 53)
					delay = time.Duration(float64(delay) * (1 + l.jitter*(2*u-1)))
				}
				if i > 0 {
					delay = max(delay, time.Microsecond) // Two steps of a key have different times.
				}
				if at += delay; at >= p.end {
					break
				}
				steps = append(steps, Step{At: at, Key: l.first + k, Type: t.typ, Stream: l.stream, State: t.state})
			}
			actor++
		}
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Key, b.Key))
	})
	return steps
}

func newSeries(u *updates, seed uint64) series {
	s := series{updates: u, gap: 1e9 / u.perSecond, turns: make([]uint8, u.n)}
	if u.inTurn {
		// Golden-section steps, coprime to n, visit every key once and spread neighbours in time.
		n := int64(u.n)
		s.stride = max(1, int64(float64(n)*0.6180339887))
		for gcd(s.stride, n) != 1 {
			s.stride++
		}
		s.offset = int64(seed % uint64(max(n, 1)))
	} else if u.skew > 0 {
		s.ranks = newRanks(int(u.n), float64(u.skew), seed)
	}
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Next stores the next step in s; false at the end. It does not allocate.
func (g *Generator) Next(s *Step) bool {
	at, from := never, -1
	if len(g.lifecycles) > 0 {
		at = g.lifecycles[0].At
	}
	for i := range g.series {
		if t := g.series[i].at; t < at {
			at, from = t, i
		}
	}
	switch {
	case from >= 0:
		g.series[from].take(s, g.plan.end)
	case at < never:
		*s = g.lifecycles[0]
		g.lifecycles = g.lifecycles[1:]
	default:
		return false
	}
	return true
}

// take stores the next update in step and computes the time of the following one.
func (s *series) take(step *Step, end time.Duration) {
	var k int64
	switch {
	case s.inTurn:
		k = (s.offset + s.count*s.stride) % int64(s.n)
	case s.ranks != nil:
		k = pick(s.ranks, s.random())
	default:
		k = int64((s.random() >> 32) * uint64(s.n) >> 32)
	}
	turn := s.turns[k]
	*step = Step{At: s.at, Key: s.first + int32(k), Type: watch.Modified, Stream: s.stream, State: s.states[turn]}
	if turn++; int(turn) == len(s.states) {
		turn = 0
	}
	s.turns[k] = turn
	s.count++
	s.next(end)
}

func (s *series) next(end time.Duration) {
	switch {
	case s.atOnce > 0:
		if s.count >= int64(s.atOnce) {
			s.at = never
		}
		return
	case s.poisson:
		// 1-u is never 0, so the logarithm is finite.
		u := float64(s.random()>>11) / (1 << 53)
		s.at += time.Duration(-math.Log(1-u) * s.gap)
	default:
		s.at = s.from + time.Duration(float64(s.count)*s.gap)
	}
	if s.at >= min(s.to, end) {
		s.at = never
	}
}

func (s *series) random() uint64 {
	x := mix(s.rng)
	s.rng += 0x9e3779b97f4a7c15
	return x
}
