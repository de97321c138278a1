package browser

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// drawn describes a figure of the page from the browser's DOM.
type drawn struct {
	Kind       string
	Series     []string
	Points     int
	Wide, High float64
	Rows       int
}

const figures = `[...document.querySelectorAll("figure")].map(f => ({
	kind: f.dataset.kind,
	series: [...new Set([...f.querySelectorAll("svg [data-series]")].map(g => g.dataset.series))],
	points: f.querySelectorAll("svg .pt").length,
	wide: f.querySelector("svg").getBoundingClientRect().width,
	high: f.querySelector("svg").getBoundingClientRect().height,
	rows: f.querySelectorAll(".data tbody tr").length,
}))`

// TestCharts checks that each chart exists with its series, and that the page has no errors.
func TestCharts(t *testing.T) {
	b := open(t, fixture(t))
	sound := fixtureImpls
	all := append(slices.Clone(sound), lossy)
	type want struct {
		count  int
		series []string
	}
	// Charts of the fixture's first panel. Lists show a broken variant as "invalid", and
	// it has no curve.
	first := map[string]want{
		"throughput": {1, all}, "cpu": {1, all}, "rate": {1, sound}, "distribution": {1, sound},
		"stages": {1, all}, "depth": {1, sound}, "storm": {1, sound},
	}
	got := map[string][]drawn{}
	for _, f := range eval[[]drawn](b, strings.Replace(figures, "document", `document.getElementById("c1")`, 1)) {
		got[f.Kind] = append(got[f.Kind], f)
	}
	for kind, w := range first {
		if len(got[kind]) != w.count {
			t.Errorf("%d charts of kind %s, want %d", len(got[kind]), kind, w.count)
		}
		for _, f := range got[kind] {
			if !slices.Equal(f.Series, w.series) {
				t.Errorf("%s has series %v, want %v", kind, f.Series, w.series)
			}
			if f.Points == 0 || f.Rows == 0 {
				t.Errorf("%s has %d figures and %d rows in its table", kind, f.Points, f.Rows)
			}
		}
	}
	for kind := range got {
		if _, ok := first[kind]; !ok {
			t.Errorf("unexpected chart of kind %s", kind)
		}
	}
	for section, w := range map[string]want{
		"knees": {1, sound[:3]}, "scaling": {2, nil}, "answer": {4, nil},
	} {
		figs := eval[[]drawn](b, strings.Replace(figures, "document", `document.getElementById("`+section+`")`, 1))
		if len(figs) != w.count {
			t.Errorf("%s: %d charts, want %d", section, len(figs), w.count)
		}
		for _, f := range figs {
			if w.series != nil && !slices.Equal(f.Series, w.series) {
				t.Errorf("%s: series %v, want %v", section, f.Series, w.series)
			}
			if f.Points == 0 || f.Wide < 200 || f.High < 80 {
				t.Errorf("%s: %+v", section, f)
			}
		}
	}
	b.sound()
	b.keep("light.png")
}

// TestFirstScreen checks what a reader sees before he scrolls: the winner, its ratio and its verdict. At
// 1200 px nothing is cut off, even with all tables open, and every chart names its axes.
func TestFirstScreen(t *testing.T) {
	b := open(t, fixture(t), chromedp.EmulateViewport(1200, 900))
	seen := eval[string](b, `[...document.querySelectorAll("#answer p, #answer text, #answer .marks li")].filter(e => {
		const r = e.getBoundingClientRect(); return r.height > 0 && r.bottom < innerHeight;
	}).map(e => e.textContent).join("\n")`)
	for _, want := range []string{"on ring handles 6.8 times the events per CPU second", "6.81× (6.81×–6.81×)", "noisy", "invalid: lost", "An event costs ring"} {
		if !strings.Contains(seen, want) {
			t.Errorf("the first screen lacks %q:\n%s", want, seen)
		}
	}
	b.do(chromedp.Evaluate(`for (const d of document.querySelectorAll("details")) d.open = true`, nil))
	if n := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); n > 0 {
		t.Errorf("the page is %d px too wide", n)
	}
	for _, cut := range eval[[]string](b, `[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute("aria-label"))`) {
		t.Errorf("the table %q is cut off", cut)
	}
	for _, chart := range eval[[]string](b, `[...document.querySelectorAll("figure")].filter(f => {
		const names = [...f.querySelectorAll("svg .axis-label")].map(e => e.textContent.trim());
		return !names.length || names.some(n => !n) || !f.querySelector("svg .tick");
	}).map(f => f.id)`) {
		t.Errorf("%s has an axis without a name or values", chart)
	}
	b.sound()
}

var (
	reportFile = flag.String("report", "", "report.html to take a picture of")
	picture    = flag.String("picture", "", "file of the picture")
)

// TestPicture takes the picture of README.md: the first screen of a report.
func TestPicture(t *testing.T) {
	if *reportFile == "" {
		t.Skip("no -report")
	}
	html, err := os.ReadFile(*reportFile)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, html, chromedp.EmulateViewport(1600, 760))
	var shot []byte
	b.do(chromedp.CaptureScreenshot(&shot))
	if err := os.WriteFile(*picture, paletted(t, shot), 0o644); err != nil {
		t.Fatal(err)
	}
	b.sound()
}

// paletted reduces a picture to its 256 most frequent colours: a third of the bytes. A colour counts more
// than a grey, as only the edges of letters have many greys.
func paletted(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.RGBA]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			count[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	var colours color.Palette
	weight := func(c color.RGBA) int { return count[c] * (1 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B))) }
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return weight(b) - weight(a) })[:min(256, len(count))] {
		colours = append(colours, c)
	}
	small := image.NewPaletted(full.Bounds(), colours)
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestPublished checks that published reports draw their figures.
func TestPublished(t *testing.T) {
	files, err := filepath.Glob("../../../results/*/report.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			page, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b := open(t, page)
			if n := eval[int](b, `document.querySelectorAll("figure svg .pt").length`); n == 0 {
				t.Error("no figure is drawn")
			}
			b.sound()
			b.keep(name + ".png")
		})
	}
}

// TestLegend checks that a legend button hides its series in all charts of its panel and
// in no other panel.
func TestLegend(t *testing.T) {
	b := open(t, fixture(t))
	const ring = `#c1 .legend button[data-series=ring]`
	visible := func(section string) int {
		return eval[int](b, `[...document.querySelectorAll("#`+section+` svg [data-series=ring]:not(.row)")].filter(g => getComputedStyle(g).display !== "none").length`)
	}
	before, elsewhere := visible("c1"), visible("knees")
	if before == 0 || elsewhere == 0 {
		t.Fatalf("%d and %d curves of ring", before, elsewhere)
	}
	b.do(chromedp.Click(ring, chromedp.ByQuery))
	if n := visible("c1"); n != 0 {
		t.Errorf("%d curves of ring remain", n)
	}
	if n := visible("knees"); n != elsewhere {
		t.Errorf("%d curves of ring in another panel, want %d", n, elsewhere)
	}
	if pressed := eval[string](b, `document.querySelector("`+ring+`").getAttribute("aria-pressed")`); pressed != "false" {
		t.Errorf("aria-pressed is %q", pressed)
	}
	b.do(chromedp.Focus(ring, chromedp.ByQuery), chromedp.KeyEvent(" "))
	if n := visible("c1"); n != before {
		t.Errorf("%d curves of ring after the space bar, want %d", n, before)
	}
	b.sound()
}

// TestFigures checks that the arrow keys step through the values of a chart. The page
// must show and announce each value.
func TestFigures(t *testing.T) {
	b := open(t, fixture(t))
	said := func() string { return eval[string](b, `document.getElementById("said").textContent`) }
	shown := func() bool { return eval[bool](b, `!document.getElementById("tip").hidden`) }
	b.do(chromedp.Focus(`#c1 figure[data-kind=throughput] .plot`, chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight))
	if got := said(); !strings.HasPrefix(got, fixtureImpls[0]+": ") || !shown() {
		t.Errorf("%q is said first", got)
	}
	b.do(chromedp.KeyEvent(kb.ArrowDown))
	if got := said(); !strings.HasPrefix(got, fixtureImpls[1]+": ") {
		t.Errorf("one below: %q", got)
	}
	b.do(chromedp.KeyEvent(kb.ArrowUp))
	if got := said(); !strings.HasPrefix(got, fixtureImpls[0]+": ") {
		t.Errorf("one above: %q", got)
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	if shown() {
		t.Error("Escape does not hide the figure")
	}

	// A position near the point is enough for the pointer.
	type place struct{ X, Y float64 }
	at := eval[place](b, `(() => {
		const pt = document.querySelector("#c1 figure[data-kind=rate] .pt");
		pt.scrollIntoView({block: "center", behavior: "instant"});
		const r = pt.getBoundingClientRect();
		return {x: r.x + r.width / 2 + 8, y: r.y + r.height / 2 + 8};
	})()`)
	b.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y))
	if !shown() {
		t.Error("nothing is shown at the pointer")
	}
	if got := eval[string](b, `document.getElementById("tip").textContent`); !strings.Contains(got, "p99") {
		t.Errorf("%q is shown at the pointer", got)
	}
	b.sound()
}

// TestPrint checks the printed page: no controls, all tables, light theme.
func TestPrint(t *testing.T) {
	b := open(t, fixture(t))
	dark := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: "dark"}
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{dark}))
	var pdf []byte
	// The browser fires beforeprint only for printing, so print to PDF first.
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		var err error
		pdf, _, err = page.PrintToPDF().WithPrintBackground(true).Do(ctx)
		return err
	}))
	if len(pdf) < 20_000 {
		t.Errorf("a PDF of %d bytes", len(pdf))
	}
	b.save("print.pdf", pdf)
	b.do(emulation.SetEmulatedMedia().WithMedia("print").WithFeatures([]*emulation.MediaFeature{dark}))
	if got := eval[string](b, `getComputedStyle(document.body).backgroundColor`); got != "rgb(255, 255, 255)" {
		t.Errorf("printed on %s", got)
	}
	if got := eval[string](b, `getComputedStyle(document.querySelector("h1")).color`); got != "rgb(23, 27, 33)" {
		t.Errorf("printed in %s", got)
	}
	for _, gone := range []string{"nav", "#tip"} {
		if eval[bool](b, `document.querySelector("`+gone+`").offsetParent !== null`) {
			t.Errorf("%s is printed", gone)
		}
	}
	if n := eval[int](b, `[...document.querySelectorAll("figure")].filter(f => !f.offsetParent).length`); n > 0 {
		t.Errorf("%d charts are not printed", n)
	}
	b.keep("print.png")
	b.sound()
}

// TestWithoutScript checks that the page shows all content without JavaScript, and no controls.
func TestWithoutScript(t *testing.T) {
	b := open(t, fixture(t), emulation.SetScriptExecutionDisabled(true))
	b.do(emulation.SetScriptExecutionDisabled(false))
	for what, count := range map[string]string{
		"charts are hidden":           `[...document.querySelectorAll("figure")].filter(f => !f.offsetParent).length`,
		"useless controls are shown":  `[...document.querySelectorAll(".scripted")].filter(f => f.offsetParent).length`,
		"figures are without a title": `[...document.querySelectorAll("figure .pt")].filter(p => !p.querySelector("title")).length`,
	} {
		if n := eval[int](b, count); n > 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// complaints holds accessibility rules, each with an expression that returns the violations.
var complaints = map[string]string{
	"the page has no language":           `document.documentElement.lang === "en" ? [] : ["html"]`,
	"there are not one main and one h1":  `document.querySelectorAll("main").length === 1 && document.querySelectorAll("h1").length === 1 ? [] : ["main, h1"]`,
	"an id stands twice":                 `(ids => ids.filter((id, i) => ids.indexOf(id) !== i))([...document.querySelectorAll("[id]")].map(e => e.id))`,
	"broken reference":                   `[...document.querySelectorAll("[aria-labelledby]")].flatMap(e => e.getAttribute("aria-labelledby").split(" ")).filter(id => !document.getElementById(id))`,
	"broken link":                        `[...document.querySelectorAll("a[href^='#']")].map(a => a.getAttribute("href").slice(1)).filter(id => !document.getElementById(id))`,
	"a level of headings is skipped":     `[...document.querySelectorAll("h1,h2,h3,h4")].filter((h, i, all) => i > 0 && h.tagName[1] - all[i-1].tagName[1] > 1).map(h => h.textContent)`,
	"a picture has no name":              `[...document.querySelectorAll("svg:not([aria-hidden])")].filter(s => s.getAttribute("role") !== "img" || !s.querySelector("title")?.textContent || !s.querySelector("desc")?.textContent).map(s => s.outerHTML.slice(0, 80))`,
	"a chart has no table":               `[...document.querySelectorAll("figure")].filter(f => !f.querySelector("table tbody tr") || !f.querySelector("figcaption")).map(f => f.id)`,
	"a control has no name":              `[...document.querySelectorAll("button,summary,a")].filter(e => !e.textContent.trim()).map(e => e.outerHTML.slice(0, 80))`,
	"an input has no label":              `[...document.querySelectorAll("input")].filter(e => !e.labels.length || !e.labels[0].textContent.trim()).map(e => e.name)`,
	"a header cell has no scope":         `[...document.querySelectorAll("th:not([scope])")].map(e => e.textContent)`,
	"a table has no caption":             `[...document.querySelectorAll("table")].filter(e => !e.caption?.textContent.trim()).map(e => e.outerHTML.slice(0, 80))`,
	"a place that scrolls has no key":    `[...document.querySelectorAll(".scroll,.plot")].filter(e => e.tabIndex !== 0 || !e.getAttribute("aria-label")).map(e => e.outerHTML.slice(0, 80))`,
	"the order of the focus is tampered": `[...document.querySelectorAll("[tabindex]")].filter(e => e.tabIndex > 0).map(e => e.outerHTML.slice(0, 80))`,
}

// contrasts is an expression that returns the texts with too little contrast.
const contrasts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgba = (colour) => {
		canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const luminance = ([r, g, b]) => {
		const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
		return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c[3] === 255) return c;
		}
		return [255, 255, 255, 255];
	};
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		const words = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
		if (!words || !e.checkVisibility() || ["TITLE", "DESC", "SCRIPT", "title", "desc"].includes(e.tagName)) continue;
		const style = getComputedStyle(e), svg = e.tagName === "text";
		const own = rgba(svg ? style.fill : style.color);
		let back = behind(e);
		if (svg && e.closest(".cell:not(.missing)")) back = rgba(getComputedStyle(e.parentNode.querySelector("rect")).fill);
		const [a, b] = [luminance(own), luminance(back)].sort((x, y) => y - x);
		const contrast = (a + 0.05) / (b + 0.05);
		if (contrast < 4.5) bad.push(contrast.toFixed(2) + " " + e.tagName + "." + e.className + ": " + e.textContent.trim().slice(0, 40));
	}
	return bad.slice(0, 10);
})()`

// TestAccessible checks the accessibility rules and keyboard navigation.
func TestAccessible(t *testing.T) {
	b := open(t, fixture(t))
	for _, what := range slices.Sorted(maps.Keys(complaints)) {
		for _, where := range eval[[]string](b, complaints[what]) {
			t.Errorf("%s: %s", what, where)
		}
	}
	for _, bad := range eval[[]string](b, contrasts) {
		t.Errorf("contrast %s", bad)
	}
	// The first tab stop is the link that skips the table of contents.
	b.do(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, `document.activeElement.className`); got != "skip" {
		t.Errorf("the first stop is %q", got)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	if got := eval[string](b, `location.hash`); got != "#answer" {
		t.Errorf("the skip link leads to %q", got)
	}
	b.sound()
}
