package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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

// gone is a deletion by a user of something that the program watches.
type gone struct {
	resource schema.GroupResource
	from, to time.Duration // to is that of the object that takes its place, if one does
}

// explored draws fault plans from a play without faults, by the patterns of Sieve (Sun et al., Automatic Reliability
// Testing for Cluster Management Controllers, OSDI 2022): a stale view, states that are never observed, and states
// between two writes. The most telling of each pattern come first.
func explored(p *record.Play) (plans []plan) {
	deeds, watched, deletions := moves(p)
	var stale, unseen, between, old, later []string
	for _, d := range deeds {
		if d.verb == "create" || d.verb == "delete" {
			// What is done between the begin of the old view and the crash is what it does not show.
			for _, r := range watched {
				old = append(old, fmt.Sprintf("old-view:resource=%s,before=%s; crash:after=%s,nth=%d", r, d.text, d.text, min(d.n, 3)))
			}
		}
		before, after := "before="+d.text, "after="+d.text
		between = append(between, "crash:"+after, "crash:"+before)
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
	for _, g := range deletions {
		at, long := (g.from - early).Truncate(early), (downs + g.to - g.from).Round(early)
		unseen = append(unseen, fmt.Sprintf("crash:at=%v,duration=%v", at, long), fmt.Sprintf("skip:resource=%s,at=%v,duration=%v", g.resource, at, long))
		old = append(old, fmt.Sprintf("old-view:resource=%s,at=%v,duration=%v; crash:at=%v", g.resource, at, long+3*time.Second, (g.to+4*early).Round(early)))
		stale = append(stale, fmt.Sprintf("stall:resource=%s,at=%v,duration=%v", g.resource, at, long+2*time.Second))
	}
	patterns := [][]string{stale, unseen, between, old, later}
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

// moves returns what the program writes and what it watches, in order of the first time, and the first deletion by a
// user of each resource that it watches.
func moves(p *record.Play) (deeds []deed, watched []schema.GroupResource, deletions []gone) {
	accesses := slices.Clone(p.Accesses)
	slices.SortStableFunc(accesses, func(a, b record.Access) int { return cmp.Compare(a.At, b.At) })
	changed := map[schema.GroupResource]bool{}
	for i := range p.Changes {
		changed[p.Changes[i].Resource.GroupResource()] = true
	}
	clients := map[string]bool{}
	for i := range accesses {
		a := &accesses[i]
		clients[a.Client] = true
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
	for i := range p.Changes {
		c := &p.Changes[i]
		resource := c.Resource.GroupResource()
		if c.Type != watch.Deleted || c.At < early || clients[c.By] || !slices.Contains(watched, resource) ||
			slices.ContainsFunc(deletions, func(g gone) bool { return g.resource == resource }) {
			continue
		}
		g := gone{resource, c.At, c.At}
		for _, again := range p.Changes[i:] {
			if again.Type == watch.Added && again.Key == c.Key && again.Resource == c.Resource {
				g.to = again.At
				break
			}
		}
		deletions = append(deletions, g)
	}
	return deeds, watched, deletions
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
		return r.spec.Attach && slices.ContainsFunc(p.faults, func(f fault.Spec) bool { return f.Name == fault.Crash })
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
