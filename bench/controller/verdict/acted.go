package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// acted calls differs for objects of one content, whose names the server makes up, of which there are more at a time than
// without faults. A program that is late has seen other numbers of replicas: several are too many only if they are more than
// any number to or from which their owner was changed, and none is if the program has made the owner and given it so many.
func acted(free, o *Outcome, differs func(differing)) {
	if o.excused {
		return
	}
	common := commonWords(free, o)
	usual, crowds := free.crowdsOf(common), o.crowdsOf(common)
	for _, a := range slices.SortedFunc(maps.Keys(crowds), func(a, b alike) int { return cmp.Compare(crowds[a].at, crowds[b].at) }) {
		c, most := crowds[a], usual[a].most
		if c.most > most && !c.chosen && (most == 1 || most > 1 && !c.asked) {
			differs(differing{a.content, c.by, c.at, fmt.Sprintf("%s: %d with the same content at a time, without faults %d: %s", a.group, c.most, most, c.by)})
		}
	}
}

// Acted judges what a program did on the way, although it may have been undone later, by the outcome of the play without
// faults: an object that it made although there was one of its content, and one that it deleted although it had taken the place
// of another one, while a fault kept that from the program.
func Acted(free, o *Outcome, p *record.Play) Verdict {
	v := Verdict{Name: ActedStale}
	n := 0
	fail := func(d differing) {
		if !free.chance[d.kind] {
			v.Failed = true
			n++
			v.showObject(d.at, d.object, d.text)
		}
	}
	acted(free, o, fail)
	clients := p.Clients()
	born := map[record.ID]*record.Change{} // of objects that have taken the place of others
	gone := map[record.ID]bool{}
	for c := range record.Each(p.Changes) {
		switch id := c.ID(); {
		case c.Type == watch.Added && gone[id] && !clients[c.By]:
			born[id] = c
		case c.Type == watch.Deleted:
			if b := born[id]; b != nil && clients[c.By] && hidden(p, b, c.At) {
				fail(differing{"", id, c.At, fmt.Sprintf("%s deleted %s, which had been created again %v before, unseen", c.By, id, brief(c.At-b.At))})
			}
			delete(born, id)
			gone[id] = true
		}
	}
	v.Text = fmt.Sprintf("creates of what exists and deletes of what was created again: %d", n)
	return v
}

// struck visits the occurrences of the plan's faults, with the time of each.
func struck(p *record.Play, visit func(f *fault.Spec, from, to time.Duration)) {
	type occurrence struct{ spec, n int }
	seen := map[occurrence]bool{}
	for _, in := range p.Injections {
		if o := (occurrence{in.Spec, in.Occurrence}); in.Spec < len(p.Faults) && !seen[o] { // Others belong to the storm.
			seen[o] = true
			f := &p.Faults[in.Spec]
			visit(f, time.Duration(in.At), time.Duration(in.At)+f.Lasts())
		}
	}
}

// hidden reports whether a fault kept a change from all programs until a time.
func hidden(p *record.Play, c *record.Change, until time.Duration) (is bool) {
	struck(p, func(f *fault.Spec, from, to time.Duration) {
		is = is || f.Withholds() && f.Aims(c.Resource) && from <= c.At && until <= to
	})
	return is
}

// Wedge judges a program that does nothing more after the last fault that kept changes from it, although it has not done what
// it does without faults.
func Wedge(free, o *Outcome, p *record.Play, all []Verdict) Verdict {
	v := Verdict{Name: Wedged}
	var over time.Duration
	struck(p, func(f *fault.Spec, _, to time.Duration) {
		if f.Withholds() {
			over = max(over, to)
		}
	})
	var last time.Duration
	for a := range record.Each(p.Accesses) {
		if a.Writes() && !a.Background() {
			last = max(last, a.At)
		}
	}
	wrong := slices.ContainsFunc(all, func(v Verdict) bool { return v.Failed && (v.Name == Diverged || v.Name == LostUpdates) })
	v.Failed = over > 0 && wrong && last < over && o.writes < free.writes
	v.Text = fmt.Sprintf("writes: %d, without faults %d", o.writes, free.writes)
	if over > 0 && last < over {
		v.Text += fmt.Sprintf("; none after %.1f s, when the last fault ended", over.Seconds())
	}
	return v
}
