package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/controller/record"
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
	counts := map[watched]*watching{}
	var order []watched
	for a := range record.Each(p.Accesses) {
		if !a.State && a.Verb != "watch" {
			continue
		}
		k := watched{a.Client, a.Resource.GroupResource(), a.Key}
		c := counts[k]
		if c == nil {
			c = &watching{}
			counts[k] = c
			order = append(order, k)
		}
		c.add(p, a)
	}
	total := 0
	for _, k := range order {
		c := counts[k]
		if len(c.open) == 0 {
			continue
		}
		total += c.relists
		hits := faults[k.resource.Resource]
		if most := (maxRelists*(hits+1) + retries) * c.atOnce(); c.relists > most {
			v.Failed = true
			v.show(c.last, fmt.Sprintf("%s asked %d times for all %s (%.1f MB); faults that hit them: %d", k.client, c.relists, k, float64(c.bytes)/1e6, hits))
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

// watching counts the requests for the initial state of what a client watches.
type watching struct {
	relists int
	bytes   int64
	last    time.Duration
	open    []edge // of its watches
}

// edge is the begin of a watch (+1) or its end (-1).
type edge struct {
	at time.Duration
	by int
}

func (c *watching) add(p *record.Play, a *record.Access) {
	if a.Verb == "watch" && a.Code < 300 {
		c.open = append(c.open, edge{a.At, 1}, edge{a.At + a.Took, -1})
	}
	if a.State && a.At >= 0 && !starts(p, a) {
		c.relists++
		c.bytes += a.Out
		c.last = max(c.last, a.At)
	}
}

// atOnce is the largest number of watches that were open at a time.
func (c *watching) atOnce() int {
	slices.SortFunc(c.open, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	n, most := 0, 1
	for _, e := range c.open {
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
