package storm

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/pace"
)

// Kind is what a [Step] is.
type Kind uint8

// The kinds of steps: events, and the marks between them.
const (
	Added Kind = iota
	Modified
	Deleted
	RelistStep
	ResyncStep
)

// Type returns the watch event of the kind; empty for a mark.
func (k Kind) Type() watch.EventType {
	switch k {
	case Added:
		return watch.Added
	case Modified:
		return watch.Modified
	case Deleted:
		return watch.Deleted
	default:
		return ""
	}
}

// Step is an event, or a mark, in its compact form: 16 bytes that refer to an
// object by its key and its state. [Generator.Object] has the object.
type Step struct {
	At time.Duration

	Key int32

	Kind Kind

	Stream uint8

	State uint8
}

// never is the time of what doesn't happen.
const never = time.Duration(math.MaxInt64)

// plan is what a profile makes of its parameters: who is there, and who does
// what when.
type plan struct {
	streams []*stream
	lives   []life
	draws   []draw
	marks   []planMark
	phases  []Phase

	end time.Duration
}

// stream is one resource of a plan.
type stream struct {
	cast cast

	keys, initial int
	settled       uint8
}

// cast makes the keys and the objects of a stream.
type cast interface {
	resource() resource

	key(k int32) string

	object(k int32, state uint8) runtime.Object
}

// beat is one step in the life of a key: so long after the one before.
type beat struct {
	after time.Duration
	kind  Kind
	state uint8
}

// life is what a range of keys goes through, each from a start of its own.
type life struct {
	stream   uint8
	first, n int32

	from   time.Duration
	starts pace.Schedule
	script []beat

	jitter float64
}

// draw is a series of MODIFIED events of keys that are there.
type draw struct {
	stream   uint8
	first, n int32
	skew     Skew

	inTurn   bool
	from, to time.Duration

	perSecond float64
	poisson   bool

	atOnce int

	states []uint8
}

// planMark is a mark of a stream.
type planMark struct {
	stream uint8
	kind   Kind
	at     time.Duration
}

// engine plays a plan: it yields its steps in order of time. It is made once and
// reset to play again.
type engine struct {
	plan *plan
	seed uint64

	tick    time.Duration
	heads   []int32
	nexts   []int32
	beats   []uint8
	lives   []uint8
	actors  []int32
	bucket  int
	pending int
	calAt   time.Duration

	draws []drawing
	mark  int
}

// drawing is the state of a draw.
type drawing struct {
	*draw
	at     time.Duration
	n      int64
	rng    uint64
	table  []alias
	stride int64
	offset int64
	turns  []uint8
	gap    float64
}

// The bounds of a calendar: 256 kB, 16 MB.
const (
	minBuckets = 1 << 16
	maxBuckets = 1 << 22
)

func newEngine(p *plan, seed uint64) *engine {
	e := &engine{plan: p, seed: mix(seed)}
	actors, beats := 0, 0
	for _, l := range p.lives {
		e.actors = append(e.actors, int32(actors))
		actors += int(l.n)
		beats += int(l.n) * len(l.script)
	}
	if beats > 0 {
		buckets := min(max(4*beats, minBuckets), maxBuckets)
		e.tick = max(p.end/time.Duration(buckets), time.Microsecond)
		e.heads = make([]int32, p.end/e.tick+1)
		e.nexts = make([]int32, actors)
		e.beats = make([]uint8, actors)
		e.lives = make([]uint8, actors)
		for i, l := range p.lives {
			for a := e.actors[i]; a < e.actors[i]+l.n; a++ {
				e.lives[a] = uint8(i)
			}
		}
	}
	e.draws = make([]drawing, len(p.draws))
	for i := range p.draws {
		e.draws[i] = newDrawing(&p.draws[i], mix(e.seed+uint64(i)))
	}
	slices.SortStableFunc(p.marks, func(a, b planMark) int { return int(a.at - b.at) })
	e.reset()
	return e
}

func newDrawing(d *draw, seed uint64) drawing {
	g := drawing{draw: d, gap: 1e9 / d.perSecond, turns: make([]uint8, d.n)}
	if d.inTurn {
		// Steps of the golden section, made coprime to n, visit every key once
		// and neighbours at different times.
		n := int64(d.n)
		g.stride = max(1, int64(float64(n)*0.6180339887))
		for gcd(g.stride, n) != 1 {
			g.stride++
		}
		g.offset = int64(seed % uint64(max(n, 1)))
	} else if d.skew.exponent > 0 {
		g.table = newAlias(int(d.n), d.skew.exponent, seed)
	}
	return g
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// reset goes back to the beginning. O(actors + buckets + keys that are drawn).
func (e *engine) reset() {
	for i := range e.heads {
		e.heads[i] = -1
	}
	clear(e.beats)
	e.bucket, e.pending, e.calAt, e.mark = 0, 0, never, 0
	for i := range e.plan.lives {
		l := &e.plan.lives[i]
		// From the last to the first, so that those that fall into one bucket
		// come in order.
		for k := l.n - 1; k >= 0; k-- {
			a := e.actors[i] + k
			e.schedule(a, l.from+l.starts.Intended(int(k))+e.delay(a, l, 0))
		}
	}
	e.advance()
	for i := range e.draws {
		d := &e.draws[i]
		clear(d.turns)
		d.n, d.rng, d.at = 0, mix(e.seed^uint64(i+1)<<32), d.from
		switch {
		case d.draw.n == 0 || (d.atOnce == 0 && d.perSecond <= 0):
			d.at = never
		case d.atOnce == 0:
			d.next(e.plan.end)
		}
	}
}

// delay before the actor's beat.
func (e *engine) delay(actor int32, l *life, beat uint8) time.Duration {
	d := l.script[beat].after
	if l.jitter == 0 || d == 0 {
		return d
	}
	u := float64(mix(e.seed^uint64(actor)<<8^uint64(beat))>>11) / (1 << 53)
	return time.Duration(float64(d) * (1 + l.jitter*(2*u-1)))
}

// schedule puts the actor where its next beat is; one beyond the end never
// comes.
func (e *engine) schedule(actor int32, at time.Duration) {
	b := int(at / e.tick)
	if at >= e.plan.end || b >= len(e.heads) {
		return
	}
	e.nexts[actor] = e.heads[b]
	e.heads[b] = actor
	e.pending++
}

// advance finds the next bucket that has an actor.
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

// next fills in the next step; false when there is none.
func (e *engine) next(s *Step) bool {
	at, from := e.calAt, -1
	for i := range e.draws {
		if d := e.draws[i].at; d < at {
			at, from = d, i
		}
	}
	if e.mark < len(e.plan.marks) {
		if m := &e.plan.marks[e.mark]; m.at <= at && m.at < e.plan.end {
			e.mark++
			*s = Step{At: m.at, Kind: m.kind, Stream: m.stream}
			return true
		}
	}
	if at == never {
		return false
	}
	if from >= 0 {
		e.draws[from].take(s, e.plan.end)
		return true
	}

	actor := e.heads[e.bucket]
	e.heads[e.bucket] = e.nexts[actor]
	e.pending--
	life := e.lives[actor]
	l := &e.plan.lives[life]
	b := &l.script[e.beats[actor]]
	*s = Step{At: at, Key: l.first + actor - e.actors[life], Kind: b.kind, Stream: l.stream, State: b.state}
	e.beats[actor]++
	if int(e.beats[actor]) < len(l.script) {
		// Not into the bucket that is being emptied: a key's steps are apart.
		e.schedule(actor, at+max(e.delay(actor, l, e.beats[actor]), e.tick))
	}
	e.advance()
	return true
}

// take fills in the draw's step and finds the time of the one after it.
func (d *drawing) take(s *Step, end time.Duration) {
	var k int64
	switch {
	case d.inTurn:
		k = (d.offset + d.n*d.stride) % int64(d.draw.n)
	case d.table != nil:
		k = pick(d.table, d.random())
	default:
		k = int64((d.random() >> 32) * uint64(d.draw.n) >> 32)
	}
	turn := d.turns[k]
	*s = Step{At: d.at, Key: d.first + int32(k), Kind: Modified, Stream: d.stream, State: d.states[turn]}
	if turn++; int(turn) == len(d.states) {
		turn = 0
	}
	d.turns[k] = turn
	d.n++
	d.next(end)
}

// next finds the time of the draw's event n.
func (d *drawing) next(end time.Duration) {
	switch {
	case d.atOnce > 0:
		if d.n >= int64(d.atOnce) {
			d.at = never
		}
		return
	case d.poisson:
		// 1-u is never 0.
		u := float64(d.random()>>11) / (1 << 53)
		d.at += time.Duration(-math.Log(1-u) * d.gap)
	default:
		d.at = d.from + time.Duration(float64(d.n)*d.gap)
	}
	if d.at >= min(d.to, end) {
		d.at = never
	}
}

// random is splitmix64.
func (d *drawing) random() uint64 {
	d.rng += 0x9e3779b97f4a7c15
	x := d.rng
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
