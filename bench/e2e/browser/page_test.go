package browser

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestFirstScreen checks what a reader sees before he scrolls: the winner, its ratio and its verdict. At
// 1200 px nothing is cut off, even with all tables open, and every chart names its axes.
func TestFirstScreen(t *testing.T) {
	b := open(t, fixture(t, 0), chromedp.EmulateViewport(1200, 900))
	seen := eval[string](b, `[...document.querySelectorAll("#answer p, #answer text")].filter(e => {
		const r = e.getBoundingClientRect(); return r.height > 0 && r.bottom < innerHeight;
	}).map(e => e.textContent).join("\n")`)
	for _, want := range []string{"on ring handles 6.8 times the events per CPU second", "6.81× (6.81–6.81×)", "noisy", "lost"} {
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

// paletted reduces a picture to its 256 most frequent colours: a third of the bytes.
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
	// A colour counts more than a grey, as only the edges of letters have many greys.
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

// TestReport opens the report of a run and that of a controller's run: each chart has its figures, its table and room
// for its labels, the page follows the rules of accessibility and needs no script.
func TestReport(t *testing.T) {
	for i, name := range []string{"run", "controller"} {
		t.Run(name, func(t *testing.T) {
			html := fixture(t, i)
			b := open(t, html, chromedp.EmulateViewport(1600, 1000))
			for what, expression := range complaints {
				for _, where := range eval[[]string](b, expression) {
					t.Errorf("%s: %s", what, where)
				}
			}
			b.sound()
			bare := open(t, html, emulation.SetScriptExecutionDisabled(true))
			bare.do(emulation.SetScriptExecutionDisabled(false))
			if n := eval[int](bare, `[...document.querySelectorAll("figure")].filter(f => !f.offsetParent || !f.querySelector("title")).length + [...document.querySelectorAll(".scripted")].filter(f => f.offsetParent).length`); n > 0 {
				t.Errorf("without scripts %d charts are missing, or controls are shown", n)
			}
		})
	}
}

// TestControls: a legend's button hides a variant in the charts of its panel and in no other, and the arrow keys
// announce each value.
func TestControls(t *testing.T) {
	b := open(t, fixture(t, 0))
	visible := func(section string) int {
		return eval[int](b, `[...document.querySelectorAll("#`+section+` svg [data-series=ring]:not(.row)")].filter(g => getComputedStyle(g).display !== "none").length`)
	}
	before, elsewhere := visible("c1"), visible("scaling")
	b.do(chromedp.Click(`#c1 .legend button[data-series=ring]`, chromedp.ByQuery))
	if here, there := visible("c1"), visible("scaling"); before == 0 || here != 0 || elsewhere == 0 || there != elsewhere {
		t.Errorf("curves of ring in its panel: %d, then %d; in another: %d, then %d", before, here, elsewhere, there)
	}
	b.do(chromedp.Focus(`#c1 figure[data-kind=rate] .plot`, chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowDown))
	if got := eval[string](b, `document.getElementById("said").textContent`); !strings.HasPrefix(got, "cond: ") {
		t.Errorf("%q is said of the second value", got)
	}
	b.sound()
}

// complaints holds accessibility rules, each with an expression that returns the violations.
var complaints = map[string]string{
	"a chart without figures or size":   `[...document.querySelectorAll("figure")].filter(f => { const r = f.querySelector("svg").getBoundingClientRect(); return !f.querySelector("svg .pt") || r.width < 200 || r.height < 80; }).map(f => f.id)`,
	"a label outside its chart":         `[...document.querySelectorAll(".chart text")].filter(e => { const r = e.getBoundingClientRect(), box = e.closest("svg").getBoundingClientRect(); return r.width > 0 && (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1); }).map(e => e.textContent)`,
	"the page has no language":          `document.documentElement.lang === "en" ? [] : ["html"]`,
	"there are not one main and one h1": `document.querySelectorAll("main").length === 1 && document.querySelectorAll("h1").length === 1 ? [] : ["main, h1"]`,
	"broken reference":                  `[...document.querySelectorAll("[aria-labelledby]")].flatMap(e => e.getAttribute("aria-labelledby").split(" ")).filter(id => !document.getElementById(id))`,
	"broken link":                       `[...document.querySelectorAll("a[href^='#']")].map(a => a.getAttribute("href").slice(1)).filter(id => !document.getElementById(id))`,
	"a level of headings is skipped":    `[...document.querySelectorAll("h1,h2,h3,h4")].filter((h, i, all) => i > 0 && h.tagName[1] - all[i-1].tagName[1] > 1).map(h => h.textContent)`,
	"a picture has no name":             `[...document.querySelectorAll("svg:not([aria-hidden])")].filter(s => s.getAttribute("role") !== "img" || !s.querySelector("title")?.textContent || !s.querySelector("desc")?.textContent).map(s => s.outerHTML.slice(0, 80))`,
	"a chart has no table":              `[...document.querySelectorAll("figure")].filter(f => !f.querySelector("table tbody tr") || !f.querySelector("figcaption")).map(f => f.id)`,
	"a control has no name":             `[...document.querySelectorAll("button,summary,a")].filter(e => !e.textContent.trim()).map(e => e.outerHTML.slice(0, 80))`,
	"an input has no label":             `[...document.querySelectorAll("input")].filter(e => !e.labels.length || !e.labels[0].textContent.trim()).map(e => e.name)`,
	"a table has no caption":            `[...document.querySelectorAll("table")].filter(e => !e.caption?.textContent.trim()).map(e => e.outerHTML.slice(0, 80))`,
	"a place that scrolls has no key":   `[...document.querySelectorAll(".scroll,.plot")].filter(e => e.tabIndex !== 0 || !e.getAttribute("aria-label")).map(e => e.outerHTML.slice(0, 80))`,
}
