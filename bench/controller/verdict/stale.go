package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// staleWrites: a write names a version of its object that is more than maxStale changes old, or is refused
// for its old version more than maxRepeats times in a row. Only changes count that the client had
// staleAfter to learn of, and the longest stall or drip of the plan besides; while it has no watch of
// the resource open and has had one, it waits for its turn to open the next. A create of an object that exists
// counts for nothing: it is a way to make sure that the object exists.
func staleWrites(p *record.Play) Verdict {
	v := Verdict{Name: StaleWrite}
	versions := map[record.ID][]*record.Change{} // in order of their versions
	for c := range record.Each(p.Changes) {
		k := c.ID()
		versions[k] = append(versions[k], c)
	}
	type attempt struct {
		record.ID
		client string
		based  uint64
	}
	refused := map[attempt]int{}
	conflicts, old := 0, 0
	news := newNews(p)
	for a := range record.Each(p.Accesses) {
		if !a.Writes() || a.Background() {
			continue
		}
		if a.Conflict() {
			conflicts++
		}
		if a.Based == 0 {
			continue
		}
		k := a.ID()
		all := versions[k]
		from, _ := slices.BinarySearchFunc(all, a.Based+1, func(c *record.Change, version uint64) int {
			return cmp.Compare(c.Version, version)
		})
		missed := 0
		for _, c := range all[from:] {
			if !news.known(source{a.Client, k.Resource}, c.At, a.At) {
				break
			}
			missed++
		}
		if missed > maxStale {
			v.Failed = true
			old++
			v.show(a.At, fmt.Sprintf("%s: %s of %s is based on version %d, %d changes ago (%v)", a.Client, a.Verb, name(a), a.Based, missed,
				(a.At-all[from].At).Round(time.Millisecond)))
		}
		if a.Conflict() && missed > 0 {
			at := attempt{k, a.Client, a.Based}
			if refused[at]++; refused[at] == maxRepeats+1 {
				v.Failed = true
				v.show(a.At, fmt.Sprintf("%s: %s of %s was refused %d times with the same version %d, which changed %v ago", a.Client, a.Verb, name(a),
					refused[at], a.Based, (a.At-all[from].At).Round(time.Millisecond)))
			}
		}
	}
	v.Text = fmt.Sprintf("conflicts: %d; writes on versions more than %d changes old: %d", conflicts, maxStale, old)
	return v
}

// news tells when a client must have learned of a change.
type news struct {
	takes    time.Duration
	watches  map[source][]span // in order of their begin
	occurred []occurrence      // in order of their begin
}

// occurrence is an occurrence of a fault.
type occurrence struct {
	*fault.Spec
	span
}

type source struct {
	client   string
	resource schema.GroupResource
}

type span struct{ from, to time.Duration }

// struck returns the occurrences of the plan's faults, in order of their begin.
func struck(p *record.Play) (all []occurrence) {
	type number struct{ spec, n int }
	seen := map[number]bool{}
	for _, in := range p.Injections {
		o, at := number{in.Spec, in.Occurrence}, time.Duration(in.At)
		if in.Spec < len(p.Faults) && !seen[o] { // Others belong to the storm.
			seen[o] = true
			f := &p.Faults[in.Spec]
			all = append(all, occurrence{f, span{at, at + f.Lasts()}})
		}
	}
	slices.SortFunc(all, func(a, b occurrence) int { return cmp.Compare(a.from, b.from) })
	return all
}

func newNews(p *record.Play) *news {
	n := &news{takes: staleAfter, watches: map[source][]span{}, occurred: struck(p)}
	for _, f := range p.Faults {
		if f.Withholds() {
			n.takes = max(n.takes, staleAfter+f.Lasts())
		}
	}
	for a := range record.Each(p.Accesses) {
		if a.Verb == "watch" && a.Code < 300 {
			k := source{a.Client, a.Resource.GroupResource()}
			n.watches[k] = append(n.watches[k], span{a.At, a.At + a.Took})
		}
	}
	for _, spans := range n.watches {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	return n
}

// known reports whether a client must have learned of a change by a time.
func (n *news) known(of source, changed, by time.Duration) bool {
	spans := n.watches[of]
	if len(spans) == 0 {
		return changed+n.takes <= by
	}
	return slices.ContainsFunc(spans, func(s span) bool { return max(s.from, changed)+n.takes <= min(s.to, by) })
}

// seen reports whether a client could have learned of a change by a time: its watch was open and nothing held it back,
// for a moment if it was open before, since the answer to it may have been on its way. Who has no watch may look at any time.
func (n *news) seen(of source, changed, by time.Duration) bool {
	spans := n.watches[of]
	return len(spans) == 0 || slices.ContainsFunc(spans, func(s span) bool {
		takes := moment
		if s.from >= changed {
			takes = 0
		}
		from, to := max(s.from, changed), min(s.to, by)
		for _, w := range n.occurred {
			if w.to <= from || !w.Withholds() || !w.Aims(of.resource.WithVersion("")) || w.Client != "" && w.Client != of.client || w.Name == fault.OldView && s.from < w.from {
				continue
			}
			if min(w.from, to)-from >= takes && w.from > from {
				return true
			}
			from = w.to
		}
		return from < to && to-from >= takes
	})
}
