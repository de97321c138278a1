package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// crowd is how many objects of a group exist at once, of one owner, without those that are marked for deletion or have
// run to their end.
type crowd struct {
	most int
	at   time.Duration
	last *record.Change // that made it most
}

// crowds returns the largest numbers, by group. Objects that a user names stand for themselves and are not counted.
func crowds(p *record.Play) map[group]crowd {
	type family struct {
		group
		owner types.UID
	}
	order := make([]*record.Change, 0, len(p.Changes))
	for i := range p.Changes {
		if !p.Changes[i].Background() {
			order = append(order, &p.Changes[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *record.Change) int { return cmp.Compare(a.At, b.At) })
	out, n, counted := map[group]crowd{}, map[family]int{}, map[record.ID]bool{}
	for _, c := range order {
		m, ok := c.Object.(metav1.Object)
		if !ok {
			continue
		}
		f := family{group: groupOf(c.Resource.GroupResource(), m)}
		if f.group.owner == "" {
			continue
		}
		for _, ref := range m.GetOwnerReferences() {
			f.owner = ref.UID
		}
		lives := c.Type != watch.Deleted && m.GetDeletionTimestamp() == nil
		if pod, ok := c.Object.(*corev1.Pod); ok && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
			lives = false
		}
		switch id := c.ID(); {
		case lives && !counted[id]:
			counted[id] = true
			if n[f]++; n[f] > out[f.group].most {
				out[f.group] = crowd{n[f], c.At, c}
			}
		case !lives && counted[id]:
			delete(counted, id)
			n[f]--
		}
	}
	return out
}

// Acted judges what a program did on the way, by the outcome of the play without faults: a create when as many objects
// of one owner existed as ever without faults, and a delete of an object that had taken the place of another one while a fault
// kept that from the program.
func Acted(free, o *Outcome, p *record.Play) Verdict {
	v := Verdict{Name: ActedStale}
	clients := map[string]bool{}
	for i := range p.Accesses {
		clients[p.Accesses[i].Client] = true
	}
	n := 0
	fail := func(at time.Duration, id record.ID, text string) {
		v.Failed = true
		n++
		v.showObject(at, id, text)
	}
	for _, g := range slices.SortedFunc(maps.Keys(o.crowds), group.compare) {
		c, usual := o.crowds[g], free.crowds[g]
		if usual.most > 0 && c.most > usual.most && clients[c.last.By] {
			fail(c.at, c.last.ID(), fmt.Sprintf("%s created %s as number %d of %s, without faults at most %d", c.last.By, c.last.ID(), c.most, g, usual.most))
		}
	}
	born := map[record.ID]*record.Change{} // of objects that have taken the place of others
	gone := map[record.ID]bool{}
	for i := range p.Changes {
		c := &p.Changes[i]
		switch id := c.ID(); {
		case c.Type == watch.Added && gone[id] && !clients[c.By]:
			born[id] = c
		case c.Type == watch.Deleted:
			if b := born[id]; b != nil && clients[c.By] && hidden(p, b, c.At) {
				fail(c.At, id, fmt.Sprintf("%s deleted %s, which had been created again %v before, unseen", c.By, id, brief(c.At-b.At)))
			}
			delete(born, id)
			gone[id] = true
		}
	}
	v.Text = fmt.Sprintf("creates of what exists and deletes of what was created again: %d", n)
	return v
}

// hidden reports whether a fault kept a change from all programs until a time.
func hidden(p *record.Play, c *record.Change, until time.Duration) bool {
	for _, in := range p.Injections {
		k := slices.IndexFunc(p.Faults, func(f fault.Spec) bool { return f.Name == in.Fault && f.Withholds() })
		if k < 0 {
			continue
		}
		f := &p.Faults[k]
		if at := time.Duration(in.At); f.Aims(c.Resource) && at <= c.At && until <= at+time.Duration(f.Duration) {
			return true
		}
	}
	return false
}

// Wedge judges a program that does nothing more after the last fault that kept changes from it, although it has not done what
// it does without faults.
func Wedge(free, o *Outcome, p *record.Play, all []Verdict) Verdict {
	v := Verdict{Name: Wedged}
	var over time.Duration
	for _, in := range p.Injections {
		if k := slices.IndexFunc(p.Faults, func(f fault.Spec) bool { return f.Name == in.Fault && f.Withholds() }); k >= 0 {
			over = max(over, time.Duration(in.At)+time.Duration(p.Faults[k].Duration))
		}
	}
	var last time.Duration
	for i := range p.Accesses {
		if a := &p.Accesses[i]; a.Writes() && !a.Background() {
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
