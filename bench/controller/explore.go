package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/loadgen/fault"
)

// The times of explored faults. A hold is longer than a controller with a rate limit tries again at first.
const (
	holding = fault.Duration(3 * time.Second)
	early   = 50 * time.Millisecond // before a change of a user
	downs   = time.Second           // a program is down, besides the changes that it misses
	away    = 5 * time.Second       // longest time of changes that it misses at once
	bundle  = 6                     // faults of different kinds of writes in one plan
	rows    = 6                     // plans of each pattern before those for other servers
)

// deed is a kind of write of the program, by what it changes: the removal of a finalizer is another one than its addition.
type deed struct {
	verb     string
	resource schema.GroupResource
	text     string // as in "create pods" or "patch jobs.batch/status"
	changes  string // fields
	nth      []int  // among the writes of the same text: the first, a late one that less is likely to heal, the second
}

// at is the nth of such writes, from 0, or else the last one, as a trigger takes it.
func (d *deed) at(n int) string {
	if nth := d.nth[min(n, len(d.nth)-1)]; nth > 1 {
		return fmt.Sprintf("%s,nth=%d", d.text, nth)
	}
	return d.text
}

// span is a time of changes by others than the program.
type span struct{ from, to time.Duration }

// missed is what others than the program do to an object that it watches: a deletion, or two changes in turn.
type missed struct {
	resource schema.GroupResource
	deleted  bool
	user     bool          // did it or asked for it, not the stand-in or a program beside
	span                   // to is the time of the second change, or of the object that takes the place of a deleted one
	marked   time.Duration // a finalizer kept it from then on; 0 for none
}

// begin and lasts are the time at which a fault begins to hide the changes of a span, and how long it does.
func (s span) begin() time.Duration { return max(s.from-early, 0).Truncate(early) }
func (s span) lasts() time.Duration { return (downs + s.to - s.from).Round(early) }

// oldView is a plan that restarts the program at a time and shows it a resource as it was at the begin of the span.
func (s span) oldView(r schema.GroupResource, at, restart time.Duration) string {
	return fmt.Sprintf("old-view:resource=%s,at=%v,duration=%v; crash:at=%v", r, at, (s.lasts() + 5*time.Second).Round(early), restart.Round(early))
}

// explored draws fault plans from a play without faults, by the patterns of Sieve (Sun et al., Automatic Reliability
// Testing for Cluster Management Controllers, OSDI 2022): a stale view, states that are never observed, and states
// between two writes; and by answers that are no success. The most telling of each pattern come first. Faults that do
// not hide each other share a play: shrinking tells which it was.
func explored(p *record.Play) (plans []plan) {
	deeds, watched := moves(p)
	each := func(n int, text string, verbs ...string) (plans []string) { // with the nth write of each kind
		var faults []string
		for i := range deeds {
			if d := &deeds[i]; n < len(d.nth) && (len(verbs) == 0 || slices.Contains(verbs, d.verb)) {
				faults = append(faults, strings.NewReplacer("{at}", d.at(n), "{resource}", d.resource.String(), "{verb}", d.verb).Replace(text))
			}
		}
		for some := range slices.Chunk(faults, bundle) {
			plans = append(plans, strings.Join(some, "; "))
		}
		return plans
	}
	const lost, conflict = "lost-answer:resource={resource},verb={verb},before={at}", "conflict:resource={resource},verb={verb},before={at}"
	between := slices.Concat(each(0, "crash:after={at}"), each(2, "crash:after={at}"), each(1, "crash:after={at}"), each(0, "crash:before={at}"))
	answers := slices.Concat(each(0, lost), each(0, conflict, "update", "patch", "delete"))
	var stale, unseen, older, skips, holds, old, later, foreign []string
	// What a program reads by WatchList, no server shows it as it was: plans for servers without that come late.
	fresh := consistent(p)
	view := func(plans *[]string, r schema.GroupResource, text string) {
		if fresh[r] {
			plans = &foreign
		}
		*plans = append(*plans, text)
	}
	whole, once, changed := spans(p, watched)
	if len(changed) > 0 {
		unseen = append(unseen, fmt.Sprintf("crash:at=%v,duration=%v", once.begin(), once.lasts()))
	}
	for _, r := range changed {
		unseen = append(unseen, fmt.Sprintf("skip:resource=%s,at=%v,duration=%v", r, once.begin(), once.lasts()))
		holds = append(holds, fmt.Sprintf("stall:resource=%s,at=%v,duration=%v", r, once.begin(), once.lasts()+time.Duration(holding)))
		view(&older, r, whole.oldView(r, whole.begin(), whole.to+downs))
	}
	for i, d := range deeds {
		first, late := d.at(0), d.at(1)
		between = append(between, "crash:after="+first, "crash:before="+first)
		for _, r := range watched {
			if d.verb == "create" || d.verb == "delete" {
				// What is done between the begin of the old view and the crash is what it does not show.
				view(&old, r, fmt.Sprintf("old-view:resource=%s,before=%s; crash:after=%s", r, first, late))
			}
			hold := fmt.Sprintf("stall:resource=%s,duration=%v,before=", r, holding)
			if r != d.resource {
				later = append(later, hold+first)
				continue
			}
			if answers = append(answers, hold+late); slices.ContainsFunc(deeds[:i], func(before deed) bool { return before.resource == r }) {
				holds = append(holds, hold+first)
			} else {
				stale = append(stale, hold+first)
			}
			skips = append(skips, fmt.Sprintf("skip:resource=%s,before=%s", r, first))
		}
	}
	for _, m := range misses(p, watched) {
		at, next := m.begin(), m.to+4*early
		unseen = append(unseen, fmt.Sprintf("crash:at=%v,duration=%v", at, m.lasts()), fmt.Sprintf("skip:resource=%s,at=%v,duration=%v", m.resource, at, m.lasts()))
		if !m.deleted {
			view(&older, m.resource, m.oldView(m.resource, at+2*early, next))
			continue
		}
		holds = append(holds, fmt.Sprintf("stall:resource=%s,at=%v,duration=%v", m.resource, at, m.lasts()+2*time.Second))
		view(&older, m.resource, m.oldView(m.resource, at, next))
		if m.marked > 0 {
			// The program must not be so quick that the view shows no object that is marked.
			at := (m.marked - early).Truncate(early)
			view(&older, m.resource, fmt.Sprintf("latency:resource=%s,at=%v,duration=500ms; %s", m.resource, at, m.oldView(m.resource, at+2*early, next)))
		}
	}
	patterns := [][]string{
		slices.Concat(stale, holds), between, slices.Concat(older, old), slices.Concat(unseen, skips),
		slices.Concat(answers, each(2, lost), each(1, lost), each(1, conflict, "update", "patch", "delete"), later),
	}
	var order []string
	longest := slices.MaxFunc(patterns, func(a, b []string) int { return cmp.Compare(len(a), len(b)) })
	for n := range longest {
		if n == rows {
			order = append(order, foreign...)
		}
		for _, texts := range patterns {
			order = append(order, texts[min(n, len(texts)):min(n+1, len(texts))]...)
		}
	}
	drawn := map[string]bool{"": true}
	for _, text := range append(order, foreign...) { // which are there already, unless no pattern has so many rows
		if drawn[text] {
			continue
		}
		drawn[text] = true
		if faults, err := fault.ParseAll(text); err == nil { // A name of a resource that no fault can have is left out.
			plans = append(plans, plan{fmt.Sprintf("%s-%02d", PlanExplore, len(plans)+1), faults})
		}
	}
	return plans
}

// consistent are the resources of which the program has read no state that may be old, but by WatchList that of the request.
func consistent(p *record.Play) map[schema.GroupResource]bool {
	fresh := map[schema.GroupResource]bool{}
	for a := range record.Each(p.Accesses) {
		r := a.Resource.GroupResource()
		if was, read := fresh[r]; (a.Any || a.State && a.Verb == "watch") && a.Code < 300 {
			fresh[r] = !a.Any && (was || !read)
		}
	}
	return fresh
}

// spans returns the time of all changes by users and the storm to what the program watches, and the resources; and the
// time of the most of them, up to away, in which no user changes an object twice: a program that misses these misses no
// state that it would have acted on.
func spans(p *record.Play, watched []schema.GroupResource) (whole, once span, changed []schema.GroupResource) {
	var changes []*record.Change
	for c := range record.Each(p.Changes) {
		if r := c.Resource.GroupResource(); c.ByUser() && c.At >= early && slices.Contains(watched, r) {
			if changes = append(changes, c); !slices.Contains(changed, r) {
				changed = append(changed, r)
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b *record.Change) int { return cmp.Compare(a.At, b.At) })
	last, from, most := map[record.ID]int{}, 0, 0
	for i, c := range changes {
		if at, again := last[c.ID()]; again && c.By == record.ByWorkload {
			from = max(from, at+1)
		}
		for last[c.ID()] = i; c.At-changes[from].At > away; from++ {
		}
		if i-from >= most {
			most, once = i-from+1, span{changes[from].At, c.At}
		}
		whole = span{changes[0].At, c.At}
	}
	return whole, once, changed
}

// moves returns what the program writes and what it watches, in order of the first time.
func moves(p *record.Play) (deeds []deed, watched []schema.GroupResource) {
	type version struct {
		record.ID
		number uint64
	}
	changes, changed := map[version]*record.Change{}, map[schema.GroupResource]bool{}
	for c := range record.Each(p.Changes) {
		if changes[version{c.ID(), c.Version}] = c; c.By != record.ByManifest && c.By != "" {
			changed[c.Resource.GroupResource()] = true
		}
	}
	counts, kinds := map[string]int{}, map[string]int{}
	for a := range record.Each(p.Arrivals()) {
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
			if c := changes[version{a.ID(), a.Version}]; c != nil && c.Type == watch.Modified && d.verb != "delete" {
				d.changes = fieldsOf(c)
			}
			counts[d.text]++
			have := slices.IndexFunc(deeds, func(have deed) bool { return have.text == d.text && have.changes == d.changes })
			if have < 0 {
				if kinds[d.text]++; kinds[d.text] > bundle {
					continue // Its fields tell little.
				}
				have, deeds = len(deeds), append(deeds, d)
			}
			deeds[have].nth = append(deeds[have].nth, counts[d.text])
		}
	}
	for i := range deeds {
		if nth := deeds[i].nth; len(nth) > 2 {
			deeds[i].nth = []int{nth[0], nth[len(nth)*3/4], nth[1]}
		}
	}
	// What makes and deletes objects tells more than what updates them.
	rank := map[string]string{"update": "later", "patch": "later"}
	slices.SortStableFunc(deeds, func(a, b deed) int { return strings.Compare(rank[a.verb], rank[b.verb]) })
	return deeds, watched
}

// fieldsOf names the fields that a change makes longer (+), shorter (-) or other, and its new phase.
func fieldsOf(c *record.Change) string {
	fields := map[string]bool{}
	verdict.Changed(c, func(path string, was, is any) {
		field := strings.Join(strings.SplitN(path, ".", 4)[1:min(3, strings.Count(path, ".")+1)], ".")
		switch field {
		case "metadata.managedFields", "metadata.resourceVersion":
			return
		case "status.phase":
			field += fmt.Sprint(is)
		}
		fields[field+[]string{"-", "", "+"}[1+cmp.Compare(len(fmt.Sprint(is)), len(fmt.Sprint(was)))]] = true
	})
	return strings.Join(slices.Sorted(maps.Keys(fields)), " ")
}

// misses returns, of each resource that the program watches, the first deletion by others, and the first object that they
// change twice.
func misses(p *record.Play, watched []schema.GroupResource) []missed {
	var deletions, changes []missed
	clients := p.Clients()
	changed, marked, users := map[record.ID]time.Duration{}, map[record.ID]time.Duration{}, map[record.ID]bool{}
	for i := range p.Changes {
		c := &p.Changes[i]
		o := c.ID()
		deleted := c.Type == watch.Deleted
		if m, ok := c.Object.(metav1.Object); ok && !deleted && m.GetDeletionTimestamp() != nil && marked[o] == 0 {
			marked[o] = c.At
			users[o] = c.ByUser()
		}
		if c.Type == watch.Added || c.At < early || clients[c.By] && !(deleted && marked[o] > 0) || !slices.Contains(watched, o.Resource) ||
			slices.ContainsFunc(slices.Concat(deletions, changes), func(m missed) bool { return m.resource == o.Resource && m.deleted == deleted }) {
			continue
		}
		m := missed{resource: o.Resource, deleted: deleted, user: c.ByUser() || users[o], span: span{c.At, c.At}, marked: marked[o]}
		if !deleted {
			if m.from = changed[o]; m.from == 0 {
				changed[o] = c.At
				continue
			}
			changes = append(changes, m)
			continue
		}
		m.from = cmp.Or(m.marked, m.from)
		if again := slices.IndexFunc(p.Changes[i:], func(next record.Change) bool { return next.Type == watch.Added && next.ID() == o }); again >= 0 {
			m.to = p.Changes[i+again].At
		}
		deletions = append(deletions, m)
	}
	all := append(deletions, changes...) // A deletion tells more than two changes,
	byUser := slices.DeleteFunc(slices.Clone(all), func(m missed) bool { return !m.user })
	return append(byUser, slices.DeleteFunc(all, func(m missed) bool { return m.user })...) // and what users do more than what follows from it.
}

// explore plays the plans that the play without faults suggests, until one fails each time or the budget is spent.
func (r *runner) explore(ctx context.Context, program Program, round int) error {
	of := part{program.Label, round}
	if r.faultless[of] == nil {
		if _, err := r.planned(ctx, program, plan{name: PlanNone}, round); err != nil {
			return err
		}
	}
	began := time.Now()
	// A second play without faults shows what differs by chance.
	plans := slices.DeleteFunc(append([]plan{{name: PlanExplore + "-00"}}, r.faultless[of].suggested...), func(p plan) bool {
		// A program that runs elsewhere is not started again.
		return r.spec.Attach && slices.ContainsFunc(p.faults, func(f fault.Spec) bool { return f.Ends() })
	})
	for i, pl := range plans {
		spent := time.Since(began)
		if i > 0 && spent+spent/time.Duration(i) > r.spec.Budget.Duration {
			r.Notify(fmt.Sprintf("explored %d of %d plans in %v; --budget allows more", i, len(plans), spent.Round(time.Second)))
			return nil
		}
		for again := 1; ; again++ {
			if failed, err := r.planned(ctx, program, pl, round); err != nil || failed && again == repeats {
				return err
			} else if !failed || len(pl.faults) == 0 {
				break
			}
		}
	}
	return nil
}
