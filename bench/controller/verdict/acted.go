package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
)

// acted calls differs for objects of one content, whose names the server makes up, of which there are more at a time than
// without faults. A program that is late has seen other numbers of replicas: several are too many only if they are more than
// any number to or from which their owner was changed. Two are where there was one, unless that number is one of replicas.
func acted(free, o *Outcome, differs func(differing)) {
	if o.excused {
		return
	}
	common := commonWords(free, o)
	usual, crowds := free.crowdsOf(common), o.crowdsOf(common)
	for _, a := range slices.SortedFunc(maps.Keys(crowds), func(a, b alike) int { return cmp.Compare(crowds[a].at, crowds[b].at) }) {
		c, most := crowds[a], usual[a].most
		if c.most > most && most > 0 && !(c.asked && (c.scaled || most > 1)) {
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
	clients, all := p.Clients(), struck(p)
	born := map[record.ID]*record.Change{} // of objects that have taken the place of others
	gone := map[record.ID]bool{}
	for c := range record.Each(p.Changes) {
		switch id := c.ID(); {
		case c.Type == watch.Added && gone[id] && !clients[c.By]:
			born[id] = c
		case c.Type == watch.Deleted:
			// A fault kept it from all programs.
			if b := born[id]; b != nil && clients[c.By] && slices.ContainsFunc(all, func(w occurrence) bool {
				return w.Withholds() && w.Aims(b.Resource) && w.from <= b.At && c.At <= w.to
			}) {
				fail(differing{"", id, c.At, fmt.Sprintf("%s deleted %s, which had been created again %v before, unseen", c.By, id, (c.At - b.At).Round(time.Millisecond))})
			}
			delete(born, id)
			gone[id] = true
		}
	}
	v.Text = fmt.Sprintf("creates of what exists and deletes of what was created again: %d", n)
	return v
}

// Wedge judges a program that does nothing more after the last fault that kept changes from it, although it has not done what
// it does without faults.
func Wedge(free, o *Outcome, p *record.Play, all []Verdict) Verdict {
	v := Verdict{Name: Wedged}
	var over, last time.Duration
	for _, w := range struck(p) {
		if w.Withholds() {
			over = max(over, w.to)
		}
	}
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
