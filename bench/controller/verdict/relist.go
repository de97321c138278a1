package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/controller/record"
	"watchlab/bench/lab"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/fault"
)

// relists: a client asks for the initial state of what it watches, by lists or watches, more often than
// maxRelists times for each fault that hit a request for the resource, and once more than that; as often
// for each watch that it had open at a time. While a fault of a given length refuses requests, two more in a second
// are allowed. The requests of a process before the storm, and those of the
// minute after a restart, are its start. Lists without a watch of the same resource and namespace are no
// relists: a client may poll, or read past its cache.
func relists(p *record.Play) Verdict {
	v := Verdict{Name: Relists}
	faults, hits := strikes(p)
	retries := int(2 * refusing(p).Seconds())
	watchedBy := func(a *record.Access) watched { return watched{a.Client, a.Resource.GroupResource(), a.Key} }
	total := 0
	for _, set := range lab.GroupBy(slices.Collect(record.Each(p.Accesses)), watchedBy) {
		var open []edge
		var bytes int64
		var last time.Duration
		n := 0
		for _, a := range set {
			if a.Verb == "watch" && a.Code < 300 {
				open = append(open, edge{a.At, 1}, edge{a.At + a.Took, -1})
			}
			if a.State && a.At >= 0 && !starts(p, a) {
				n, bytes, last = n+1, bytes+a.Out, max(last, a.At)
			}
		}
		if len(open) == 0 {
			continue
		}
		total += n
		k := watchedBy(set[0])
		hits := faults[k.resource.Resource]
		if most := (maxRelists*(hits+1) + retries) * atOnce(open); n > most {
			v.Failed = true
			v.show(last, fmt.Sprintf("%s asked %d times for all %s (%.1f MB); faults that hit them: %d", k.client, n, k, float64(bytes)/1e6, hits))
		}
	}
	v.Text = fmt.Sprintf("lists or watches with the initial state during the play: %d; faults: %d", total, hits)
	return v
}

// strikes returns the number of occurrences that hit a request for a resource, by resource, and of all.
func strikes(p *record.Play) (byResource map[string]int, all int) {
	type strike struct {
		spec, occurrence int
		resource         string
	}
	byResource = map[string]int{}
	seen := map[strike]bool{}
	for in := range record.Each(p.Injections) {
		if in.Fault == fault.Drip || in.Fault == fault.Stall || in.Fault == fault.Latency || in.Fault == fault.DuplicateBookmark || in.Path == "" {
			continue
		}
		s := strike{in.Spec, in.Occurrence, ""}
		if !seen[s] {
			seen[s] = true
			all++
		}
		path, _ := wire.ParsePath(in.Path)
		s.resource = path.Resource.Resource
		if !seen[s] {
			seen[s] = true
			byResource[s.resource]++
		}
	}
	return byResource, all
}

// refusing is how long the plan refuses requests, as far as it names durations.
func refusing(p *record.Play) (sum time.Duration) {
	for _, f := range p.Faults {
		if f.Name != fault.Throttle && f.Name != fault.InternalError && f.Name != fault.Gone {
			continue
		}
		n := max(f.Count, 1)
		if f.Count == 0 && f.Every > 0 {
			n = int(p.Over / time.Duration(f.Every))
		}
		sum += time.Duration(n) * time.Duration(f.Duration)
	}
	return min(sum, p.Over)
}

// watched is what a client watches.
type watched struct {
	client   string
	resource schema.GroupResource
	key      string // namespace/ or empty
}

func (w watched) String() string {
	if w.key == "" {
		return w.resource.String()
	}
	return w.resource.String() + " of " + strings.TrimSuffix(w.key, "/")
}

// edge is the begin of a watch (+1) or its end (-1).
type edge struct {
	at time.Duration
	by int
}

// atOnce is the largest number of watches that were open at a time.
func atOnce(open []edge) int {
	slices.SortFunc(open, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	n, most := 0, 1
	for _, e := range open {
		n += e.by
		most = max(most, n)
	}
	return most
}

// starts reports whether an access belongs to the start of a process after a restart.
func starts(p *record.Play, a *record.Access) bool {
	return slices.ContainsFunc(p.Exits, func(e record.Exit) bool {
		return e.Client == a.Client && a.At >= e.At && a.At < e.At+time.Minute
	})
}
