package flame

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"watchlab/bench/profile"
)

// frame makes one up; its cumulative figures are summed.
func frame(name string, before, after float64, children ...*profile.Frame) *profile.Frame {
	f := &profile.Frame{Name: "example.com/" + name, Short: name, Children: children}
	f.Flat = profile.Pair{Before: before, After: after}
	f.Cum = f.Flat
	for _, c := range children {
		f.Cum.Before += c.Cum.Before
		f.Cum.After += c.Cum.After
	}
	return f
}

// graphs: of 100 before, Pop took 60, now 15; encode has come, decode has gone.
func graphs() *profile.Graph {
	root := frame("all", 0, 0,
		frame("queue.Pop", 60, 15, frame("main.encode<T>", 0, 20)),
		frame("store.Update", 30, 30),
		frame("store.decode", 10, 0))
	root.Children[1].Cum.Chance = true
	return &profile.Graph{
		Kind: "cpu", Unit: "ns/event", Root: root,
		Before: &profile.Total{Name: "old", Value: 100, Samples: 1000}, After: profile.Total{Name: "new", Value: 65, Samples: 650},
	}
}

// TestPlaces: a frame is as wide as its own part, the greater of both, and what it
// called.
func TestPlaces(t *testing.T) {
	d := newDrawing("x", graphs())
	want := map[string]struct {
		start, width float64
		depth        int
		fill         string
	}{

		"all":            {0, 1, 0, neutral.mix(shrunk, 35.0/165).String()},
		"queue.Pop":      {0, 80.0 / 120, 1, neutral.mix(shrunk, 25.0/95).String()},
		"main.encode<T>": {0, 20.0 / 120, 2, grown.String()},
		"store.Update":   {80.0 / 120, 30.0 / 120, 1, neutral.String()},
		"store.decode":   {110.0 / 120, 10.0 / 120, 1, shrunk.String()},
	}
	if len(d.Boxes) != len(want) || d.Height != 3*rowHeight || d.Narrow != 0 {
		t.Errorf("%d boxes, height %v, %d too narrow", len(d.Boxes), d.Height, d.Narrow)
	}
	for _, b := range d.Boxes {
		w := want[b.Frame.Short]
		if math.Abs(b.Start-w.start) > 1e-9 || math.Abs(b.Width-w.width) > 1e-9 || b.Depth != w.depth || b.Fill != w.fill {
			t.Errorf("%s: %+v, want %+v", b.Frame.Short, b, w)
		}
	}
}

func TestNarrowFramesAreCounted(t *testing.T) {
	deep := frame("leaf", 0, 1e6)
	for range deepest + 9 {
		deep = frame("f", 0, 0, deep)
	}
	g := graphs()
	g.Root = frame("all", 0, 0, frame("big", 1e6, 1e6), frame("small", 1, 1, frame("smaller", 1, 1)), deep)
	d := newDrawing("x", g)
	// small, smaller; the leaf; and what is too deep: all is at 0, so that of the
	// deepest+10 in the stack deepest-1 are drawn.
	if d.Narrow != 2+11 || len(d.Boxes) != 2+deepest-1 {
		t.Errorf("%d narrow, %d drawn", d.Narrow, len(d.Boxes))
	}
}

func draw(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSVG: it is well-formed whatever functions are called, and each frame has its
// title and can be reached by one way only.
func TestSVG(t *testing.T) {
	svg := draw(t, func(w io.Writer) error { return SVG(w, `a "title" & <more>`, graphs()) })
	titles, stops := 0, 0
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if start.Name.Local == "title" {
			titles++
		}
		for _, a := range start.Attr {
			if a.Name.Local == "tabindex" && a.Value == "0" {
				stops++
			}
		}
	}
	if titles != 1+5 || stops != 1 {
		t.Errorf("%d titles, %d stops of the Tab key", titles, stops)
	}
	for _, want := range []string{
		"example.com/queue.Pop: 60.0 → 35.0 ns/event (-25.0, -42 %)",
		"example.com/main.encode&lt;T&gt;: 0 → 20.0 ns/event (new)",
		"example.com/store.decode: 10.0 → 0 ns/event (gone)",
		"example.com/store.Update: 30.0 → 30.0 ns/event (0, +0 %), no more than sampling brings about",
	} {
		if !strings.Contains(strings.ReplaceAll(svg, "&#43;", "+"), want) {
			t.Errorf("no %q in:\n%s", want, svg)
		}
	}
}

// TestHTMLNeedsNothingElse: no address but the name of SVG's language stands in it.
func TestHTMLNeedsNothingElse(t *testing.T) {
	table := &profile.Table{Kind: "cpu", Unit: "ns/event", Before: graphs().Before, After: graphs().After}
	for range listed + 5 {
		table.Rows = append(table.Rows, profile.Row{Name: "<script>alert(1)</script>", Flat: profile.Pair{Before: 1, After: 2}, Cum: profile.Pair{After: 1, Chance: true}})
	}
	html := draw(t, func(w io.Writer) error { return HTML(w, "x", graphs(), table) })
	rest := strings.ReplaceAll(html, `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, not := range []string{"http:", "https:", "//cdn", "src=", "@import", "<script>alert"} {
		if strings.Contains(rest, not) {
			t.Errorf("%q stands in the page", not)
		}
	}
	for _, want := range []string{"And 5 more", `lang="en"`, `class="grown"`, `id="search"`, "querySelector"} {
		if !strings.Contains(html, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if n := strings.Count(html, "<tr><th scope=\"row\""); n != listed {
		t.Errorf("%d rows", n)
	}
}

func TestSingle(t *testing.T) {
	g := graphs()
	g.Before = nil
	table := &profile.Table{Kind: "cpu", Unit: "%", After: g.After, Rows: []profile.Row{{Name: "f", Flat: profile.Pair{After: 4}}}}
	html := draw(t, func(w io.Writer) error { return HTML(w, "x", g, table) })
	if strings.Contains(html, "shrunk</li>") || !strings.Contains(html, "What took most") || !strings.Contains(html, single.String()) {
		t.Error("a single profile is drawn as a difference")
	}
}

// TestContrast: the text is readable on every colour that a frame may have
// (WCAG 2.2, 1.4.3: 4.5 to 1).
func TestContrast(t *testing.T) {
	text := luminance(rgb{0x16, 0x18, 0x1d})
	for _, end := range []rgb{shrunk, grown, single} {
		for part := 0.0; part <= 1; part += 0.1 {
			c := neutral.mix(end, part)
			if ratio := (luminance(c) + 0.05) / (text + 0.05); ratio < 4.5 {
				t.Errorf("%s: %.1f to 1", c, ratio)
			}
		}
	}
	// In the dark theme, what hasn't changed is dark itself (page.css).
	if ratio := (luminance(rgb{0xe8, 0xea, 0xee}) + 0.05) / (luminance(rgb{0x4a, 0x50, 0x5c}) + 0.05); ratio < 4.5 {
		t.Errorf("alike in the dark: %.1f to 1", ratio)
	}
}

// luminance is WCAG's relative luminance.
func luminance(c rgb) float64 {
	linear := func(v float64) float64 {
		if v /= 255; v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}
