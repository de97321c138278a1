package verdict

import (
	"fmt"
	"strings"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// relists: a client asks for the initial state of a resource, by lists or watches, more often than
// [Limits].Relists times for each fault that hit a request for the resource, and once more than that. The
// requests of a process before the storm, and those of the minute after a restart, are its start.
func relists(p *record.Play, l Limits) Verdict {
	v := Verdict{Name: Relists}
	faults := map[string]int{} // occurrences that hit a request for the resource
	seen := map[[2]int]map[string]bool{}
	for i := range p.Injections {
		in := &p.Injections[i]
		if in.Fault == fault.Drip || in.Fault == fault.Stall || in.Fault == fault.DuplicateBookmark || in.Path == "" {
			continue
		}
		at := [2]int{in.Spec, in.Occurrence}
		resource := resourceOf(in.Path)
		if seen[at] == nil {
			seen[at] = map[string]bool{}
		}
		if !seen[at][resource] {
			seen[at][resource] = true
			faults[resource]++
		}
	}
	type watched struct{ client, resource string }
	type count struct {
		n     int
		bytes int64
		last  time.Duration
	}
	counts := map[watched]*count{}
	var order []watched
	total := 0
	for i := range p.Accesses {
		a := &p.Accesses[i]
		if !a.State || a.At < 0 || starts(p, a) {
			continue
		}
		total++
		k := watched{a.Client, a.Resource.GroupResource().String()}
		c := counts[k]
		if c == nil {
			c = &count{}
			counts[k] = c
			order = append(order, k)
		}
		c.n++
		c.bytes += a.Out
		c.last = a.At
	}
	for _, k := range order {
		c := counts[k]
		resource, _, _ := strings.Cut(k.resource, ".")
		if most := l.Relists * (faults[resource] + 1); c.n > most {
			v.Failed = true
			v.show(c.last, fmt.Sprintf("%s asked %d times for all %s (%.1f MB); %d faults hit them", k.client, c.n, k.resource, float64(c.bytes)/1e6, faults[resource]))
		}
	}
	v.Text = fmt.Sprintf("%d lists or watches with the initial state during the play; %d faults", total, len(seen))
	return v
}

// starts reports whether an access belongs to the start of a process after a restart.
func starts(p *record.Play, a *record.Access) bool {
	for _, e := range p.Exits {
		if e.Client == a.Client && a.At >= e.At && a.At < e.At+time.Minute {
			return true
		}
	}
	return false
}

// resourceOf is the name of the resource in a path such as /api/v1/namespaces/default/pods.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if n == 0 || len(parts) <= n {
		return ""
	}
	rest := parts[n:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	return rest[0]
}
