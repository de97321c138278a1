package report

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// document is a run prepared for output. [Table], [Markdown] and [HTML] lay it out.
type document struct {
	Title, Subtitle string
	Started         string
	Lead            string // answer in one sentence about a controller; empty for other runs
	Verdict         verdict
	Summary         []*summary
	// Sections holds the sweeps, the comparisons and the shares of a merged run, in this
	// order: the results of sweeps come first.
	Sections    []section
	Losses      []string
	Method      []string
	Environment []string
	Commit      string
	Command     string
	BenchFile   string
}

// section is a comparison, a kind of sweep, or the shares. HTML shows the panels first and folds the
// tables below them.
type section struct {
	ID, Heading, Intro string
	Tables             []*chart.Table
	Panels             []panel
	// Command is shown below the introduction.
	Command string
}

// panel holds the charts of comparable cells. Its legend switches series in all of them.
type panel struct {
	ID, Title string
	Notes     []string
	Legend    []series
	Figures   []figure
}

// series is an entry of a legend.
type series struct {
	Name     string
	Key      template.HTML
	Baseline bool
}

// figure is a chart with its texts.
type figure struct {
	ID, Kind, Title, Caption string
	SVG                      template.HTML
	Parts                    []part
	Table                    *chart.Table
}

// part is an entry of the legend of a [shareChart]. It does not switch series.
type part struct {
	Name string
	Slot int
}

// newDocument prepares a run, with charts if wanted.
func newDocument(o *lab.Outcome, charts bool) (*document, error) {
	d := &document{
		Title: cmp.Or(o.Name, "run") + partial(o), Started: startOf(o), Commit: commit(o),
		Command: "watchlab run " + lab.ExperimentFile, BenchFile: lab.BenchFile,
	}
	if len(o.Env.Args) > 0 { // an experiment of reproduce has none
		d.Command = lab.CommandLine(append([]string{"watchlab"}, o.Env.Args...))
	}
	var methodErr, environmentErr error
	d.Method, methodErr = textLines("method", o)
	d.Environment, environmentErr = textLines("environment", o)
	if err := errors.Join(methodErr, environmentErr); err != nil {
		return nil, err
	}
	d.Subtitle, d.Sections = subtitle(o), sweeps(o, charts)
	r := newRun(o)
	for i, c := range r.comparisons {
		s := c.section(fmt.Sprintf("c%d", i+1), o)
		// A scale has a chart of its own, and its tables have all values.
		scaled := slices.ContainsFunc(o.Scalings, func(s stats.Scaling) bool { return slices.Contains(c.varying, s.Over) })
		if charts && !scaled {
			s.Panels = c.panels(s.ID)
		}
		d.Sections = append(d.Sections, s)
	}
	if o.Merged != nil {
		d.Sections = append(d.Sections, shares(o.Merged))
	}
	d.Verdict, d.Summary, d.Losses = newVerdict(r), r.summaries(), losses(r)
	if charts {
		d.Summary = drawn(d.Summary)
	}
	return d, nil
}

func startOf(o *lab.Outcome) string { return o.Started.UTC().Format("2006-01-02 15:04 MST") }

func subtitle(o *lab.Outcome) string {
	parts := []string{startOf(o)}
	if o.Ended != nil {
		parts = append(parts, "took "+duration.HumanDuration(o.Ended.Sub(o.Started)))
	}
	if o.Merged != nil {
		parts = append(parts, o.Merged.String())
	}
	if o.Env.CPU != "" {
		parts = append(parts, fmt.Sprintf("%s on %s", lab.Plural(o.Env.Cores, "core"), o.Env.CPU))
	}
	return strings.Join(parts, " · ")
}

// losses describes each row that is worse than its baseline, and by how much. A
// difference that is not significant is not a loss. An untestable difference is listed
// and marked.
func losses(o run) []string {
	var out []string
	for _, c := range o.comparisons {
		for _, r := range c.rows {
			name := r.throughput.BenchName()
			for _, f := range []struct{ what, unit string }{
				{"events/s", stats.UnitEventsPerSec}, {"CPU time/event", r.cpu()}, {"p99 " + lab.RateText(r.rate()), stats.UnitP99},
				{"allocations/event", stats.UnitAllocsPerOp}, {"bytes/event", stats.UnitBytesPerOp},
			} {
				a, test := r.against(f.unit), tooFew
				if a.Testable {
					test = stats.PText(a.P)
				}
				worse := a.Ratio > 1
				if stats.Better(f.unit) == stats.Higher {
					worse = a.Ratio < 1
				}
				if a.missing == "" && worse && (a.Significant || !a.Testable) {
					out = append(out, fmt.Sprintf("%s: %s %s of %s (%s)", name, f.what, chart.Times(a.Ratio), r.base.variant(), test))
				}
			}
		}
	}
	// Rows that share a cell have the same losses.
	return distinct(out)
}

// textLines returns the lines of a list in text/lines.txt.
func textLines(list string, o *lab.Outcome) ([]string, error) {
	var b strings.Builder
	if err := textForms.ExecuteTemplate(&b, list, o); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Split(b.String(), "\n"), func(line string) bool { return line == "" }), nil
}

func interrupted(o *lab.Outcome) string {
	finished, all := o.Finished()
	return fmt.Sprintf("Interrupted: %d of %d cells have all their rounds.", finished, all)
}

// commit returns the commit of the measuring program, or "" if it is unknown.
func commit(o *lab.Outcome) string {
	if o.Env.Commit != "" && o.Env.Dirty {
		return o.Env.Commit + " (with changes)"
	}
	return o.Env.Commit
}
