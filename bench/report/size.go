package report

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/controller"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// sizeColumns are the figures of the table.
var sizeColumns = []struct {
	unit, title string
	format      func(float64) string
}{
	{controller.UnitPeak, "peak", chart.Bytes},
	{controller.UnitRest, "at rest", chart.Bytes},
	{controller.UnitStartSent, "sent", chart.Bytes},
	{controller.UnitStartCPU, "CPU", chart.Nanoseconds},
	{controller.UnitStartCalls, "requests", func(v float64) string { return chart.Decimal(math.Round(v*1000) / 1000) }},
}

// SizeText writes the prediction in a sentence, the law of each resource, the watches, and what would save.
func SizeText(w io.Writer, o *controller.Sized) error {
	if len(o.Laws) == 0 {
		_, err := fmt.Fprintf(w, "No answer: %s measured, too few for a fit.\n", lab.Plural(len(o.Points), "point"))
		return err
	}
	fmt.Fprintf(w, "%s\n\n", sizeSentence(o))
	for _, t := range []*chart.Table{sizeTable(o), watchTable(o)} {
		if err := t.Text(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, line := range savings(o) {
		fmt.Fprintln(w, line)
	}
	busy := 0
	for _, p := range o.Points {
		if p.Busy {
			busy++
		}
	}
	if busy > 0 {
		fmt.Fprintf(w, "In %d of %d points it was still busy after %v: CPU and requests are those so far.\n", busy, len(o.Points), o.Sizing.Settle.Duration)
	}
	return nil
}

func sizeSentence(o *controller.Sized) string {
	var counts []string
	for _, resource := range o.Resources {
		if n := o.AtCounts[resource]; n > 0 {
			counts = append(counts, fmt.Sprintf("%s %s", chart.Count(float64(n)), resource))
		}
	}
	peak := o.At[controller.UnitPeak]
	return fmt.Sprintf("With %s the program takes %s of memory at its peak.", cmp.Or(strings.Join(counts, ", "), "no objects"), chart.Bytes(peak.Value))
}

// sizeTable has what one object more of each resource takes, the program itself, and all of it at the numbers asked for.
func sizeTable(o *controller.Sized) *chart.Table {
	t := chart.NewTable("", []string{"one more of"}, "peak", "interval")
	for _, c := range sizeColumns[1:] {
		t.Figures(c.title)
	}
	add := func(name string, of func(unit string) stats.Estimate) {
		peak := of(controller.UnitPeak)
		row := []string{name, chart.Bytes(max(0, peak.Value)), chart.Bytes(max(0, peak.Lo)) + "–" + chart.Bytes(max(0, peak.Hi))}
		for _, c := range sizeColumns[1:] {
			row = append(row, c.format(max(0, of(c.unit).Value)))
		}
		t.Add(row...)
	}
	for i, resource := range o.Resources {
		add(resource, func(unit string) stats.Estimate { return o.Laws[unit][i+1] })
	}
	add("the program", func(unit string) stats.Estimate { return o.Laws[unit][0] })
	add("all of it", func(unit string) stats.Estimate { return o.At[unit] })
	return t
}

// held is the memory that the objects of a watch take at its peak, for the numbers asked for.
func held(o *controller.Sized, resource string) float64 {
	i := slices.Index(o.Resources, resource)
	if i < 0 {
		return 0
	}
	return max(0, o.Laws[controller.UnitPeak][i+1].Value) * float64(o.AtCounts[resource])
}

// watchTable has what the program watches.
func watchTable(o *controller.Sized) *chart.Table {
	t := chart.NewTable("", []string{"watch", "of", "selector", "as"}, "sent", "memory")
	for _, w := range o.Watches {
		as, memory := w.Encoding, chart.None
		if w.Metadata {
			as += ", metadata"
		}
		if slices.Contains(o.Resources, w.Resource) {
			memory = chart.Bytes(held(o, w.Resource))
		}
		t.Add(w.Resource, cmp.Or(w.Scope, "all namespaces"), cmp.Or(w.Selector, chart.None), as, chart.Bytes(float64(w.Sent)), memory)
	}
	return t
}

// least is the smallest saving that is worth a line.
const least = 1 << 20

// savings are what would save memory, by the requests alone: what the program does with its cache is not known.
func savings(o *controller.Sized) (lines []string) {
	for _, w := range o.Watches {
		memory := held(o, w.Resource)
		at, lists := fmt.Sprintf("%s at %s", w.Resource, chart.Count(float64(o.AtCounts[w.Resource]))), w.Resource
		if w.Scope == "" && w.Selector == "" {
			lists = "all " + lists
		}
		if saved := memory * w.Body; saved > least && !w.Metadata && !w.Used {
			lines = append(lines, fmt.Sprintf("It lists %s and never gets or writes one: a cache of their metadata saves about %s (%s), a filtered one more.",
				lists, chart.Bytes(saved), at))
		} else if saved := memory * w.Managed; saved > least {
			lines = append(lines, fmt.Sprintf("A transform that drops managed fields saves about %s (%s).", chart.Bytes(saved), at))
		}
	}
	return lines
}

// SizeChart writes a page with the peak over the number of objects of each resource, and its law. There must be laws.
func SizeChart(w io.Writer, o *controller.Sized) error {
	c := chart.Lines{X: chart.Axis{Label: "objects", Zero: true, Format: chart.Count}, Y: chart.Axis{Label: "peak, MiB", Zero: true, Format: chart.Count}}
	legend := ""
	law, fewest := o.Laws[controller.UnitPeak], o.Points[0].Counts
	for i, resource := range o.Resources {
		style := chart.Nth(i)
		legend += fmt.Sprintf("<p>%s %s", chart.Key(style), template.HTMLEscapeString(resource))
		points := chart.Curve{Name: resource, Style: style, Dots: true}
		base, most := law[0].Value, float64(o.AtCounts[resource])
		for k, other := range o.Resources {
			if k != i {
				base += law[k+1].Value * float64(fewest[other])
			}
		}
		for _, p := range o.Points {
			// Of one resource at a time: the others are at their least.
			if slices.ContainsFunc(o.Resources, func(other string) bool { return other != resource && p.Counts[other] != fewest[other] }) {
				continue
			}
			n, mib := float64(p.Counts[resource]), p.Figures[controller.UnitPeak]/(1<<20)
			most = max(most, n)
			points.Points = append(points.Points, chart.Point{X: n, Y: mib, Mark: true, Tip: fmt.Sprintf("%s %.0f: %.1f MiB", resource, n, mib)})
		}
		line := chart.Curve{Name: resource + ", law", Style: style, Path: true}
		for _, x := range []float64{0, most} {
			line.Points = append(line.Points, chart.Point{X: x, Y: (base + law[i+1].Value*x) / (1 << 20)})
		}
		c.Curves = append(c.Curves, line, points)
	}
	svg, _ := chart.Draw(c, "size", "Peak memory", sizeSentence(o))
	_, err := fmt.Fprintf(w, "<!doctype html><meta charset=utf-8><title>watchlab size</title><style>%s body{font:16px sans-serif;max-width:50em;margin:2em auto}</style><p>%s%s%s\n",
		chart.CSS(), sizeSentence(o), svg, legend)
	return err
}
