package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"watchlab/bench/controller/record"
)

// hotLoop: a client writes one object again and again, and nothing else happens in its namespace: more than
// [Limits].Useless writes in a row that change nothing, or more than [Limits].Restless that change it.
// A run of writes ends with a change by anybody else to any object of the namespace, or of the cluster for an
// object without one. Leases and events are not counted.
func hotLoop(p *record.Play, l Limits) Verdict {
	v := Verdict{Name: HotLoop}
	others := causes(p)
	type object struct{ client, name string }
	type run struct {
		first, last time.Duration
		n, most     int
		useless     bool
		at          time.Duration // of the longest run
	}
	runs := map[object]*run{}
	useless, writes := 0, 0
	ordered := slices.Clone(p.Accesses)
	slices.SortStableFunc(ordered, func(a, b record.Access) int { return int(a.At - b.At) })
	var loops []object
	for i := range ordered {
		a := &ordered[i]
		if !a.Writes() || background(a) || a.Code >= 300 || a.Verb == "create" {
			continue
		}
		writes++
		if a.Unchanged {
			useless++
		}
		k := object{a.Client, name(a)}
		r := runs[k]
		if r == nil {
			r = &run{}
			runs[k] = r
		}
		if r.n == 0 || r.useless != a.Unchanged || others.between(a, r.last, a.At) {
			r.n, r.first, r.useless = 0, a.At, a.Unchanged
		}
		r.n++
		r.last = a.At
		limit := l.Restless
		if a.Unchanged {
			limit = l.Useless
		}
		if r.n > limit {
			if r.most == 0 {
				loops = append(loops, k)
			}
			if r.n > r.most {
				r.most, r.at = r.n, r.first
			}
		}
	}
	v.Failed = len(loops) > 0
	v.Text = fmt.Sprintf("%d of %d writes changed nothing; %d objects were written in a loop", useless, writes, len(loops))
	for _, k := range loops {
		r := runs[k]
		v.show(r.at, fmt.Sprintf("%s wrote %s %d times in a row, and nothing else changed", k.client, k.name, r.most))
	}
	return v
}

// changes are the times of changes by origin and namespace.
type changes map[string]map[string][]time.Duration

// causes indexes the changes of a play that may cause a write.
func causes(p *record.Play) changes {
	out := changes{}
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Resource.Resource == "leases" || c.Resource.Resource == "events" {
			continue
		}
		namespace, _, ok := strings.Cut(c.Key, "/")
		if !ok {
			namespace = ""
		}
		of := out[namespace]
		if of == nil {
			of = map[string][]time.Duration{}
			out[namespace] = of
		}
		of[c.By] = append(of[c.By], c.At)
	}
	for _, of := range out {
		for _, times := range of {
			slices.Sort(times)
		}
	}
	return out
}

// between reports whether anybody but the client changed something that the write may answer.
func (c changes) between(a *record.Access, from, to time.Duration) bool {
	namespace, _, ok := strings.Cut(a.Key, "/")
	for name, of := range c {
		// An object without a namespace may answer all.
		if ok && name != namespace && name != "" {
			continue
		}
		for by, times := range of {
			if by == a.Client {
				continue
			}
			i, _ := slices.BinarySearch(times, from)
			if i < len(times) && times[i] <= to {
				return true
			}
		}
	}
	return false
}
