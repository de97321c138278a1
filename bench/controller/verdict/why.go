package verdict

import (
	"fmt"
	"strings"
	"time"

	"watchlab/bench/controller/record"
)

// recently is how long before a write the start of its process explains it.
const recently = 10 * time.Second

// Explain says of each object that a verdict shows which write was the last one then, what its client could know then, and what
// had happened to the client.
func Explain(p *record.Play, all []Verdict) {
	writes := map[record.ID][]*record.Access{}
	for a := range record.Each(p.Accesses) {
		if a.Writes() && !a.Background() && a.Code < 300 && !a.Unchanged {
			writes[a.ID()] = append(writes[a.ID()], a)
		}
	}
	for _, v := range all {
		for e := range record.Each(v.Evidence) {
			var last *record.Access
			for _, a := range writes[e.object] {
				if a.At <= e.At && (last == nil || a.At > last.At) {
					last = a
				}
			}
			if last != nil {
				e.Why = why(p, last)
			}
		}
	}
}

// why explains a write.
func why(p *record.Play, a *record.Access) string {
	texts := []string{fmt.Sprintf("last write: %s of %s by %s at %.3f s", a.Verb, name(a), a.Client, a.At.Seconds())}
	for c := range record.Each(p.Changes) {
		if a.Based > 0 && c.ID() == a.ID() && c.Version > a.Based && c.At <= a.At {
			texts = append(texts, fmt.Sprintf("based on version %d, which was old for %v", a.Based, (a.At-c.At).Round(time.Millisecond)))
			break
		}
	}
	for _, s := range struck(p) {
		if !s.Ends() && s.from <= a.At && a.At < s.to {
			texts = append(texts, fmt.Sprintf("%v into %s", (a.At-s.from).Round(time.Millisecond), s))
		}
	}
	for _, e := range p.Exits {
		if e.Client == a.Client && e.At <= a.At && a.At-e.At < recently {
			texts = append(texts, fmt.Sprintf("%v after %s had ended (%s)", (a.At-e.At).Round(time.Millisecond), e.Client, e.Status))
		}
	}
	return strings.Join(texts, "; ")
}
