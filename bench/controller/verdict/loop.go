package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/bench/lab"
)

// hotLoop: at the end of the play a client still writes one object again and again, without a cause: more than
// maxUseless writes in a row that change nothing, or more than maxRestless that change it, with
// pauses of maxPause at most.
//
// Any change of any object is a cause of a write without a change: a controller may write an object once more
// after each event in its queue. The controllers' modifications are no causes of a write with a change, since
// two objects, or two replicas, may drive each other. Leases and events are not counted.
//
// A loop that ends is a miss: it cannot be told from a queue that a rate limit of the client works off.
func hotLoop(p *record.Play) Verdict {
	v := Verdict{Name: HotLoop}
	all, external := causes(p)
	type object struct{ client, name string }
	var writes []*record.Access
	useless, loops := 0, 0
	for a := range record.Each(p.Arrivals()) {
		if !a.Writes() || a.Background() || a.Code >= 300 || a.Verb == "create" {
			continue
		}
		writes = append(writes, a)
		if a.Unchanged {
			useless++
		}
	}
	for _, set := range lab.GroupBy(writes, func(a *record.Access) object { return object{a.Client, name(a)} }) {
		last, first, n := set[0], set[0], 0 // n writes from first to last in a row
		for _, a := range set {
			list := external
			if a.Unchanged {
				list = all
			}
			if last.Unchanged != a.Unchanged || a.At-last.At > maxPause || between(list, last.At, a.At) {
				first, n = a, 0
			}
			n++
			last = a
		}
		most, what := maxRestless, "back and forth"
		if last.Unchanged {
			most, what = maxUseless, "without a change"
		}
		if n <= most || p.End-last.At > maxPause {
			continue
		}
		loops++
		v.Failed = true
		if !last.Unchanged {
			what += changing(p, last.ID(), last.At)
		}
		v.show(first.At, fmt.Sprintf("%s wrote %s %d times in a row, %s, in %.1f s, and nothing else happened",
			last.Client, name(last), n, what, (last.At-first.At).Seconds()))
	}
	v.Text = fmt.Sprintf("%d of %d writes changed nothing; objects written in a loop: %d", useless, len(writes), loops)
	return v
}

// changing names the fields that the last change of an object before a time has changed.
func changing(p *record.Play, o record.ID, by time.Duration) string {
	for i := len(p.Changes) - 1; i >= 0; i-- {
		c := &p.Changes[i]
		if c.ID() != o || c.At > by+maxPause || c.Before == nil {
			continue
		}
		var texts []string
		Changed(c, func(path string, before, after any) {
			name := strings.TrimPrefix(path, ".metadata.")
			if name != "resourceVersion" && name != "generation" && !strings.HasPrefix(name, "managedFields") && len(texts) < 3 {
				texts = append(texts, fmt.Sprintf("%s: %s to %s", path, short(before), short(after)))
			}
		})
		return fmt.Sprintf(" (%s)", strings.Join(texts, "; "))
	}
	return ""
}

// causes returns the sorted times of all changes, and of those that no controller's modification is.
func causes(p *record.Play) (all, external []time.Duration) {
	clients := p.Clients()
	for c := range record.Each(p.Changes) {
		if c.Background() {
			continue
		}
		all = append(all, c.At)
		if c.Type != watch.Modified || !clients[c.By] {
			external = append(external, c.At)
		}
	}
	slices.Sort(all)
	slices.Sort(external)
	return all, external
}

// between reports whether one of the sorted times is after from, up to a time.
func between(times []time.Duration, from, to time.Duration) bool {
	i, _ := slices.BinarySearch(times, from+1)
	return i < len(times) && times[i] <= to
}
