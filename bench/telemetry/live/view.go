package live

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/telemetry/metric"
)

// State is the state of a run that the page shows.
type State struct {
	Begun             bool // a cell has started
	Round, Rounds     int  // Round 0 is the warm-up; Rounds is 0 with a budget
	Share             float64
	Left              time.Duration // estimated; 0 while unknown
	Rankings          []Ranking
	Over, Interrupted bool
	Sentences         []string              // say who won, after the run
	Report            func(io.Writer) error // writes the report as a page; nil for none
}

// Ranking compares the variants of a group by the rounds so far, the best first.
type Ranking struct {
	Group    string // that of [Labels]
	Knobs    string // benchmark name without the variant and the rate
	Of       string // what Figure is: events/s, or a p99
	Variants []Standing
	Figures  []Figure // those of the report's first screen
	Marks    []Mark   // of the figures
}

// Standing is a variant of a ranking, as the report writes it.
type Standing struct {
	Name    string
	Rounds  int    // finished rounds
	Figure  string // median
	Ratio   string // to the baseline's, or the reason for its absence
	Verdict string
}

// Figure is a chart. SVG is empty without figures, and Caption then says why.
type Figure struct {
	Title, Caption string
	SVG            template.HTML
}

// Mark explains a form of the marks of a chart.
type Mark struct {
	Key  template.HTML
	Text string
}

// message updates a page: the content of elements by their ids, as HTML.
type message struct {
	Title string            `json:"title"`
	Over  bool              `json:"over"`
	Parts map[string]string `json:"parts"`
}

//go:embed parts.html
var partsHTML string

var partForms = template.Must(template.New("").Funcs(template.FuncMap{
	"code": func(s string) template.HTML {
		for i, part := range strings.Split(template.HTMLEscapeString(s), "`") {
			if i == 0 {
				s = part
			} else {
				s += []string{"</code>", "<code>"}[i%2] + part
			}
		}
		return template.HTML(s) // escaped above
	},
	"percent": func(share float64) string { return strconv.Itoa(int(share*100)) + " %" },
	"status":  func(verdict string) string { return strings.SplitN(verdict, ":", 2)[0] },
	"key":     func(variant string) template.HTML { return chart.Key(chart.Of(variant)) },
}).Parse(partsHTML))

// view renders the page for one viewer.
type view struct {
	registry *Registry
	chosen   string // group; empty for that of the current play
	shown    string // group
	played   time.Time
}

// holdGroup is the time without a play of the shown group before another one is shown.
const holdGroup = 5 * time.Second

// scene is the data of the templates.
type scene struct {
	State
	Run, Now, Rest  string // Rest says how the charts' cells are paced
	Groups          []string
	Chosen, Current string   // group; variant, if it is played now
	Ranking         *Ranking // of the shown group; nil before its first round
	Variants        []string // of the charts over time
	Figures         map[string]Figure
}

func (v *view) message(now time.Time) (message, error) {
	s := v.scene(now)
	out := message{Title: fmt.Sprintf("%s · watchlab %s", s.short(), s.Run), Over: s.Over, Parts: map[string]string{}}
	for _, t := range partForms.Templates() {
		if t.Name() == "" || t.Name() == "figure" {
			continue
		}
		var b strings.Builder
		if err := t.Execute(&b, s); err != nil {
			return out, err
		}
		out.Parts[t.Name()] = strings.TrimSpace(b.String())
	}
	return out, nil
}

func (s *scene) short() string {
	switch {
	case s.Interrupted:
		return "interrupted"
	case s.Over:
		return "finished"
	case s.Round == 0:
		return "waiting"
	case s.Rounds == 0:
		return fmt.Sprintf("round %d", s.Round)
	}
	return fmt.Sprintf("round %d of %d", s.Round, s.Rounds)
}

// Status is the state in a sentence.
func (s *scene) Status() string {
	switch {
	case s.Interrupted:
		return "The run was interrupted."
	case s.Over:
		return "The run has finished."
	case !s.Begun:
		return "Waiting for the first round."
	case s.Round == 0 && len(s.Rankings) == 0:
		return "Warm-up. Waiting for the first round."
	case s.Round == 0:
		return "Warm-up."
	}
	text := s.short()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Remaining writes the time left; empty while it is unknown.
func (s *scene) Remaining() string {
	if s.Left <= 0 || s.Over {
		return ""
	}
	return s.Left.Round(time.Second).String() + " left"
}

// play is the current or the last play of a set.
type play struct {
	labels  Labels
	current bool
	points  []Point
}

func (p play) length() time.Duration {
	if len(p.points) == 0 {
		return 0
	}
	return p.points[len(p.points)-1].At
}

func (v *view) scene(now time.Time) *scene {
	r := v.registry
	r.mu.Lock()
	s := &scene{State: r.state, Run: r.run, Chosen: v.chosen}
	sets := slices.Clone(r.sets)
	r.mu.Unlock()
	var plays []play
	for _, set := range sets {
		p := play{labels: set.Labels()}
		if strings.HasSuffix(p.labels.Variant, "-again") {
			continue // the second cell of an A/A pair
		}
		set.Update(func(f *Figures) { p.current = f.Phase != metric.Idle })
		p.points = set.Trail()
		plays = append(plays, p)
		group := p.labels.Group()
		if !slices.Contains(s.Groups, group) {
			s.Groups = append(s.Groups, group)
		}
		if p.current {
			s.Now = "Playing " + p.labels.Variant + " " + lab.RateText(p.labels.Rate) + "."
			if v.shown == "" || v.shown == group || now.Sub(v.played) > holdGroup {
				v.shown, v.played = group, now
			}
		}
	}
	shown := cmp.Or(v.chosen, v.shown)
	if shown == "" && len(s.Groups) > 0 {
		shown = s.Groups[0]
	}
	if at := slices.IndexFunc(s.Rankings, func(r Ranking) bool { return r.Group == shown }); at >= 0 {
		s.Ranking = &s.Rankings[at]
	}
	s.Figures = map[string]Figure{}
	s.overTime(slices.DeleteFunc(plays, func(p play) bool { return p.labels.Group() != shown || len(p.points) == 0 }))
	return s
}

// drawn draws a chart; empty says why it has no figure.
func drawn(id, title, caption, empty string, c chart.Chart, description string) Figure {
	svg, ok := chart.Draw(c, id+"-chart", title, description)
	if !ok {
		return Figure{Title: title, Caption: empty}
	}
	return Figure{Title: title, Caption: caption, SVG: svg}
}

// overTime draws the plays of the group at one rate over the time within the round: of the paced ones
// that with the longest play.
func (s *scene) overTime(plays []play) {
	rate := ""
	if len(plays) > 0 {
		rate = slices.MaxFunc(plays, func(a, b play) int {
			if paced := a.labels.Rate != lab.Unpaced; paced != (b.labels.Rate != lab.Unpaced) {
				return map[bool]int{true: 1, false: -1}[paced]
			}
			return cmp.Compare(a.length(), b.length())
		}).labels.Rate
		s.Rest = lab.RateText(rate)
	}
	plays = slices.DeleteFunc(plays, func(p play) bool { return p.labels.Rate != rate })
	// The current play covers the others.
	slices.SortStableFunc(plays, func(a, b play) int {
		switch {
		case a.current == b.current:
			return 0
		case a.current:
			return 1
		}
		return -1
	})
	x := chart.Axis{Label: "seconds of the round", Zero: true, Format: chart.Count}
	storm := chart.Lines{X: x, Y: chart.Axis{Label: "events/s", Zero: true, Format: chart.Count}}
	depth := chart.Lines{X: x, Y: chart.Axis{Label: "events queued", Zero: true, Format: chart.Count}}
	latency := chart.Lines{X: x, Y: chart.Axis{Label: "p99", Log: true, Format: chart.Time}}
	var last []string
	for _, p := range plays {
		handled, released := p.curve("events/s handled"), p.curve("")
		queued, p99 := p.curve("events queued"), p.curve("")
		released.Background, released.Area, released.Step, released.Path = true, true, true, false
		queued.Points = []chart.Point{{}}
		var before Point
		for i, q := range p.points {
			if past := (q.At - before.At).Seconds(); past > 0 {
				in, out := float64(q.Released-before.Released)/past, float64(q.Handled-before.Handled)/past
				if i == 0 {
					released.Points, handled.Points = []chart.Point{{Y: in}}, []chart.Point{{Y: out}}
				}
				handled.add(q, out, chart.Decimal)
				released.Points = append(released.Points, chart.Point{X: q.At.Seconds(), Y: in})
			}
			queued.add(q, float64(q.Depth), chart.Decimal)
			p99.add(q, q.P99*1e9, chart.Nanoseconds)
			before = q
		}
		if p.current || len(storm.Curves) == 0 {
			storm.Moments = p.moments()
			depth.Moments = storm.Moments
			if rate != lab.Unpaced {
				latency.Moments = storm.Moments
			}
		}
		if len(storm.Curves) == 0 {
			storm.Curves = append(storm.Curves, released.Curve)
		}
		storm.Curves, depth.Curves = append(storm.Curves, handled.Curve), append(depth.Curves, queued.Curve)
		latency.Curves = append(latency.Curves, p99.Curve)
		s.Variants = append(s.Variants, p.labels.Variant)
		last = append(last, p.labels.Variant+" "+handled.last)
		if p.current {
			s.Current = p.labels.Variant
		}
	}
	none := "Waiting for the first round."
	s.Figures["storm"] = drawn("storm", "Storm", "Events released (area) and handled (lines) a second; faults and relists of the current play.", none, storm,
		"Last values: "+strings.Join(last, ", "))
	s.Figures["depth"] = drawn("depth", "Queue depth", "Events in the queue.", none, depth, "Events in the queue over the round.")
	if rate == lab.Unpaced {
		none = "Unpaced cells have no intended times, so they have no latency."
	}
	s.Figures["latency"] = drawn("latency", "Latency, p99", "From the intended time of an event until it is handled.", none, latency, "99th percentile of latency over the round.")
}

// trace is a curve with the text of its last value.
type trace struct {
	chart.Curve
	what, last string
}

func (p play) curve(what string) *trace {
	return &trace{Curve: chart.Curve{Name: p.labels.Variant, Style: chart.Of(p.labels.Variant), Path: true, Bold: p.current}, what: what}
}

// add adds a value, whose mark moves to the end of the curve.
func (c *trace) add(at Point, v float64, format func(float64) string) {
	if n := len(c.Points); n > 0 {
		c.Points[n-1].Mark = false
	}
	c.last = strings.TrimSpace(format(v) + " " + c.what)
	c.Points = append(c.Points, chart.Point{X: at.At.Seconds(), Y: v, Mark: true, Tip: fmt.Sprintf("%s after %.1f s", c.last, at.At.Seconds())})
}

// moments returns the faults and the relists of a play.
func (p play) moments() (out []chart.Moment) {
	var before Point
	for _, q := range p.points {
		for i, n := range []uint64{q.Faults - before.Faults, q.Relists - before.Relists} {
			if name := []string{"fault", "relist"}[i]; n > 0 {
				out = append(out, chart.Moment{At: q.At.Seconds(), Label: name, Tip: fmt.Sprintf("%d × %s by %.1f s", n, name, q.At.Seconds())})
			}
		}
		before = q
	}
	return out
}
