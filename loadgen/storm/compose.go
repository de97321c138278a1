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

// Part is one profile of a [Composition].
type Part struct {
	// Profile generates the events. It must not be nil.
	Profile *Profile
	// Seed decides everything random in the part.
	Seed int64
	// Start is the time of the part's first phase, from the start of the composition. Initial
	// objects exist from the start of the composition.
	Start time.Duration
	// Duration cuts the part: later events are dropped. 0 means no cut.
	Duration time.Duration
	// Pace replaces the intended times of the profile; nil keeps them. A mark gets the time of
	// the event before it.
	Pace *pace.Pace
}

// Composition is one or more profiles that play at the same time. Each profile has its own
// cluster: names of the second begin with "b-", names of the third with "c-", and so on.
type Composition struct {
	// Name is the name of the resulting [Set].
	Name string
	// Parts are the profiles, at most [MaxParts].
	Parts []Part
	// Faults are faults of the simulated API server; see [Set].
	Faults []fault.Spec
}

// Compose returns the composition of one profile.
func Compose(p *Profile, seed int64) Composition {
	return Composition{Name: p.Name(), Parts: []Part{{Profile: p, Seed: seed}}}
}

// MaxParts is the maximum number of profiles in a composition.
const MaxParts = 25

// ErrComposition is wrapped by the errors for invalid compositions.
var ErrComposition = errors.New("invalid composition")

// PartError is the error of one part of a composition.
type PartError struct {
	// Part is the index of the part, from 0.
	Part int
	// Err is the cause.
	Err error
}

// Error names the part, counted from 1.
func (e *PartError) Error() string { return fmt.Sprintf("profile %d: %v", e.Part+1, e.Err) }

// Unwrap returns the cause.
func (e *PartError) Unwrap() error { return e.Err }

// Validate checks the composition. The error wraps [ErrComposition], [ErrParam] or
// [fault.ErrSpec]. The error of a part is a [*PartError].
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

// Generator yields the events of a composition in order of time. Next does not allocate: the
// generator builds each object once per key and state.
//
//	g, err := storm.Compose(profile, 1).Generator()
//	for s := (storm.Step{}); g.Next(&s); {
//		use(s.At, s.Kind, g.Object(s))
//	}
//
// Initial objects are not events; see [Generator.Initial]. A Generator is not safe for
// concurrent use.
type Generator struct {
	name    string
	parts   []*part
	streams []merged
	phases  []Phase
	faults  []fault.Spec
	// objects holds shared objects by stream, key and state.
	objects [][][]runtime.Object
}

// merged is a stream of the composition: the streams of all parts with the same resource,
// concatenated.
type merged struct {
	resource resource
	streams  []*stream
	// first[i] is the first key of streams[i]; one more entry marks the end.
	first []int32
}

// part is the state of a [Part] in a generator. Streams and keys are renumbered for the
// composition.
type part struct {
	engine *engine
	// stream[i] and first[i] are the composition's stream number and first key for stream i of
	// the engine.
	stream []uint8
	first  []int32
	// Events at end or later are dropped; see [Part].
	start, end time.Duration
	// schedule is nil if events keep their own times.
	schedule pace.Schedule
	// played counts the events so far: the index into schedule.
	played int
	// next is the next step; ok is false when none is left.
	next Step
	ok   bool
}

// Generator returns a generator of the composition. The error is that of
// [Composition.Validate]. O(keys).
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

// score returns the input of a pace. It plays the events once to count them and to record
// their times.
func (p *part) score(seed int64) pace.Score {
	var at []time.Duration
	for s := (Step{}); p.engine.next(&s); {
		if s.Kind <= Deleted {
			at = append(at, s.At)
		}
	}
	p.engine.reset()
	score := pace.Score{Events: len(at), Seed: seed, At: func(int) time.Duration { return 0 }}
	// A part with a short Duration may have no events.
	if len(at) > 0 {
		score.At = func(i int) time.Duration { return at[min(i, len(at)-1)] }
	}
	return score
}

// phases returns the phases of the part, cut at its end. A part with its own pace has no
// phases.
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

// Reset restarts the generator: Next yields the same steps again. O(keys).
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

// Next stores the next step in s. It returns false at the end. It takes O(parts) and does not
// allocate.
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

// Resources returns the resources of the streams. Pipelines play the first one by default.
func (g *Generator) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, m := range g.streams {
		out = append(out, m.resource.gvr)
	}
	return out
}

// Phases returns the phases of all parts.
func (g *Generator) Phases() []Phase { return g.phases }

// Keys returns an upper bound of the number of keys of a stream. A key counts even if all its
// events lie beyond the end of its part.
func (g *Generator) Keys(stream uint8) int {
	first := g.streams[stream].first
	return int(first[len(first)-1])
}

// place returns the stream of the part that owns a key, and the key's number in it.
func (m *merged) place(key int32) (*stream, int32) {
	i := 0
	for key >= m.first[i+1] {
		i++
	}
	return m.streams[i], key - m.first[i]
}

// Initial returns the state of a key at the start. exists is false for a key that does not
// exist yet.
func (g *Generator) Initial(stream uint8, key int32) (state uint8, exists bool) {
	s, k := g.streams[stream].place(key)
	return s.settled, int(k) < s.initial
}

// Key returns the key of a step's object, namespace/name.
func (g *Generator) Key(s Step) string {
	st, k := g.streams[s.Stream].place(s.Key)
	return st.objects.key(k)
}

// Object returns the object after the step; nil for a mark. All steps with the same key and
// state share one object, which must not be changed. Its resourceVersion names the state:
// "7.2" is state 2 of key 7. The first call builds and caches the object; the struct takes
// about 1.2 kB for a pod.
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

// Set returns the storms of the composition. Each event has its own object struct, which
// shares the values that it points to. A pod event takes about 1.3 kB. O(events): it plays the
// generator twice.
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

// setBuilder builds one storm of a set.
type setBuilder struct {
	g     *Generator
	storm *Storm
	// index[key] is the KeyIndex of the key plus 1; 0 means not seen yet.
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
