// Package flame draws flame graphs: of one profile, or of the difference of two.
//
// Each frame is a function where a certain way of calls led to it, below its caller
// and above what it called, as wide as its share. In a differential graph a frame is
// as wide as all that stands below it, and each function's own part as wide as the
// greater of the two profiles': so what has gone is seen as well as what has come,
// unlike in a graph that is drawn by one of them. Colour says how much a frame has
// grown (red) or shrunk (blue); what may be chance stays grey. Children stand in the
// order of their names, so that graphs can be compared.
//
// The idea is Brendan Gregg's ("Differential Flame Graphs", 2014); the widths of
// both and the treatment of chance are not.
package flame

import (
	_ "embed" // for the page
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"watchlab/bench/profile"
)

// Measures of the drawing, in pixels before it is scaled to the page.
const (
	width     = 1200.0
	rowHeight = 18.0
	// charWidth is of the 12 px font, on the wide side.
	charWidth = 7.0
	// narrowest is what is drawn: half a pixel.
	narrowest = 0.5
	// deepest is how many calls are drawn below each other.
	deepest = 512
)

// box is a frame as it is drawn.
type box struct {
	Frame *profile.Frame

	Start, Width float64
	Depth        int
	Fill         string

	Alike bool

	Says string
}

// X, Y, W are in pixels.
func (b box) X() string     { return pixels(b.Start * width) }
func (b box) Y() string     { return pixels(float64(b.Depth) * rowHeight) }
func (b box) W() string     { return pixels(max(b.Width*width-0.5, 0.3)) }
func (b box) TextX() string { return pixels(b.Start*width + 3) }
func (b box) TextY() string { return pixels(float64(b.Depth)*rowHeight + 13) }

// Exact shares, for the script that zooms.
func (b box) StartShare() string { return strconv.FormatFloat(b.Start, 'g', 8, 64) }
func (b box) WidthShare() string { return strconv.FormatFloat(b.Width, 'g', 8, 64) }

// Label is as much of the name as fits.
func (b box) Label() string {
	room := int((b.Width*width - 6) / charWidth)
	name := b.Frame.Short
	if room < 3 {
		return ""
	}
	if utf8.RuneCountInString(name) <= room {
		return name
	}
	runes := []rune(name)
	return string(runes[:room-1]) + "…"
}

func pixels(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

// drawing is what the templates are filled with.
type drawing struct {
	*profile.Graph
	Title  string
	Boxes  []box
	Height float64

	Narrow int
	Table  *profile.Table

	More int
}

func newDrawing(title string, g *profile.Graph) *drawing {
	d := &drawing{Graph: g, Title: title}
	if all := span(g.Root); all > 0 {
		d.place(g.Root, 0, 0, all)
	}
	for _, b := range d.Boxes {
		d.Height = max(d.Height, float64(b.Depth+1)*rowHeight)
	}
	return d
}

// span is how wide a frame is: its own part as the greater of both profiles', and
// what it called.
func span(f *profile.Frame) float64 {
	sum := max(f.Flat.Before, f.Flat.After)
	for _, c := range f.Children {
		sum += span(c)
	}
	return sum
}

func (d *drawing) place(f *profile.Frame, start float64, depth int, all float64) {
	w := span(f) / all
	if w*width < narrowest || depth >= deepest {
		d.Narrow += count(f)
		return
	}
	fill := d.colour(f)
	d.Boxes = append(d.Boxes, box{
		Frame: f, Start: start, Width: w, Depth: depth,
		Fill: fill.String(), Alike: fill == neutral, Says: d.says(f),
	})
	for _, c := range f.Children {
		d.place(c, start, depth+1, all)
		start += span(c) / all
	}
}

func count(f *profile.Frame) int {
	n := 1
	for _, c := range f.Children {
		n += count(c)
	}
	return n
}

// rgb is a colour, mixed by parts.
type rgb [3]float64

// The colours' ends. Dark text stands out on all of them (see TestContrast).
var (
	neutral = rgb{226, 226, 226}
	grown   = rgb{240, 118, 98}
	shrunk  = rgb{108, 168, 240}
	single  = rgb{242, 196, 120}
)

func (c rgb) mix(other rgb, part float64) rgb {
	for i := range c {
		c[i] += (other[i] - c[i]) * part
	}
	return c
}

func (c rgb) String() string {
	return fmt.Sprintf("#%02x%02x%02x", int(math.Round(c[0])), int(math.Round(c[1])), int(math.Round(c[2])))
}

// colour is how much the frame has changed, of what both profiles have of it: what
// has come or gone has the full colour.
func (d *drawing) colour(f *profile.Frame) rgb {
	if d.Before == nil {
		return single
	}
	both := f.Cum.Before + f.Cum.After
	if both == 0 || f.Cum.Chance {
		return neutral
	}
	change := f.Cum.Change() / both
	if change < 0 {
		return neutral.mix(shrunk, -change)
	}
	return neutral.mix(grown, change)
}

func (d *drawing) says(f *profile.Frame) string {
	if d.Before == nil {
		return fmt.Sprintf("%s: %s %s", f.Name, profile.Figure(f.Cum.After), d.Unit)
	}
	says := fmt.Sprintf("%s: %s → %s %s (%s)", f.Name,
		profile.Figure(f.Cum.Before), profile.Figure(f.Cum.After), d.Unit, change(f.Cum))
	if f.Cum.Chance {
		says += ", no more than sampling brings about"
	}
	return says
}

func change(p profile.Pair) string {
	switch {
	case p.Before == 0 && p.After == 0:
		return "none"
	case p.Before == 0:
		return "new"
	case p.After == 0:
		return "gone"
	}
	return fmt.Sprintf("%s, %+.0f %%", profile.Signed(p.Change()), p.Change()/p.Before*100)
}

//go:embed graph.svg.tmpl
var graph string

//go:embed page.html.tmpl
var page string

//go:embed page.css
var css template.CSS

//go:embed page.js
var script template.JS

var pictures = template.Must(template.New("page").Funcs(template.FuncMap{
	"figure": profile.Figure,
	"signed": profile.Signed,
	"css":    func() template.CSS { return css },
	"script": func() template.JS { return script },
	"short":  profile.Short,
	"change": change,
}).Parse(page + `{{define "graph"}}` + graph + `{{end}}`))

// SVG writes the graph as a picture. Each frame has a title, which browsers show
// when it is pointed at.
func SVG(w io.Writer, title string, g *profile.Graph) error {
	if _, err := io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"); err != nil {
		return err
	}
	return pictures.ExecuteTemplate(w, "graph", newDrawing(title, g))
}

// listed is how many rows of the table a page shows.
const listed = 100

// HTML writes the graph as a page that needs nothing else: frames can be zoomed
// into and searched for, by mouse and by keyboard, and the table of the functions
// that moved most stands below, with all figures for those who don't see the graph.
func HTML(w io.Writer, title string, g *profile.Graph, t *profile.Table) error {
	d := newDrawing(title, g)
	rows := *t
	d.More = max(len(rows.Rows)-listed, 0)
	rows.Rows = rows.Rows[:min(len(rows.Rows), listed)]
	d.Table = &rows
	return pictures.ExecuteTemplate(w, "page", d)
}
