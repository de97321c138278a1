package report

import (
	"cmp"
	"fmt"
	"go/doc/comment"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/chart"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/inflate"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// entry is a variant of a family.
type entry struct {
	family                  impls.Family
	name, summary, upstream string
	guarantees              []impls.Guarantees
}

func entries() []entry {
	return slices.Concat(
		entriesOf(impls.Inflate, inflate.Variants()),
		entriesOf(impls.Decode, decode.Variants()),
		entriesOf(impls.DeltaFIFO, deltafifo.Variants()),
		entriesOf(impls.Queue, queue.Variants()),
		entriesOf(impls.Store, store.Variants()),
		entriesOf(impls.Workqueue, workqueue.Variants()),
		entriesOf(impls.Merge, merge.Variants()),
	)
}

func entriesOf[O, T any](f impls.Family, variants []impls.Variant[O, T]) []entry {
	var out []entry
	for _, v := range variants {
		out = append(out, entry{f, v.Name, v.Summary, v.Upstream, v.Guarantees})
	}
	return out
}

// guaranteeTables are the tables of the list: the families of each and the columns of their guarantees.
var guaranteeTables = []struct {
	families []impls.Family
	columns  []string
	row      func(impls.Guarantees) []string
}{
	{[]impls.Family{impls.Inflate}, []string{"MEMORY"}, func(g impls.Guarantees) []string {
		return []string{map[bool]string{true: "bounded", false: "unbounded"}[g.Bounded]}
	}},
	{[]impls.Family{impls.Decode}, []string{"TRANSFORM", "HANDLER", "CLIENT", "STRIPS"}, func(g impls.Guarantees) []string {
		return []string{string(g.Transform), string(g.Handler), string(g.Client), cmp.Or(g.Strips, chart.None)}
	}},
	{[]impls.Family{impls.DeltaFIFO, impls.Queue, impls.Merge}, []string{"DELIVERY", "ORDER", "COALESCES", "BOUNDED", "CONSUMERS", "HANDLER", "THROTTLES"}, func(g impls.Guarantees) []string {
		return []string{
			cmp.Or(g.Mode, chart.None), string(g.Order), string(g.Coalesces), map[bool]string{true: "yes", false: "no"}[g.Bounded],
			string(g.Consumers), map[bool]string{true: "unlocked", false: "locked"}[g.Unlocked], cmp.Or(string(g.Throttles), chart.None),
		}
	}},
	{[]impls.Family{impls.Store}, []string{"LISTS", "READERS"}, func(g impls.Guarantees) []string {
		return []string{string(g.Lists), map[bool]string{true: "do not wait for writers", false: "wait for writers"}[g.Unlocked]}
	}},
	{[]impls.Family{impls.Workqueue}, []string{"ORDER"}, func(g impls.Guarantees) []string { return []string{string(g.Order)} }},
}

// Variants writes the guarantees of all variants, in a table for each kind of family, and their
// descriptions below.
func Variants(w io.Writer) error {
	all := entries()
	for i, t := range guaranteeTables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		table := chart.NewTable("", append([]string{"FAMILY", "VARIANT"}, t.columns...))
		table.Gap = 1
		for _, e := range all {
			for _, g := range e.guarantees {
				if slices.Contains(t.families, e.family) {
					table.Add(append([]string{string(e.family), e.name}, t.row(g)...)...)
				}
			}
		}
		if err := table.Text(w); err != nil {
			return err
		}
	}
	for _, e := range all {
		text := e.summary
		var dropIns []string
		for _, g := range e.guarantees {
			if g.DropIn != "" && !slices.Contains(dropIns, g.DropIn) {
				dropIns = append(dropIns, g.DropIn)
			}
		}
		if len(dropIns) > 0 {
			text += "; drop-in: " + strings.Join(dropIns, ", ")
		}
		if e.upstream != "" {
			text += "; from " + e.upstream
		}
		doc := (&comment.Parser{}).Parse(text)
		fmt.Fprintf(w, "\n%s/%s\n%s", e.family, e.name, (&comment.Printer{TextPrefix: "  ", TextWidth: textWidth - 2}).Text(doc))
	}
	return nil
}

// Storms writes the profiles and the recordings that are built in.
func Storms(w io.Writer) error {
	t := chart.NewTable("", []string{"NAME", "NODES", "PODS", "LENGTH", "RESOURCES", "WHAT HAPPENS"})
	number := func(n int) string {
		if n == 0 {
			return chart.None
		}
		return strconv.Itoa(n)
	}
	for _, p := range storm.Profiles() {
		row := []string{p.Name(), number(p.Nodes), number(p.Pods), p.Length().String()}
		// The resources do not depend on the size, so the smallest storm is enough.
		p.Resize(0, 0, 1e-3)
		g, err := p.Generator(1)
		if err != nil {
			return err
		}
		var resources []string
		for _, r := range g.Resources() {
			resources = append(resources, r.Resource)
		}
		t.Add(append(row, strings.Join(resources, ", "), p.Summary())...)
	}
	for _, name := range trace.Names() {
		t.Add(name, chart.None, chart.None, chart.None, chart.None, "a recording that is built in")
	}
	return t.Text(w)
}

// Storm writes the parameters of a profile, the numbers of objects and events of each resource of its storm, and their
// mean rate.
func Storm(w io.Writer, p *storm.Profile, g *storm.Generator) error {
	fmt.Fprintf(w, "%s: %s\n%s\n", p.Name(), p.Summary(), strings.Join(p.Params(), "\n"))
	resources := g.Resources()
	initial, counts, last := make([]int, len(resources)), make([][4]int, len(resources)), time.Duration(0)
	for s := range g.Initial {
		initial[s.Stream]++
	}
	types := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}
	for s := (storm.Step{}); g.Next(&s); {
		last = max(last, s.At)
		counts[s.Stream][0]++
		counts[s.Stream][1+slices.Index(types, s.Type)]++
	}
	t := chart.NewTable("", nil, "resource", "at first", "events", "added", "modified", "deleted", "events/s")
	for i, r := range resources {
		row := []string{r.Resource, strconv.Itoa(initial[i])}
		for _, n := range counts[i] {
			row = append(row, strconv.Itoa(n))
		}
		t.Add(append(row, fmt.Sprintf("%.1f", float64(counts[i][0])/last.Seconds()))...)
	}
	_, err := io.WriteString(w, t.Fitted("  ", math.MaxInt))
	return err
}
