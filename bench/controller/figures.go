package controller

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
	"watchlab/bench/lab"
)

// Units of the figures of a play, in benchmark format. Less is better for all.
const (
	UnitP50      = "p50-reconcile-ns"  // reconcile latency, from the intended time of the event
	UnitP99      = "p99-reconcile-ns"  //
	UnitMean     = "mean-reconcile-ns" //
	UnitOwn      = "mean-own-ns"       // mean times in the queue and in a reconcile, by the programs' metrics
	UnitHandled  = "reconciles/run"    // by the programs' metrics
	UnitConverge = "converge-ns"       // from the end of storm and faults to the last change
	UnitRequests = "requests/run"      // of all kinds
	UnitWrites   = "writes/run"        // dry runs excluded
	UnitUseless  = "unchanged/run"     // writes without a change
	UnitRefused  = "conflicts/run"     // updates, patches and deletions that were answered 409
	UnitRelists  = "relists/run"       // lists and watches with the initial state
	UnitSent     = "sent-B/run"        // bytes of the answers
	UnitCPU      = "cpu-ns/run"        // CPU time of the programs during the play
	UnitRSS      = "peak-RSS-B"        // largest sum over the replicas
	UnitBehind   = "max-lag-events"    // of one watch
)

// Units are the figures in their order, with their names in tables.
var Units = []struct{ Name, Title string }{
	{UnitP50, "p50"}, {UnitP99, "p99"}, {UnitMean, "mean"}, {UnitOwn, "own mean"}, {UnitHandled, "reconciles"}, {UnitConverge, "converged"}, {UnitRequests, "requests"},
	{UnitWrites, "writes"}, {UnitUseless, "unchanged"}, {UnitRefused, "conflicts"}, {UnitRelists, "relists"}, {UnitSent, "bytes"}, {UnitCPU, "CPU"},
	{UnitRSS, "peak RSS"}, {UnitBehind, "watch lag"},
}

// Title returns the name of a figure in tables.
func Title(unit string) string {
	for _, u := range Units {
		if u.Name == unit {
			return u.Title
		}
	}
	return unit
}

// summarise computes the figures, the distributions, the counts and the series from the record.
func (p *Play) summarise(reactions []rules.Reaction) (err error) {
	if p.Latencies, err = latencies(reactions); err != nil {
		return err
	}
	p.Requests = requests(p.Accesses)
	p.Series = series(&p.Play, reactions)
	f := map[string]float64{
		UnitRequests: 0, UnitWrites: 0, UnitUseless: 0, UnitRefused: 0, UnitRelists: 0, UnitSent: 0, UnitBehind: 0,
	}
	for a := range record.Each(p.Accesses) {
		f[UnitRequests]++
		f[UnitSent] += float64(a.Out)
		if a.State {
			f[UnitRelists]++
		}
		if a.Conflict() {
			f[UnitRefused]++
		}
		if a.Writes() {
			f[UnitWrites]++
			if a.Unchanged {
				f[UnitUseless]++
			}
		}
	}
	for _, l := range p.Lags {
		f[UnitBehind] = max(f[UnitBehind], float64(l.Events))
	}
	if all := answered(reactions); len(all) > 0 {
		q, err := cell.QuantilesOf(all)
		if err != nil {
			return err
		}
		f[UnitP50], f[UnitP99], f[UnitMean] = float64(q.P50), float64(q.P99), float64(q.Mean)
	}
	if p.Quiet != nil {
		f[UnitConverge] = float64(max(0, *p.Quiet-p.Over))
	}
	if cpu, rss, ok := processes(p.Samples); ok {
		f[UnitCPU], f[UnitRSS] = float64(cpu), float64(rss)
	}
	if queue, work := own(p.Scrapes); work.count > 0 {
		f[UnitHandled] = work.count
		f[UnitOwn] = (queue.mean() + work.mean()) * float64(time.Second)
	}
	p.Figures = f
	return nil
}

// observations are those of a histogram.
type observations struct{ count, sum float64 }

func (o observations) mean() float64 { return o.sum / o.count }

// own returns the times in the queue and in a reconcile that the programs report, from their first scrapes
// to their last ones.
func own(scrapes []record.Scrape) (queue, work observations) {
	const started = "process_start_time_seconds"
	first, last := map[string]map[string]float64{}, map[string]map[string]float64{}
	add := func(to *observations, client, name string) bool {
		grown := func(metric string) float64 { return last[client][metric] - first[client][metric] }
		n := grown(name + "_count")
		to.count, to.sum = to.count+n, to.sum+grown(name+"_sum")
		return n > 0
	}
	end := func(client string) {
		add(&queue, client, "workqueue_queue_duration_seconds")
		if !add(&work, client, "controller_runtime_reconcile_time_seconds") {
			add(&work, client, "workqueue_work_duration_seconds")
		}
	}
	for _, s := range scrapes {
		switch l, ok := last[s.Client]; {
		case !ok:
			first[s.Client] = s.Values
		case l[started] != s.Values[started]: // The counts of a restarted program begin anew.
			end(s.Client)
			first[s.Client] = nil
		}
		last[s.Client] = s.Values
	}
	for client := range last {
		end(client)
	}
	return queue, work
}

// processes returns the CPU time of all processes between their first and last samples, and the largest
// sum of their resident memory.
func processes(samples []record.Sample) (cpu time.Duration, rss int64, ok bool) {
	last := map[string]record.Sample{}
	for _, s := range samples {
		// A restarted process begins with its CPU time at 0.
		if before, has := last[s.Client]; has && s.CPU >= before.CPU {
			cpu += s.CPU - before.CPU
		}
		last[s.Client] = s
		var sum int64
		for _, l := range last {
			sum += l.RSS
		}
		rss = max(rss, sum)
	}
	return cpu, rss, len(samples) > 0
}

// answered are the latencies of the reactions with an answer.
func answered(reactions []rules.Reaction) (all []time.Duration) {
	for _, r := range reactions {
		if r.Answer != nil {
			all = append(all, r.Latency)
		}
	}
	return all
}

// latencies are the distributions by rule, resource and phase.
func latencies(reactions []rules.Reaction) (out []Latency, err error) {
	type key struct{ rule, resource, phase string }
	keyOf := func(r rules.Reaction) key { return key{r.Rule, r.Event.Resource.GroupResource().String(), r.Phase} }
	for _, set := range lab.GroupBy(reactions, keyOf) {
		k, values := keyOf(set[0]), answered(set)
		l := Latency{Rule: k.rule, Resource: k.resource, Phase: k.phase, Answered: len(values), Unanswered: len(set) - len(values)}
		if len(values) > 0 {
			if l.Quantiles, err = cell.QuantilesOf(values); err != nil {
				return nil, err
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// requests counts the accesses by verb and resource, most first.
func requests(accesses []record.Access) (out []Requests) {
	keyOf := func(a *record.Access) Requests {
		resource := a.Resource.GroupResource().String() + "/" + a.Subresource
		return Requests{Verb: a.Verb, Resource: strings.TrimSuffix(resource, "/")}
	}
	for _, set := range lab.GroupBy(slices.Collect(record.Each(accesses)), keyOf) {
		c := keyOf(set[0])
		failed := map[string]bool{} // client and key of requests whose last answer was an error
		for _, a := range set {
			c.Count++
			c.Bytes += a.Out
			object := a.Client + " " + a.Key
			if failed[object] {
				c.Retries++
			}
			failed[object] = a.Code >= 400
			switch {
			case a.Conflict():
				c.Conflicts++
			case a.Code == 429:
				c.Throttled++
			case a.Code >= 400:
				c.Errors++
			}
			if a.Unchanged {
				c.Unchanged++
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Requests) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return out
}
