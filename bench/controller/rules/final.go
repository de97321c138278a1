package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
)

// happened returns the events that must not come.
func (x *index) happened(n *never) (out []Violation) {
	for c := range record.Each(x.play.Changes) {
		ok, err := n.matches(c)
		if err != nil {
			return append(out, Violation{n.name, c.ID().String(), "when: " + err.Error(), c})
		}
		if !ok {
			continue
		}
		v := Violation{n.name, c.ID().String(), fmt.Sprintf("%s by %s", c.Type, c.By), c}
		if n.while != nil {
			k, there := x.there(n.while, c)
			if !there {
				continue
			}
			v.Text += " while " + k.String() + " exists"
		}
		out = append(out, v)
	}
	return out
}

// there returns the target of an event that exists at its time.
func (x *index) there(a *answer, c *record.Change) (record.ID, bool) {
	m := metaOf(c.Object)
	if m == nil {
		return record.ID{}, false
	}
	all := x.related(a, m)
	if a.relation == sameName {
		all = nil
		for k := range x.objects {
			if a.resource.matches(k.Resource) && (k.Key == c.Key || k.Key == m.GetName() || c.Key == strings.TrimPrefix(k.Key, m.GetNamespace()+"/")) {
				all = append(all, owner{ID: k})
			}
		}
	}
	for _, o := range all {
		changes := x.objects[o.ID]
		i := sort.Search(len(changes), func(i int) bool { return x.play.Changes[changes[i]].At > c.At })
		if i == 0 {
			continue
		}
		last := &x.play.Changes[changes[i-1]]
		if m := metaOf(last.Object); last.Type != watch.Deleted && m != nil && m.GetDeletionTimestamp() == nil && (o.uid == "" || o.uid == m.GetUID()) {
			return o.ID, true
		}
	}
	return record.ID{}, false
}

func (r *Rules) final(x *index) (out []Violation) {
	if len(r.finals) == 0 {
		return nil
	}
	f := x.final()
	for i := range r.finals {
		out = append(out, f.check(&r.finals[i])...)
	}
	return out
}

// finalState is the state at the end.
type finalState struct {
	*index
	keys    []record.ID        // of all objects, sorted
	written map[record.ID]bool // their status, by a controller
}

func (x *index) final() *finalState {
	f := &finalState{index: x, written: map[record.ID]bool{}}
	f.keys = slices.Collect(maps.Keys(x.objects))
	slices.SortFunc(f.keys, func(a, b record.ID) int {
		return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource), cmp.Compare(a.Key, b.Key))
	})
	for _, i := range x.writes {
		if a := &x.play.Accesses[i]; a.Subresource == "status" {
			f.written[a.ID()] = true
		}
	}
	return f
}

func (f *finalState) check(r *final) (out []Violation) {
	var owned *ownedCount
	if r.owns != nil {
		owned = f.countOwned(r.owns)
		out = append(out, owned.failed...)
	}
	for _, k := range f.keys {
		if !r.each.matches(k.Resource) || f.gone(k) || r.written && !f.written[k] {
			continue
		}
		last := f.last(k)
		v := Violation{Rule: r.name, Object: k.String(), Last: last}
		text, err := f.judge(r, last, owned)
		if err != nil {
			text = err.Error()
		}
		if text == "" {
			continue
		}
		v.Text = text
		if owned != nil {
			if m := metaOf(last.Object); m != nil {
				if other := owned.last[m.GetUID()]; other != nil && other.At > last.At {
					v.Last = other
				}
			}
		}
		out = append(out, v)
	}
	return out
}

// judge returns what is wrong with an object, and "" for nothing.
func (f *finalState) judge(r *final, last *record.Change, owned *ownedCount) (string, error) {
	object, err := plain(last.Object)
	if err != nil {
		return "", err
	}
	if ok, err := r.where.holds(object); !ok || err != nil {
		return "", err
	}
	var wrong []string
	if ok, err := r.has.holds(object); err != nil {
		return "", err
	} else if !ok {
		wrong = append(wrong, failure(r.has.query, object))
	}
	if m := metaOf(last.Object); owned != nil && m != nil {
		want, err := r.owns.count.number(object)
		if err != nil {
			return "", err
		}
		if n := owned.count[m.GetUID()]; n != want {
			wrong = append(wrong, fmt.Sprintf("%d %s, want %d", n, r.owns.resource, want))
		}
	}
	return strings.Join(wrong, "; "), nil
}

// ownedCount counts owned objects by the UIDs of their owners.
type ownedCount struct {
	count  map[types.UID]int
	last   map[types.UID]*record.Change // of an owned object, those that are gone included
	failed []Violation
}

func (f *finalState) countOwned(o *owns) *ownedCount {
	out := &ownedCount{count: map[types.UID]int{}, last: map[types.UID]*record.Change{}}
	for _, k := range f.keys {
		if !o.resource.matches(k.Resource) {
			continue
		}
		c := f.last(k)
		m := metaOf(c.Object)
		if m == nil {
			continue
		}
		owners := f.owners(m)
		if len(owners) == 0 {
			continue
		}
		counts := c.Type != watch.Deleted
		if counts && o.where != nil {
			object, err := plain(c.Object)
			if err == nil {
				counts, err = o.where.holds(object)
			}
			if err != nil {
				out.failed = append(out.failed, Violation{"owns " + string(o.resource), k.String(), err.Error(), c})
				continue
			}
		}
		for _, owner := range owners {
			if counts {
				out.count[owner.uid]++
			}
			if last := out.last[owner.uid]; last == nil || c.At > last.At {
				out.last[owner.uid] = c
			}
		}
	}
	return out
}
