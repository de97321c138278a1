package verdict

import (
	"fmt"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
)

// lostUpdates: in the end an object is not what a rule says, or an event had no answer in the time of its rule.
func lostUpdates(reactions []rules.Reaction, violations []rules.Violation) Verdict {
	v := Verdict{Name: LostUpdates, Failed: len(violations) > 0}
	answered := 0
	for _, r := range reactions {
		if r.Answer != nil {
			answered++
		}
	}
	v.Text = fmt.Sprintf("violations of the rules: %d; %d of %d events were answered", len(violations), answered, len(reactions))
	for _, w := range violations {
		e := Evidence{Text: w.Object + ": " + w.Text + " (" + w.Rule + ")"}
		if w.Last != nil {
			e.At, e.object = w.Last.At, w.Last.ID()
			e.Text += fmt.Sprintf("; last change: %s by %s, version %d", w.Last.Type, w.Last.By, w.Last.Version)
		}
		v.showObject(e.At, e.object, e.Text)
	}
	return v
}

// neverConverged: controllers or the cluster were still writing when the settle time was over.
func neverConverged(p *record.Play) Verdict {
	if p.Quiet != nil {
		return Verdict{Name: NeverConverged, Text: fmt.Sprintf("quiet %.1f s after storm and faults", max(0, *p.Quiet-p.Over).Seconds())}
	}
	v := Verdict{Name: NeverConverged, Failed: true, Text: fmt.Sprintf("still writing %.1f s after storm and faults", (p.End - p.Over).Seconds())}
	var last []*record.Access
	for i := len(p.Accesses) - 1; i >= 0 && len(last) < shown; i-- {
		if a := &p.Accesses[i]; a.Writes() && !a.Background() {
			last = append(last, a)
		}
	}
	for i := len(last) - 1; i >= 0; i-- {
		v.show(last[i].At, last[i].Client+" "+last[i].Verb+" "+name(last[i]))
	}
	return v
}

// crashed: a process ended that nobody had stopped.
func crashed(p *record.Play) Verdict {
	v := Verdict{Name: Crashed}
	n := 0
	for _, e := range p.Exits {
		if !e.Planned {
			n++
			v.show(e.At, e.Client+": "+e.Status)
		}
	}
	v.Failed, v.Text = n > 0, fmt.Sprintf("processes that ended by themselves: %d", n)
	return v
}
