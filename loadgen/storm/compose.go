package storm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
)

// Part is one profile of a [Composition].
type Part struct {
	Profile *Profile // generates the events; it must not be nil
	Seed    int64    // decides everything random in the part
	// Start is the time of the part's first phase. Its initial objects exist before.
	Start    time.Duration
	Duration time.Duration // cuts the part: later events are dropped; 0 means no cut
	Pace     *pace.Pace    // replaces the intended times of the profile; nil keeps them
}

// Composition is one or more profiles that play at the same time. Each profile has its own
// cluster: names of the second begin with "b-", names of the third with "c-", and so on.
type Composition struct {
	Name   string       // name of the resulting [Set]
	Parts  []Part       // profiles, at most [MaxParts]
	Faults []fault.Spec // faults of the simulated API server; see [Set]
}

// Compose returns the composition of one profile.
func Compose(p *Profile, seed int64) Composition {
	return Composition{Name: p.Name(), Parts: []Part{{Profile: p, Seed: seed}}}
}

// MaxParts is the maximum number of profiles in a composition.
const MaxParts = 25

// ErrComposition is wrapped by the errors for invalid compositions.
var ErrComposition = errors.New("invalid composition")

// Validate checks the composition. The error wraps [ErrComposition], [ErrParam] or [fault.ErrSpec].
func (c Composition) Validate() error {
	if len(c.Parts) == 0 || len(c.Parts) > MaxParts {
		return fmt.Errorf("%w: %d profiles (allowed: 1 to %d)", ErrComposition, len(c.Parts), MaxParts)
	}
	for i, p := range c.Parts {
		if err := p.validate(); err != nil {
			return fmt.Errorf("profile %d: %w", i+1, err)
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
	c.within("start", p.Start, "0s to 24h0m0s")
	c.within("duration", p.Duration, "0s to 24h0m0s")
	if c.err != nil {
		return c.err
	}
	return p.Profile.Validate()
}

// Generator yields the events of a composition in order of time. Next does not allocate.
//
//	g, err := storm.Compose(profile, 1).Generator()
//	for s := (storm.Step{}); g.Next(&s); {
//		use(s.At, s.Kind, g.Object(s))
//	}
//
// Initial objects are not events; see [Generator.Initial]. A Generator is not safe for
// concurrent use.
type Generator struct {
	parts     []*part
	resources []resource
	phases    []Phase
}

type part struct {
	number     uint8
	engine     *engine
	streams    []uint8       // composition's number of each stream of the plan
	start, end time.Duration // events at end or later are dropped; see [Part]
	schedule   pace.Schedule // nil if events keep their own times
	played     int           // counts the events so far: the index into schedule
	next       Step          // step; ok is false when none is left
	ok         bool
}

// Generator returns a generator of the composition. The error is that of
// [Composition.Validate]. O(keys).
func (c Composition) Generator() (*Generator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := &Generator{}
	for i, p := range c.Parts {
		names := namer{nodes: p.Profile.Nodes}
		if i > 0 {
			names.prefix = string(rune('a'+i)) + "-"
		}
		plan := p.Profile.kind.plan(p.Profile, names, mix(uint64(p.Seed)))
		plan.end = p.Profile.Length()
		at := &part{number: uint8(i), engine: newEngine(plan, uint64(p.Seed)), start: p.Start, end: never}
		if p.Duration > 0 {
			at.end = p.Start + p.Duration
		}
		for _, s := range plan.streams {
			n := slices.Index(g.resources, s.resource)
			if n < 0 {
				n = len(g.resources)
				g.resources = append(g.resources, s.resource)
			}
			at.streams = append(at.streams, uint8(n))
		}
		if p.Pace != nil {
			at.schedule = p.Pace.Schedule(at.score(p.Seed))
		}
		g.parts = append(g.parts, at)
		g.phases = append(g.phases, p.phases(len(c.Parts) > 1)...)
	}
	g.Reset()
	return g, nil
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

// phases returns the phases of the part, cut at its end. A part with its own pace has no phases.
func (p *Part) phases(named bool) []Phase {
	if p.Pace != nil {
		return nil
	}
	var out []Phase
	from, to := p.Profile.stormFrom(), p.Profile.stormTo()
	for _, ph := range []Phase{{"baseline", 0, from}, {"storm", from, to}, {"drain", to, p.Profile.Length()}} {
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
	s.Part, s.Stream = p.number, p.streams[s.Stream]
	p.ok = s.At < p.end
}

// Next stores the next step in s; false at the end. It takes O(parts) and does not allocate.
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
	for _, r := range g.resources {
		out = append(out, r.gvr)
	}
	return out
}

// Phases returns the phases of all parts.
func (g *Generator) Phases() []Phase { return g.phases }

// Initial yields the objects that exist at the start, as ADDED steps at time 0.
func (g *Generator) Initial(yield func(Step) bool) {
	for _, p := range g.parts {
		for i, st := range p.engine.plan.streams {
			for k := range st.initial {
				if !yield(Step{Key: int32(k), Part: p.number, Stream: p.streams[i]}) {
					return
				}
			}
		}
	}
}

func (g *Generator) stream(s Step) *stream {
	p := g.parts[s.Part]
	return p.engine.plan.streams[slices.Index(p.streams, s.Stream)]
}

// Object returns a new struct of the object after an event, without a resourceVersion. Objects
// share the values that they point to, which must not be changed.
func (g *Generator) Object(s Step) runtime.Object { return g.stream(s).objects.object(s.Key, s.State) }

// Set returns the storms of the composition. Each event has its own object struct, which
// shares the values that it points to. A pod event takes about 1.3 kB. O(events).
func (c Composition) Set() (*Set, error) {
	g, err := c.Generator()
	if err != nil {
		return nil, err
	}
	set := &Set{Name: c.Name, Phases: g.phases, Faults: c.Faults}
	for i, r := range g.resources {
		s := &Storm{Name: set.Name, Resource: r.gvr, Kind: r.gvk}
		if i > 0 {
			s.Name += "-" + r.gvr.Resource
		}
		set.Storms = append(set.Storms, s)
	}
	// indexes has the KeyIndex of each key plus 1; 0 means not seen yet.
	indexes := map[*stream][]int32{}
	add := func(s Step) {
		out, from := set.Storms[s.Stream], g.stream(s)
		if s.Kind > Deleted {
			mark := map[Kind]MarkType{RelistStep: MarkRelist, ResyncStep: MarkResync}[s.Kind]
			out.Marks = append(out.Marks, Mark{After: uint64(len(out.Events)), Type: mark})
			return
		}
		if indexes[from] == nil {
			indexes[from] = make([]int32, from.objects.len())
		}
		index := &indexes[from][s.Key]
		if *index == 0 {
			out.Keys++
			*index = int32(out.Keys)
		}
		seq, o := uint64(len(out.Events)+1), from.objects.object(s.Key, s.State)
		o.(metav1.Object).SetResourceVersion(strconv.FormatUint(seq, 10)) // Generators make objects with metadata.
		o.GetObjectKind().SetGroupVersionKind(out.Kind)
		out.Events = append(out.Events, Event{
			Type: s.Kind.Type(), Seq: seq, At: s.At, Key: from.objects.key(s.Key), KeyIndex: *index - 1, Object: o,
		})
	}
	for s := range g.Initial {
		set.Storms[s.Stream].Initial++
		add(s)
	}
	for s := (Step{}); g.Next(&s); {
		add(s)
	}
	for _, s := range set.Storms {
		s.Marks = within(s.Marks, len(s.Events))
	}
	return set, nil
}
