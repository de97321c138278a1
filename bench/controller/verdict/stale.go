package verdict

import (
	"fmt"
	"slices"
	"time"

	"watchlab/bench/controller/record"
)

// staleWrites: a write names a version of its object that is more than [Limits].Stale changes old, each visible
// for [Limits].StaleFor; or an object is written more than [Limits].Repeats times with the same refused
// version, or created as often while it exists: without reading it again.
func staleWrites(p *record.Play, l Limits) Verdict {
	v := Verdict{Name: StaleWrite}
	type object struct{ resource, key string }
	versions := map[object][]*record.Change{} // in order of their versions
	for i := range p.Changes {
		c := &p.Changes[i]
		k := object{c.Resource.GroupResource().String(), c.Key}
		versions[k] = append(versions[k], c)
	}
	type attempt struct {
		object
		client string
		based  uint64
	}
	refused := map[attempt]int{}
	conflicts, old := 0, 0
	for i := range p.Accesses {
		a := &p.Accesses[i]
		if !a.Writes() || background(a) {
			continue
		}
		k := object{a.Resource.GroupResource().String(), a.Key}
		if a.Code == 409 {
			conflicts++
			at := attempt{k, a.Client, a.Based}
			if refused[at]++; refused[at] == l.Repeats+1 && (a.Based > 0 || a.Verb == "create" && a.Key != "") {
				v.Failed = true
				v.show(a.At, fmt.Sprintf("%s: %s of %s was refused %d times with the same version %d", a.Client, a.Verb, name(a), refused[at], a.Based))
			}
		}
		if a.Based == 0 {
			continue
		}
		all := versions[k]
		from, _ := slices.BinarySearchFunc(all, a.Based+1, func(c *record.Change, version uint64) int {
			return int(int64(c.Version) - int64(version))
		})
		missed := 0
		for _, c := range all[from:] {
			if c.At+l.StaleFor > a.At {
				break
			}
			missed++
		}
		if missed > l.Stale {
			v.Failed = true
			old++
			v.show(a.At, fmt.Sprintf("%s: %s of %s is based on version %d, %d changes ago (%v)", a.Client, a.Verb, name(a), a.Based, missed,
				(a.At-all[from].At).Round(time.Millisecond)))
		}
	}
	v.Text = fmt.Sprintf("%d conflicts; %d writes on versions more than %d changes old", conflicts, old, l.Stale)
	return v
}
