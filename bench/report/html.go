package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/report/chart"
)

// HTMLFile is the name of the report's page in a results folder.
const HTMLFile = "report.html"

//go:embed html
var htmlFiles embed.FS

var htmlPage = template.Must(template.New("page.html").ParseFS(htmlFiles, "html/page.html"))

// HTML writes the run as one self-contained page: it needs no network and no other
// file. The question comes first, then the verdict. Knees, scaling and surfaces follow,
// then each comparison with tables and charts, the losses, and the method.
//
// Each chart has a table of its figures. A script on the page adds tooltips for pointer
// and arrow keys, switches series and rates, and selects the theme. Without the script
// everything is visible. The page draws no figures of an invalid cell.
//
// Full distributions need the histograms of the rounds, which [lab.Load] reads. A run
// without histograms shows only quantiles. An unreadable histogram is an error, because
// a silent gap in the page would mislead.
func HTML(w io.Writer, o *lab.Outcome) error {
	p, err := newPage(o)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := htmlPage.Execute(&b, p); err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// page is the data of the template.
type page struct {
	Title, Subtitle string
	Palette, Style  template.CSS
	Script          template.JS
	Nav             []link
	Asked           []term
	Verdict         verdictView
	Sections        []section
	Losses          []string
	Method          []string
	Environment     []string
	Commit          string
	Command         string
	BenchFile       string
}

type link struct{ ID, Text string }

// term is an entry of a description list. Code selects the font for commands and
// hashes.
type term struct {
	Name   string
	Values []string
	Code   bool
}

// section is a comparison or a sweep: a first table, the legend, the panels, and the
// other tables. More is the collapsed part of the legend.
type section struct {
	ID, Heading, Intro string
	Tables             []htmlTable
	Legend, More       []string
	Panels             []panel
}

// panel holds the charts of comparable cells. Its legend switches series in all of
// them. Choices are rates; the page shows one at a time.
type panel struct {
	ID, Title string
	Open      bool
	Notes     []string
	Legend    []series
	Choices   []string
	Figures   []figure
}

// series is an entry of a legend.
type series struct {
	Name     string
	Key      template.HTML
	Baseline bool
}

// figure is a chart with its texts. Choice is the rate that the figure belongs to;
// empty means all rates.
type figure struct {
	ID, Kind, Title, Caption string
	Choice                   string
	SVG                      template.HTML
	Parts                    []chart.Part
	Table                    htmlTable
}

// htmlTable is a table whose first column is the row header.
type htmlTable struct {
	Caption string
	Header  []htmlCell
	Rows    [][]htmlCell
}

type htmlCell struct{ Text, Class string }

// newPage collects the data of the page.
func newPage(o *lab.Outcome) (*page, error) {
	style, err := htmlFiles.ReadFile("html/style.css")
	if err != nil {
		return nil, err
	}
	script, err := htmlFiles.ReadFile("html/script.js")
	if err != nil {
		return nil, err
	}
	p := &page{
		Title: orElse(o.Name, "run") + partial(o), Subtitle: subtitle(o),
		Palette: chart.CSS(), Style: template.CSS(style), Script: template.JS(script),
		Method: method(o), Environment: environment(o),
		Command: command(o), BenchFile: lab.BenchFile,
	}
	if o.Env.Commit != "" {
		p.Commit = o.Env.Commit + dirty(o.Env.Dirty)
	}
	styles := stylesOf(o)
	// The answers of sweeps come first.
	p.Sections = sweepSections(o, styles)
	swept := len(p.Sections) > 0
	var views []tableView
	for i := range o.Comparisons {
		v := view(&o.Comparisons[i], o.RoundsOf(o.Comparisons[i]))
		views = append(views, v)
		s, err := comparisonSection(fmt.Sprintf("c%d", i+1), &o.Comparisons[i], v, o.RoundsOf(o.Comparisons[i]), swept, styles)
		if err != nil {
			return nil, err
		}
		s.Intro += partial(o)
		p.Sections = append(p.Sections, s)
	}
	if t := shares(o); len(t.grid.rows) > 0 {
		s := section{ID: "shares", Heading: t.title}
		s.Intro, t.legend = t.legend[0], t.legend[1:]
		s.add(t)
		p.Sections = append(p.Sections, s)
	}
	p.Asked = asked(o)
	p.Verdict = verdictOf(o, views)
	p.Losses = losses(views)
	p.Nav = append(p.Nav, link{"asked", "What was asked"}, link{"verdict", "Verdict"})
	for _, s := range p.Sections {
		p.Nav = append(p.Nav, link{s.ID, s.Heading})
	}
	p.Nav = append(p.Nav, link{"loses", "Where it loses"}, link{"method", "Method"}, link{"environment", "Environment"}, link{"reproduce", "How to reproduce"})
	return p, nil
}

func subtitle(o *lab.Outcome) string {
	parts := []string{o.Started.UTC().Format("2006-01-02 15:04 MST")}
	if o.Ended != nil {
		parts = append(parts, "took "+wallTime(o.Ended.Sub(o.Started)))
	}
	if o.Merged != nil {
		parts = append(parts, o.Merged.String())
	}
	if o.Env.CPU != "" {
		parts = append(parts, fmt.Sprintf("%s on %s", Plural(o.Env.Cores, "core"), o.Env.CPU))
	}
	return strings.Join(parts, " · ")
}

// command returns the command line of the run.
func command(o *lab.Outcome) string {
	return strings.Join(append([]string{"watchlab"}, quoteAll(o.Env.Args)...), " ")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// htmlGrid converts a grid.
func htmlGrid(caption string, g grid) htmlTable {
	t := htmlTable{Caption: caption}
	class := func(i int) string {
		if g.left[i] {
			return "word"
		}
		return "figure"
	}
	for i, h := range g.header {
		t.Header = append(t.Header, htmlCell{h, class(i)})
	}
	for _, row := range g.rows {
		var cells []htmlCell
		for i, s := range row {
			c := htmlCell{s, class(i)}
			if class := verdictClass(s); g.header[i] == "verdict" && class != "" {
				c.Class += " " + class
			}
			cells = append(cells, c)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// verdictClass returns the CSS class of a verdict. The text repeats the information of
// the colour.
func verdictClass(s string) string {
	for _, v := range []struct {
		status lab.Status
		class  string
	}{{lab.Valid, "good"}, {lab.Noisy, "warn"}, {lab.Invalid, "bad"}, {lab.Unplayed, "warn"}} {
		if strings.HasPrefix(s, string(v.status)) {
			return v.class
		}
	}
	return ""
}

// chartTable converts the table of a chart.
func chartTable(caption string, t chart.Table) htmlTable {
	out := htmlTable{Caption: caption}
	class := func(i int) string {
		if i == 0 {
			return "word"
		}
		return "figure"
	}
	for i, h := range t.Header {
		out.Header = append(out.Header, htmlCell{h, class(i)})
	}
	for _, row := range t.Rows {
		var cells []htmlCell
		for i, s := range row {
			cells = append(cells, htmlCell{s, class(i)})
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// draw makes a figure of a chart; false if the chart is empty.
func draw(id, kind, title, caption, choice string, c chart.Chart) (figure, bool) {
	if c.Empty() {
		return figure{}, false
	}
	f := figure{ID: id, Kind: kind, Title: title, Caption: caption, Choice: choice, SVG: c.SVG(id), Table: chartTable(title, c.Table())}
	if s, ok := c.(chart.Shares); ok {
		f.Parts = s.Keys()
	}
	return f, true
}
