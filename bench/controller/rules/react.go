package rules

import (
	"fmt"
	"slices"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/controller/record"
)

// Judge returns the events that ask for an answer, rule by rule, in the order of the changes. An event belongs to one
// reaction of each rule that it matches. The cost is linear in changes and accesses, but for the search of an answer.
//
// It also returns the violations, rule by rule: events that a rule with within expects to be answered in time and that were
// not, unless their target is gone or the play ended before; events that must not come; and objects whose final state is
// not what a rule says. An expression that fails matches nothing, and is a violation, too.
func (r *Rules) Judge(p *record.Play) (reactions []Reaction, violations []Violation) {
	x := newIndex(p)
	for i := range r.rules {
		re, late := x.react(&r.rules[i])
		reactions, violations = append(reactions, re...), append(violations, late...)
	}
	for i := range r.nevers {
		violations = append(violations, x.happened(&r.nevers[i])...)
	}
	return reactions, append(violations, r.final(x)...)
}

// Unmet reports whether [Rules.Judge] would find a final state that is not what a rule says.
func (r *Rules) Unmet(p *record.Play) bool { return len(r.finals) > 0 && len(r.final(newIndex(p))) > 0 }

// react returns the reactions to a rule, and the violations of its limit and of its expression.
func (x *index) react(r *rule) ([]Reaction, []Violation) {
	var targets []*target
	for i := range r.expect {
		targets = append(targets, x.target(&r.expect[i]))
	}
	var reactions []Reaction
	var violations []Violation
	failed := false
	for c := range record.Each(x.play.Changes) {
		ok, err := r.matches(c)
		if err != nil {
			// One is enough: the others fail alike.
			if !failed {
				violations = append(violations, Violation{r.name, c.ID().String(), "when: " + err.Error(), c})
			}
			failed = true
			continue
		}
		if !ok {
			continue
		}
		object := metaOf(c.Object)
		if object == nil {
			continue
		}
		var answer *record.Access
		asks, alive := false, false
		for _, t := range targets {
			a, exists, isAlive := t.find(c, object)
			asks, alive = asks || exists, alive || isAlive
			if a != nil && (answer == nil || a.At < answer.At) {
				answer = a
			}
		}
		if !asks {
			continue
		}
		reaction := Reaction{Rule: r.name, Event: c, Answer: answer, Phase: x.phase(c.Intended)}
		if answer != nil {
			reaction.Latency = answer.At - c.Intended
		}
		reactions = append(reactions, reaction)
		if text := x.late(r, &reaction, alive); text != "" {
			violations = append(violations, Violation{r.name, c.ID().String(), text, c})
		}
	}
	return reactions, violations
}

// late says how a reaction violates the rule's limit; empty if it does not.
func (x *index) late(r *rule, reaction *Reaction, alive bool) string {
	switch {
	case r.within == 0:
	case reaction.Answer != nil && reaction.Latency > r.within:
		return fmt.Sprintf("answer (%s) after %v, want within %v", r.expects, reaction.Latency.Round(time.Millisecond), r.within)
	case reaction.Answer == nil && alive && x.play.End-reaction.Event.Intended > r.within:
		return fmt.Sprintf("no answer (%s), want within %v", r.expects, r.within)
	}
	return ""
}

// matches reports whether a change is an event of the rule.
func (r *rule) matches(c *record.Change) (bool, error) {
	switch {
	case c.Intended < 0, !r.counts(c.By), len(r.after.types) > 0 && !slices.Contains(r.after.types, c.Type):
		return false, nil
	case !r.after.resource.matches(c.Resource.GroupResource()):
		return false, nil
	case c.Type == watch.Modified && r.after.resource == "*" && heartbeat(c.Before, c.Object):
		return false, nil
	case !holdAll(r.after.fields, c.Object):
		return false, nil
	case len(r.after.fields) > 0 && c.Type == watch.Modified && c.Before != nil && holdAll(r.after.fields, c.Before):
		return false, nil
	case r.when == nil:
		return true, nil
	}
	object, err := plain(c.Object)
	if err != nil {
		return false, err
	}
	before, err := plain(c.Before)
	if err != nil {
		return false, err
	}
	return r.when.holds(object, before)
}

// counts reports whether the changes of a client, or of another source, are events.
func (r *rule) counts(client string) bool {
	switch client {
	case record.ByManifest:
		return false
	case "", record.ByStorm, record.ByWorkload, record.ByLifecycle:
		return r.by == nil || slices.Contains(r.by, client)
	}
	return slices.Contains(r.by, controllers)
}

// target finds the writes that a form of expect asks for, by what an event and a write share: the object that is written,
// the UID of its owner, or its name. The lists hold the writes by arrival.
type target struct {
	*answer
	x      *index
	writes map[any][]int32 // by record.ID, types.UID or value
}

// value is a name that an event and a write share.
type value struct {
	text, namespace string
}

// anywhere is the namespace of all writes, for events of objects without a namespace.
const anywhere = "*"

func (x *index) target(a *answer) *target {
	t := &target{answer: a, x: x, writes: map[any][]int32{}}
	for _, i := range x.writes {
		w := &x.play.Accesses[i]
		k := w.ID()
		if !a.asksFor(w) || !a.resource.matches(k.Resource) {
			continue
		}
		add := func(shared any) { t.writes[shared] = append(t.writes[shared], i) }
		switch namespace, name, _ := cache.SplitMetaNamespaceKey(k.Key); a.relation {
		case sameName:
			add(value{name, namespace})
			add(value{name, anywhere})
		case itOwns:
			if m := x.at(k, w.At+w.Took); m != nil {
				for _, o := range x.owners(m) {
					add(o.uid)
				}
			}
		default:
			add(k)
		}
	}
	return t
}

// asksFor reports whether a write has the verb and the subresource.
func (a *answer) asksFor(w *record.Access) bool {
	switch {
	case a.verb == "delete" && a.subresource == "" && w.Verb == "create" && w.Subresource == "eviction":
		return true
	case a.verb != "write" && a.verb != w.Verb:
		return false
	case a.verb == "write" && a.subresource == "":
		return true
	}
	return a.subresource == w.Subresource
}

// find returns the first write that answers an event; whether the event has a target at all, and whether
// that still exists in the end.
func (t *target) find(c *record.Change, object metav1.Object) (first *record.Access, exists, alive bool) {
	look := func(shared any, lives bool) {
		exists, alive = true, alive || lives
		accesses, list := t.x.play.Accesses, t.writes[shared]
		n := sort.Search(len(list), func(i int) bool { return accesses[list[i]].At >= c.At })
		if n < len(list) && (first == nil || accesses[list[n]].At < first.At) {
			first = &accesses[list[n]]
		}
	}
	k := c.ID()
	switch namespace, name, _ := cache.SplitMetaNamespaceKey(k.Key); t.relation {
	case itself:
		look(k, !t.x.gone(k))
	case itsOwner, ownsIt:
		for _, o := range t.x.related(t.answer, object) {
			look(o.ID, !t.x.gone(o.ID))
		}
	case itOwns:
		if uid := object.GetUID(); uid != "" {
			look(uid, !t.x.gone(k))
		}
	case sameName:
		if namespace == "" {
			look(value{name, anywhere}, true)
		} else {
			look(value{name, namespace}, true)
			look(value{text: name}, true)
		}
	}
	return first, exists, alive
}
