package storm

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Generator yields the events of a profile in order of time.
//
//	g, err := profile.Generator(1)
//	for s := (storm.Step{}); g.Next(&s); {
//		use(s.At, s.Type, s.Key)
//	}
//
// Initial objects are not events; see [Generator.Initial]. A Generator is not safe for
// concurrent use.
//
// It merges the sorted steps of all lifecycles with the series, which it computes step by step.
type Generator struct {
	plan       *plan
	phases     []Phase
	lifecycles []Step // those left
	series     []series
}

// Generator returns a generator. The seed decides everything random. The error is that of
// [Profile.Validate]. O(keys).
func (p *Profile) Generator(seed int64) (*Generator, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	random := mix(uint64(seed))
	plan := p.kind.plan(p, namer{p.Nodes}, random)
	plan.end = p.Length()
	from, to := p.stormFrom(), p.stormTo()
	g := &Generator{plan: plan, lifecycles: plan.lifecycleSteps(random)}
	g.phases = slices.DeleteFunc([]Phase{{"baseline", 0, from}, {"storm", from, to}, {"drain", to, plan.end}},
		func(ph Phase) bool { return ph.To <= ph.From })
	for i := range plan.updates {
		s := newSeries(&plan.updates[i], mix(random+uint64(i)))
		s.rng, s.at = mix(random^uint64(i+1)<<32), s.from
		switch {
		case s.n == 0 || s.atOnce == 0 && s.perSecond <= 0:
			s.at = never
		case s.atOnce == 0:
			s.next(plan.end)
		}
		g.series = append(g.series, s)
	}
	return g, nil
}

// Resources returns the resources of the streams. Pipelines play the first one by default.
func (g *Generator) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, s := range g.plan.streams {
		out = append(out, s.resource.gvr)
	}
	return out
}

// Initial yields the objects that exist at the start, as ADDED steps at time 0.
func (g *Generator) Initial(yield func(Step) bool) {
	for i, st := range g.plan.streams {
		for k := range st.initial {
			if !yield(Step{Type: watch.Added, Key: int32(k), Stream: uint8(i)}) {
				return
			}
		}
	}
}

// Set returns the storms of the profile. The seed decides everything random. Each event has its own
// object struct, which shares the values that it points to. A pod event takes about 1.3 kB. O(events).
func (p *Profile) Set(seed int64) (*Set, error) {
	g, err := p.Generator(seed)
	if err != nil {
		return nil, err
	}
	set := &Set{Name: p.Name(), Phases: g.phases}
	streams := g.plan.streams
	indexes := make([][]int32, len(streams)) // KeyIndex of each key plus 1; 0 means not seen yet
	for i, st := range streams {
		s := &Storm{Name: set.Name, Resource: st.resource.gvr, Kind: st.resource.gvk}
		if i > 0 {
			s.Name += "-" + s.Resource.Resource
		}
		set.Storms, indexes[i] = append(set.Storms, s), make([]int32, st.objects.len())
	}
	add := func(s Step) {
		out, from := set.Storms[s.Stream], streams[s.Stream]
		index := &indexes[s.Stream][s.Key]
		if *index == 0 {
			out.Keys++
			*index = int32(out.Keys)
		}
		seq, o := uint64(len(out.Events)+1), from.objects.object(s.Key, s.State)
		o.(metav1.Object).SetResourceVersion(strconv.FormatUint(seq, 10)) // Generators make objects with metadata.
		o.GetObjectKind().SetGroupVersionKind(out.Kind)
		out.Events = append(out.Events, Event{
			Type: s.Type, Seq: seq, At: s.At, Key: from.objects.key(s.Key), KeyIndex: *index - 1, Object: o,
		})
	}
	for s := range g.Initial {
		set.Storms[s.Stream].Initial++
		add(s)
	}
	first, marks := set.Storms[0], g.plan.marks
	for s := (Step{}); g.Next(&s); {
		for len(marks) > 0 && marks[0].at <= s.At {
			first.Marks = append(first.Marks, Mark{After: uint64(len(first.Events)), Type: marks[0].typ})
			marks = marks[1:]
		}
		add(s)
	}
	first.Marks = within(first.Marks, len(first.Events))
	return set, nil
}
