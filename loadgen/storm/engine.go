package storm

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/pace"
)

// Kind is the kind of a [Step].
type Kind uint8

// The kinds of steps: events, and the marks between them.
const (
	Added Kind = iota
	Modified
	Deleted
	RelistStep
	ResyncStep
)

// Type returns the watch event type of the kind; empty for a mark.
func (k Kind) Type() watch.EventType {
	return [...]watch.EventType{watch.Added, watch.Modified, watch.Deleted, RelistStep: "", ResyncStep: ""}[k]
}

// Step is an event or a mark in compact form (16 bytes). It names an object by stream, key and state; [Generator.Object] returns the object.
type Step struct {
	At     time.Duration // intended time, from the start of the storm
	Key    int32         // number of the object's key within its stream; marks have no key
	Kind   Kind          // type of the event or mark
	Stream uint8         // index of the resource in [Generator.Resources]
	State  uint8         // state of the object after the event
}

const never = time.Duration(math.MaxInt64) // time of an event that does not happen

// plan is a profile with its parameters resolved: the objects and their events.
type plan struct {
	streams    []*stream
	lifecycles []lifecycle
	updates    []updates
	marks      []planMark
	end        time.Duration // end of the storm: no event happens at end or later
}

// stream is one resource of a plan. Keys are numbered from 0.
type stream struct {
	resource resource
	objects  objects
	initial  int // the first initial keys exist from the start, in state 0
}

type transition struct {
	after time.Duration // the previous transition
	kind  Kind
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

type planMark struct {
	kind Kind
	at   time.Duration
}

// engine yields the steps of a plan in order of time. It can be reset.
//
// An actor is a key in a lifecycle. Actors wait in a calendar queue: buckets of one tick, each
// a linked list. The next actor costs O(1), plus about four empty buckets per transition.
// Times are multiples of a tick: at most 1 ms in a storm of one minute.
//
// Rejected: a heap of actors, which costs O(log actors): 150 ns with 100,000 actors. Also rejected:
// a merge of the transitions of each lifecycle. It is as fast but cannot have jitter.
type engine struct {
	plan *plan
	seed uint64

	tick    time.Duration
	heads   []int32       // first actor of each bucket, or -1
	nexts   []int32       // next actor in the same bucket
	done    []uint8       // number of transitions done by each actor
	owners  []uint8       // lifecycle of each actor
	actors  []int32       // first actor of each lifecycle
	bucket  int           // present bucket
	pending int           // actors in the calendar
	calAt   time.Duration // time of the present bucket
	series  []series
	mark    int
}

// series is the state of an [updates].
type series struct {
	*updates
	at     time.Duration
	count  int64
	rng    uint64
	table  []alias
	stride int64
	offset int64
	turns  []uint8 // index of each key's next state
	gap    float64 // mean time between two events in ns
}

// Limits of the calendar's memory: 256 kB and 16 MB.
const (
	minBuckets = 1 << 16
	maxBuckets = 1 << 22
)

func newEngine(p *plan, seed uint64) *engine {
	e := &engine{plan: p, seed: mix(seed)}
	actors, transitions := 0, 0
	for _, l := range p.lifecycles {
		e.actors = append(e.actors, int32(actors))
		actors += int(l.n)
		transitions += int(l.n) * len(l.script)
	}
	if transitions > 0 {
		buckets := min(max(4*transitions, minBuckets), maxBuckets)
		e.tick = max(p.end/time.Duration(buckets), time.Microsecond)
		e.heads = make([]int32, p.end/e.tick+1)
		e.nexts = make([]int32, actors)
		e.done = make([]uint8, actors)
		e.owners = make([]uint8, actors)
		for i, l := range p.lifecycles {
			for a := e.actors[i]; a < e.actors[i]+l.n; a++ {
				e.owners[a] = uint8(i)
			}
		}
	}
	e.series = make([]series, len(p.updates))
	for i := range p.updates {
		e.series[i] = newSeries(&p.updates[i], mix(e.seed+uint64(i)))
	}
	slices.SortStableFunc(p.marks, func(a, b planMark) int { return int(a.at - b.at) })
	e.reset()
	return e
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
	} else if u.skew.exponent > 0 {
		s.table = newAlias(int(u.n), u.skew.exponent, seed)
	}
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// reset restarts the engine. O(actors + buckets + updated keys).
func (e *engine) reset() {
	for i := range e.heads {
		e.heads[i] = -1
	}
	clear(e.done)
	e.bucket, e.pending, e.calAt, e.mark = 0, 0, never, 0
	for i := range e.plan.lifecycles {
		l := &e.plan.lifecycles[i]
		// In reverse, so that the actors of one bucket are in order.
		for k := l.n - 1; k >= 0; k-- {
			a := e.actors[i] + k
			e.schedule(a, l.from+l.starts.Intended(int(k))+e.delay(a, l, 0))
		}
	}
	e.advance()
	for i := range e.series {
		s := &e.series[i]
		clear(s.turns)
		s.count, s.rng, s.at = 0, mix(e.seed^uint64(i+1)<<32), s.from
		switch {
		case s.n == 0 || (s.atOnce == 0 && s.perSecond <= 0):
			s.at = never
		case s.atOnce == 0:
			s.next(e.plan.end)
		}
	}
}

func (e *engine) delay(actor int32, l *lifecycle, transition uint8) time.Duration {
	d := l.script[transition].after
	if l.jitter == 0 || d == 0 {
		return d
	}
	u := float64(mix(e.seed^uint64(actor)<<8^uint64(transition))>>11) / (1 << 53)
	return time.Duration(float64(d) * (1 + l.jitter*(2*u-1)))
}

// schedule puts the actor into the bucket of its next transition. It drops transitions beyond
// the end.
func (e *engine) schedule(actor int32, at time.Duration) {
	b := int(at / e.tick)
	if at >= e.plan.end || b >= len(e.heads) {
		return
	}
	e.nexts[actor] = e.heads[b]
	e.heads[b] = actor
	e.pending++
}

func (e *engine) advance() {
	if e.pending == 0 {
		e.calAt = never
		return
	}
	for e.heads[e.bucket] < 0 {
		e.bucket++
	}
	e.calAt = time.Duration(e.bucket) * e.tick
}

// next stores the next step in s; it returns false at the end.
func (e *engine) next(s *Step) bool {
	at, from := e.calAt, -1
	for i := range e.series {
		if t := e.series[i].at; t < at {
			at, from = t, i
		}
	}
	if e.mark < len(e.plan.marks) {
		if m := &e.plan.marks[e.mark]; m.at <= at && m.at < e.plan.end {
			e.mark++
			*s = Step{At: m.at, Kind: m.kind}
			return true
		}
	}
	if at == never {
		return false
	}
	if from >= 0 {
		e.series[from].take(s, e.plan.end)
		return true
	}

	actor := e.heads[e.bucket]
	e.heads[e.bucket] = e.nexts[actor]
	e.pending--
	owner := e.owners[actor]
	l := &e.plan.lifecycles[owner]
	t := &l.script[e.done[actor]]
	*s = Step{At: at, Key: l.first + actor - e.actors[owner], Kind: t.kind, Stream: l.stream, State: t.state}
	e.done[actor]++
	if int(e.done[actor]) < len(l.script) {
		// Never the present bucket: two steps of a key have different times.
		e.schedule(actor, at+max(e.delay(actor, l, e.done[actor]), e.tick))
	}
	e.advance()
	return true
}

// take stores the next update in step and computes the time of the following one.
func (s *series) take(step *Step, end time.Duration) {
	var k int64
	switch {
	case s.inTurn:
		k = (s.offset + s.count*s.stride) % int64(s.n)
	case s.table != nil:
		k = pick(s.table, s.random())
	default:
		k = int64((s.random() >> 32) * uint64(s.n) >> 32)
	}
	turn := s.turns[k]
	*step = Step{At: s.at, Key: s.first + int32(k), Kind: Modified, Stream: s.stream, State: s.states[turn]}
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
