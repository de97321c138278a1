package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// recently is how long before a write the start of its process explains it.
const recently = 10 * time.Second

// Explain says of each object that a failed verdict shows which write came last, what its client could know then, and what
// had happened to the client.
func Explain(p *record.Play, all []Verdict) {
	last := map[record.ID]*record.Access{}
	for i := range p.Accesses {
		a := &p.Accesses[i]
		if a.Writes() && !a.Background() && a.Code < 300 && !a.Unchanged && (last[a.ID()] == nil || last[a.ID()].At < a.At) {
			last[a.ID()] = a
		}
	}
	for i := range all {
		for k := range all[i].Evidence {
			if e := &all[i].Evidence[k]; all[i].Failed && last[e.object] != nil {
				e.Why = why(p, last[e.object])
			}
		}
	}
}

// why explains a write.
func why(p *record.Play, a *record.Access) string {
	texts := []string{fmt.Sprintf("last write: %s of %s by %s at %.3f s", a.Verb, name(a), a.Client, a.At.Seconds())}
	for i := range p.Changes {
		if c := &p.Changes[i]; a.Based > 0 && c.ID() == a.ID() && c.Version > a.Based && c.At <= a.At {
			texts = append(texts, fmt.Sprintf("based on version %d, which was old for %v", a.Based, short3(a.At-c.At)))
			break
		}
	}
	type occurrence struct{ spec, n int }
	seen := map[occurrence]bool{}
	for _, in := range p.Injections {
		at := time.Duration(in.At)
		if seen[occurrence{in.Spec, in.Occurrence}] || in.Fault == fault.Crash {
			continue
		}
		seen[occurrence{in.Spec, in.Occurrence}] = true
		k := slices.IndexFunc(p.Faults, func(f fault.Spec) bool { return f.Name == in.Fault && f.Duration > 0 })
		if k >= 0 && at <= a.At && a.At < at+time.Duration(p.Faults[k].Duration) {
			texts = append(texts, fmt.Sprintf("%v into %s", short3(a.At-at), p.Faults[k]))
		}
	}
	for _, e := range p.Exits {
		if e.Client == a.Client && e.At <= a.At && a.At-e.At < recently {
			texts = append(texts, fmt.Sprintf("%v after %s had ended (%s)", short3(a.At-e.At), e.Client, e.Status))
		}
	}
	return strings.Join(texts, "; ")
}

func short3(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
