package storm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
)

// Part is one profile of a [Composition]. It starts at Start and ends after
// Duration, where that is not 0. A Pace replaces the profile's own times.
type Part struct {
	Profile  *Profile
	Seed     int64
	Start    time.Duration
	Duration time.Duration
	Pace     *pace.Pace
}

// Composition is one or more profiles at the same time, each in a cluster of its
// own: names of the second begin with "b-", names of the third with "c-", and so
// on.
type Composition struct {
	Name   string
	Parts  []Part
	Faults []fault.Spec
}

// Compose returns the composition of one profile.
func Compose(p *Profile, seed int64) Composition {
	return Composition{Name: p.Name(), Parts: []Part{{Profile: p, Seed: seed}}}
}

// MaxParts is the most profiles of a composition.
const MaxParts = 25

// ErrComposition is wrapped by the errors for compositions that are not allowed.
var ErrComposition = errors.New("invalid composition")

// PartError is the error of one part of a composition.
type PartError struct {
	// Part counts from 0.
	Part int
	Err  error
}

// Error names the part, counted from 1.
func (e *PartError) Error() string { return fmt.Sprintf("profile %d: %v", e.Part+1, e.Err) }

// Unwrap returns the cause.
func (e *PartError) Unwrap() error { return e.Err }

// Validate checks the composition. The error wraps [ErrComposition],
// [ErrParam] or [fault.ErrSpec]; a part's is a [*PartError].
func (c Composition) Validate() error {
	if len(c.Parts) == 0 || len(c.Parts) > MaxParts {
		return fmt.Errorf("%w: %d profiles (allowed: 1 to %d)", ErrComposition, len(c.Parts), MaxParts)
	}
	for i, p := range c.Parts {
		if err := p.validate(); err != nil {
			return &PartError{Part: i, Err: err}
		}
	}
	for _, f := range c.Faults {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Part) validate() error {
	if p.Profile == nil || p.Profile.kind == nil {
		return fmt.Errorf("%w: no profile", ErrComposition)
	}
	c := &checks{kind: p.Profile.kind}
	c.duration("start", p.Start, 0)
	c.duration("duration", p.Duration, 0)
	if c.err != nil {
		return c.err
	}
	return p.Profile.Validate()
}

// Generator yields the events of a composition in order of time. It does not
// allocate: each object is made once for each key and state.
//
//	g, err := storm.Compose(profile, 1).Generator()
//	for s := (storm.Step{}); g.Next(&s); {
//		use(s.At, s.Kind, g.Object(s))
//	}
//
// Objects that exist from the beginning are no events; see [Generator.Initial]. A
// Generator is for one goroutine.
type Generator struct {
	name    string
	parts   []*part
	streams []merged
	phases  []Phase
	faults  []fault.Spec
	// objects are shared objects by stream, key and state.
	objects [][][]runtime.Object
}

// merged is a stream of the composition: the streams of all parts of one resource,
// one after the other.
type merged struct {
	resource resource
	streams  []*stream
	first    []int32
}

// part is a part in play. Its streams and keys have other numbers in the
// composition.
type part struct {
	engine     *engine
	stream     []uint8
	first      []int32
	start, end time.Duration
	schedule   pace.Schedule
	played     int
	next       Step
	ok         bool
}

// Generator returns a generator of the composition; the error is
// [Composition.Validate]'s. O(keys).
func (c Composition) Generator() (*Generator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := &Generator{name: c.Name, faults: c.Faults}
	for i, p := range c.Parts {
		names := namer{nodes: p.Profile.Nodes}
		if i > 0 {
			names.prefix = string(rune('a'+i)) + "-"
		}
		plan := p.Profile.kind.plan(p.Profile, names, mix(uint64(p.Seed)))
		plan.end = p.Profile.Length()
		at := &part{engine: newEngine(plan, uint64(p.Seed)), start: p.Start, end: never}
		if p.Duration > 0 {
			at.end = p.Start + p.Duration
		}
		for _, s := range plan.streams {
			stream, first := g.add(s)
			at.stream, at.first = append(at.stream, stream), append(at.first, first)
		}
		if p.Pace != nil {
			at.schedule = p.Pace.Schedule(at.score(p.Seed))
		}
		g.parts = append(g.parts, at)
		g.phases = append(g.phases, p.phases(len(c.Parts) > 1)...)
	}
	g.objects = make([][][]runtime.Object, len(g.streams))
	g.Reset()
	return g, nil
}

// add merges a stream into those of the same resource.
func (g *Generator) add(s *stream) (number uint8, first int32) {
	for i := range g.streams {
		if m := &g.streams[i]; m.resource == s.resource {
			first = m.first[len(m.first)-1]
			m.streams, m.first = append(m.streams, s), append(m.first, first+int32(s.keys))
			return uint8(i), first
		}
	}
	g.streams = append(g.streams, merged{resource: s.resource, streams: []*stream{s}, first: []int32{0, int32(s.keys)}})
	return uint8(len(g.streams) - 1), 0
}

// score returns the numbers that a pace depends on: it plays the events once to
// count them and to note their times.
func (p *part) score(seed int64) pace.Score {
	var at []time.Duration
	for s := (Step{}); p.engine.next(&s); {
		if s.Kind <= Deleted {
			at = append(at, s.At)
		}
	}
	p.engine.reset()
	score := pace.Score{Events: len(at), Seed: seed, At: func(int) time.Duration { return 0 }}
	// A part that is cut short may have none.
	if len(at) > 0 {
		score.At = func(i int) time.Duration { return at[min(i, len(at)-1)] }
	}
	return score
}

// phases returns the phases of the part, cut at its end. With a pace of its own it
// has none.
func (p *Part) phases(named bool) []Phase {
	if p.Pace != nil {
		return nil
	}
	var out []Phase
	for _, ph := range p.Profile.phases() {
		if p.Duration > 0 {
			ph.To = min(ph.To, p.Duration)
		}
		if ph.To <= ph.From {
			continue
		}
		ph.From, ph.To = ph.From+p.Start, ph.To+p.Start
		if named {
			ph.Name = p.Profile.Name() + " " + ph.Name
		}
		out = append(out, ph)
	}
	return out
}

// Reset returns to the beginning: Next yields the same steps again. O(keys).
func (g *Generator) Reset() {
	for _, p := range g.parts {
		p.engine.reset()
		p.played = 0
		p.advance()
	}
}

// advance finds the part's next step.
func (p *part) advance() {
	s := &p.next
	if p.ok = p.engine.next(s); !p.ok {
		return
	}
	if p.schedule != nil {
		// A mark has the time of the event before it.
		s.At = p.schedule.Intended(max(p.played-1, 0))
		if s.Kind <= Deleted {
			s.At = p.schedule.Intended(p.played)
			p.played++
		}
	}
	s.At += p.start
	s.Key += p.first[s.Stream]
	s.Stream = p.stream[s.Stream]
	p.ok = s.At < p.end
}

// Next fills in the next step; it returns false at the end. O(parts), without
// allocating.
func (g *Generator) Next(s *Step) bool {
	best := g.parts[0]
	if len(g.parts) > 1 {
		at := time.Duration(math.MaxInt64)
		for _, p := range g.parts {
			if p.ok && p.next.At < at {
				best, at = p, p.next.At
			}
		}
	}
	if !best.ok {
		return false
	}
	*s = best.next
	best.advance()
	return true
}

// Resources returns the resources of the streams. Pipelines play the first by
// default.
func (g *Generator) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, m := range g.streams {
		out = append(out, m.resource.gvr)
	}
	return out
}

// Phases returns the phases of all parts.
func (g *Generator) Phases() []Phase { return g.phases }

// Keys returns an upper bound of the number of keys of a stream: all events of some
// keys may lie beyond the end of their part.
func (g *Generator) Keys(stream uint8) int {
	first := g.streams[stream].first
	return int(first[len(first)-1])
}

// place returns the part's stream that has a key, and the key's number there.
func (m *merged) place(key int32) (*stream, int32) {
	i := 0
	for key >= m.first[i+1] {
		i++
	}
	return m.streams[i], key - m.first[i]
}

// Initial returns the state of a key at the beginning, and false where it does not
// exist then.
func (g *Generator) Initial(stream uint8, key int32) (state uint8, exists bool) {
	s, k := g.streams[stream].place(key)
	return s.settled, int(k) < s.initial
}

// Key returns the key of a step's object, namespace/name.
func (g *Generator) Key(s Step) string {
	st, k := g.streams[s.Stream].place(s.Key)
	return st.objects.key(k)
}

// Object returns the object after the step; nil for a mark. All steps of a key and
// state share it, and it must not be changed. Its resourceVersion names the state:
// "7.2" is state 2 of key 7. The first call makes the object and keeps it; its
// struct takes about 1.2 kB for a pod.
func (g *Generator) Object(s Step) runtime.Object {
	if s.Kind > Deleted {
		return nil
	}
	if g.objects[s.Stream] == nil {
		g.objects[s.Stream] = make([][]runtime.Object, g.Keys(s.Stream))
	}
	states := g.objects[s.Stream][s.Key]
	if int(s.State) < len(states) && states[s.State] != nil {
		return states[s.State]
	}
	o := g.object(s)
	setVersion(o, strconv.Itoa(int(s.Key))+"."+strconv.Itoa(int(s.State)))
	if n := int(s.State) + 1 - len(states); n > 0 {
		states = append(states, make([]runtime.Object, n)...)
	}
	states[s.State] = o
	g.objects[s.Stream][s.Key] = states
	return o
}

func (g *Generator) object(s Step) runtime.Object {
	st, k := g.streams[s.Stream].place(s.Key)
	return st.objects.object(k, s.State)
}

func setVersion(o runtime.Object, version string) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetResourceVersion(version)
	}
}

// Set returns the storms of the composition. Every event has a struct of its own as
// object and shares what that points to; a pod's event takes about 1.3 kB.
// O(events): the generator is played twice.
func (c Composition) Set() (*Set, error) {
	g, err := c.Generator()
	if err != nil {
		return nil, err
	}
	return g.Set(), nil
}

// Set is [Composition.Set]. It resets the generator before and after.
func (g *Generator) Set() *Set {
	g.Reset()
	events := make([]int, len(g.streams))
	for s := (Step{}); g.Next(&s); {
		if s.Kind <= Deleted {
			events[s.Stream]++
		}
	}
	g.Reset()

	set := &Set{Name: g.name, Phases: g.phases, Faults: g.faults}
	var builders []*setBuilder
	for i := range g.streams {
		b := newSetBuilder(g, uint8(i), events[i])
		if i > 0 {
			b.storm.Name += "-" + b.storm.Resource.Resource
		}
		builders = append(builders, b)
		set.Storms = append(set.Storms, b.storm)
	}
	for s := (Step{}); g.Next(&s); {
		builders[s.Stream].add(s)
	}
	for _, b := range builders {
		b.storm.Marks = within(b.storm.Marks, len(b.storm.Events))
	}
	g.Reset()
	return set
}

// setBuilder builds one storm of a set. index has the KeyIndex of each key plus 1.
type setBuilder struct {
	g     *Generator
	storm *Storm
	index []int32
}

func newSetBuilder(g *Generator, stream uint8, events int) *setBuilder {
	m := &g.streams[stream]
	s := &Storm{Name: g.name, Resource: m.resource.gvr, Kind: m.resource.gvk}
	for _, st := range m.streams {
		s.Initial += st.initial
	}
	s.Events = make([]Event, 0, s.Initial+events)
	b := &setBuilder{g: g, storm: s, index: make([]int32, g.Keys(stream))}
	for key := range b.index {
		if state, exists := g.Initial(stream, int32(key)); exists {
			b.add(Step{Key: int32(key), Stream: stream, State: state})
		}
	}
	return b
}

func (b *setBuilder) add(s Step) {
	seq := uint64(len(b.storm.Events) + 1)
	switch s.Kind {
	case RelistStep:
		b.storm.Marks = append(b.storm.Marks, Mark{After: seq - 1, Type: MarkRelist})
		return
	case ResyncStep:
		b.storm.Marks = append(b.storm.Marks, Mark{After: seq - 1, Type: MarkResync})
		return
	}
	if b.index[s.Key] == 0 {
		b.storm.Keys++
		b.index[s.Key] = int32(b.storm.Keys)
	}
	o := b.g.object(s)
	setVersion(o, strconv.FormatUint(seq, 10))
	o.GetObjectKind().SetGroupVersionKind(b.storm.Kind)
	b.storm.Events = append(b.storm.Events, Event{
		Type: s.Kind.Type(), Seq: seq, At: s.At, Key: b.g.Key(s), KeyIndex: b.index[s.Key] - 1, Object: o,
	})
}
