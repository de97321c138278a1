package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
)

// The times of explored faults. A hold is longer than a controller with a rate limit tries again at first.
const (
	holding = fault.Duration(3 * time.Second)
	early   = 50 * time.Millisecond // before a change of a user
	downs   = time.Second           // a program is down, besides the changes that it misses
)

// deed is a kind of write of the program.
type deed struct {
	verb     string
	resource schema.GroupResource
	text     string // as in "create pods" or "patch jobs.batch/status"
	n        int
}

// missed is what others than the program do to an object that it watches: a deletion, or two changes in turn.
type missed struct {
	resource schema.GroupResource
	deleted  bool
	from, to time.Duration // to is that of the second change, or of the object that takes the place of a deleted one
	marked   time.Duration // a finalizer kept it from then on; 0 for none
}

// explored draws fault plans from a play without faults, by the patterns of Sieve (Sun et al., Automatic Reliability
// Testing for Cluster Management Controllers, OSDI 2022): a stale view, states that are never observed, and states
// between two writes. The most telling of each pattern come first.
func explored(p *record.Play) (plans []plan) {
	deeds, watched := moves(p)
	var stale, unseen, between, older, old, later []string
	for _, d := range deeds {
		if d.verb == "create" || d.verb == "delete" {
			// What is done between the begin of the old view and the crash is what it does not show.
			for _, r := range watched {
				old = append(old, fmt.Sprintf("old-view:resource=%s,before=%s; crash:after=%s,nth=%d", r, d.text, d.text, min(d.n, 3)))
			}
		}
		before, after := "before="+d.text, "after="+d.text
		between = append(between, "crash:"+after, "crash:"+before)
		for n := 2; n <= min(d.n, 3); n++ {
			later = append(later, fmt.Sprintf("crash:%s,nth=%d", after, n))
		}
		of := fmt.Sprintf("resource=%s,verb=%s,%s", d.resource, d.verb, before)
		switch d.verb {
		case "update", "patch", "delete":
			later = append(later, "lost-answer:"+of, "conflict:"+of)
		default:
			later = append(later, "lost-answer:"+of)
		}
		for _, r := range watched {
			hold := fmt.Sprintf("stall:resource=%s,duration=%v,%s", r, holding, before)
			if r != d.resource {
				later = append(later, hold)
				continue
			}
			stale = append(stale, hold)
			later = append(later, hold+",nth=3")
			unseen = append(unseen, fmt.Sprintf("skip:resource=%s,%s", r, before))
		}
	}
	for _, m := range misses(p, watched) {
		view := func(at time.Duration) string {
			long := downs + m.to - m.from + 3*time.Second
			return fmt.Sprintf("old-view:resource=%s,at=%v,duration=%v", m.resource, at, long.Round(early))
		}
		at, long, next := (m.from - early).Truncate(early), (downs + m.to - m.from).Round(early), (m.to + 4*early).Round(early)
		unseen = append(unseen, fmt.Sprintf("crash:at=%v,duration=%v", at, long), fmt.Sprintf("skip:resource=%s,at=%v,duration=%v", m.resource, at, long))
		if !m.deleted {
			older = append(older, fmt.Sprintf("%s; crash:at=%v", view(at+2*early), next))
			continue
		}
		stale = append(stale, fmt.Sprintf("stall:resource=%s,at=%v,duration=%v", m.resource, at, long+2*time.Second))
		older = append(older, fmt.Sprintf("%s; crash:at=%v", view(at), next))
		if m.marked > 0 {
			// The program must not be so quick that the view shows no object that is marked.
			at := (m.marked - early).Truncate(early)
			older = append(older, fmt.Sprintf("latency:resource=%s,at=%v,duration=500ms; %s; crash:at=%v", m.resource, at, view(at+2*early), next))
		}
	}
	patterns := [][]string{stale, unseen, between, slices.Concat(older, old), later}
	for n := 0; ; n++ {
		some := false
		for _, texts := range patterns {
			if n >= len(texts) {
				continue
			}
			some = true
			faults, err := fault.ParseAll(texts[n])
			if err == nil { // A name of a resource that no fault can have is left out.
				plans = append(plans, plan{fmt.Sprintf("%s-%02d", PlanExplore, len(plans)+1), faults})
			}
		}
		if !some {
			return plans
		}
	}
}

// moves returns what the program writes and what it watches, in order of the first time.
func moves(p *record.Play) (deeds []deed, watched []schema.GroupResource) {
	accesses := slices.Clone(p.Accesses)
	slices.SortStableFunc(accesses, func(a, b record.Access) int { return cmp.Compare(a.At, b.At) })
	changed := map[schema.GroupResource]bool{}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.By != record.ByManifest && c.By != "" {
			changed[c.Resource.GroupResource()] = true
		}
	}
	for i := range accesses {
		a := &accesses[i]
		resource := a.Resource.GroupResource()
		switch {
		case a.Background() || a.Code >= 300:
		case a.Verb == "watch" && changed[resource] && !slices.Contains(watched, resource):
			watched = append(watched, resource)
		case a.Writes() && a.At >= 0:
			d := deed{verb: a.Verb, resource: resource}
			if d.verb == "apply" {
				d.verb = "patch"
			}
			d.text = strings.TrimSuffix(d.verb+" "+resource.String()+"/"+a.Subresource, "/")
			if i := slices.IndexFunc(deeds, func(have deed) bool { return have.text == d.text }); i >= 0 {
				deeds[i].n++
			} else {
				d.n = 1
				deeds = append(deeds, d)
			}
		}
	}
	// What makes and deletes objects tells more than what updates them.
	slices.SortStableFunc(deeds, func(a, b deed) int { return cmp.Compare(rank(a), rank(b)) })
	return deeds, watched
}

// misses returns, of each resource that the program watches, the first deletion by others, and the first object that they
// change twice.
func misses(p *record.Play, watched []schema.GroupResource) (out []missed) {
	clients := map[string]bool{}
	for i := range p.Accesses {
		clients[p.Accesses[i].Client] = true
	}
	changed, marked := map[record.ID]time.Duration{}, map[record.ID]time.Duration{}
	for i := range p.Changes {
		c := &p.Changes[i]
		o := c.ID()
		deleted := c.Type == watch.Deleted
		if m, ok := c.Object.(metav1.Object); ok && !deleted && m.GetDeletionTimestamp() != nil && marked[o] == 0 {
			marked[o] = c.At
		}
		if c.Type == watch.Added || c.At < early || clients[c.By] && !(deleted && marked[o] > 0) || !slices.Contains(watched, o.Resource) ||
			slices.ContainsFunc(out, func(m missed) bool { return m.resource == o.Resource && m.deleted == deleted }) {
			continue
		}
		m := missed{resource: o.Resource, deleted: deleted, from: c.At, to: c.At, marked: marked[o]}
		if !deleted {
			if m.from = changed[o]; m.from == 0 {
				changed[o] = c.At
				continue
			}
			out = append(out, m)
			continue
		}
		m.from = cmp.Or(m.marked, m.from)
		if again := slices.IndexFunc(p.Changes[i:], func(next record.Change) bool { return next.Type == watch.Added && next.ID() == o }); again >= 0 {
			m.to = p.Changes[i+again].At
		}
		out = append(out, m)
	}
	// A deletion tells more than two changes.
	slices.SortStableFunc(out, func(a, b missed) int {
		switch {
		case a.deleted == b.deleted:
			return 0
		case a.deleted:
			return -1
		}
		return 1
	})
	return out
}

func rank(d deed) int {
	if d.verb == "create" || d.verb == "delete" || d.verb == "deletecollection" {
		return 0
	}
	return 1
}

// explore plays the plans that the play without faults suggests, until one fails or the budget is spent.
func (r *runner) explore(ctx context.Context, program Program, round int) error {
	of := faultless{program.Label, round}
	if r.faultless[of] == nil {
		play, err := r.play(ctx, program, plan{name: PlanNone}, r.spec.Seed+int64(round)-1, round)
		if err != nil {
			return err
		}
		if err := r.keep(play); err != nil {
			return err
		}
	}
	began := time.Now()
	plans := slices.DeleteFunc(slices.Clone(r.suggested[of]), func(p plan) bool {
		// A program that runs elsewhere is not started again.
		return r.spec.Attach && slices.ContainsFunc(p.faults, func(f fault.Spec) bool { return f.Name == fault.Crash || f.Name == fault.Terminate })
	})
	for i, pl := range plans {
		spent := time.Since(began)
		if i > 0 && spent+spent/time.Duration(i) > r.spec.Budget.Duration {
			r.Notify(fmt.Sprintf("explored %d of %d plans in %v; --budget allows more", i, len(plans), spent.Round(time.Second)))
			return nil
		}
		play, err := r.play(ctx, program, pl, r.spec.Seed+int64(round)-1, round)
		if err != nil {
			return err
		}
		if err := r.keep(play); err != nil || play.Failed() {
			return err
		}
	}
	return nil
}
