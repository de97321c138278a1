package profile

import (
	"slices"
	"strings"
)

// Graph is the call tree of one profile, or of two in one.
type Graph struct {
	Kind   string
	Unit   string
	Before *Total
	After  Total

	Root *Frame
}

// Frame is a function where a certain way of calls led to it.
type Frame struct {
	Name, Short string

	Flat, Cum Pair

	Children []*Frame
}

// Tree makes the graph. before may be nil; then there is just one profile. The
// errors are those of [Compare].
func Tree(before, after *Source, o Options) (*Graph, error) {
	b, a, err := sides(before, after, o)
	if err != nil {
		return nil, err
	}
	g := &Graph{Kind: a.kind.Type, Unit: unitOf(a.kind, a.perEvent), After: totalOf(a), Root: &Frame{Name: "all", Short: "all"}}
	if b != nil {
		total := totalOf(b)
		g.Before = &total
		g.Root.grow(b, false, o)
	}
	g.Root.grow(a, true, o)
	if b != nil {
		g.Root.judge()
	}
	return g, nil
}

func (f *Frame) grow(s *side, after bool, o Options) {
	for _, sample := range s.samples {
		v := float64(sample.Value[s.at])
		at := f
		at.Cum.add(s, after, v)
		step := func(name string) {
			at = at.child(name)
			at.Cum.add(s, after, v)
		}
		if o.By != "" {
			step(labelOf(sample, o.By))
		}
		frames(sample, step)
		at.Flat.add(s, after, v)
	}
}

// child finds the child of that name, or makes it.
func (f *Frame) child(name string) *Frame {
	i, found := slices.BinarySearchFunc(f.Children, name, func(c *Frame, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		f.Children = slices.Insert(f.Children, i, &Frame{Name: name, Short: Short(name)})
	}
	return f.Children[i]
}

func (f *Frame) judge() {
	f.Flat.judge()
	f.Cum.judge()
	for _, c := range f.Children {
		c.judge()
	}
}
