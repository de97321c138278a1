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

// TestFirstScreen checks what a reader sees before he scrolls: the winner, its ratio and its verdict. At
// 1200 px nothing is cut off, even with all tables open, and every chart names its axes.
func TestFirstScreen(t *testing.T) {
	b := open(t, fixture(t, 0), chromedp.EmulateViewport(1200, 900))
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

// TestReport opens the report of a run and that of a controller's run: each chart has its figures, its table and room
// for its labels, the page follows the rules of accessibility, fits a phone, and needs no script.
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
			for _, faint := range eval[[]string](b, contrasts) {
				t.Errorf("contrast: %s", faint)
			}
			b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
			for _, wide := range eval[[]string](b, complaints["too wide for a phone"]) {
				t.Errorf("a phone has to scroll: %s pixels", wide)
			}
			b.keep(name + "-phone.png")
			b.sound()
			bare := open(t, html, emulation.SetScriptExecutionDisabled(true))
			bare.do(emulation.SetScriptExecutionDisabled(false))
			if n := eval[int](bare, `[...document.querySelectorAll("figure")].filter(f => !f.offsetParent || !f.querySelector("title")).length + [...document.querySelectorAll(".scripted")].filter(f => f.offsetParent).length`); n > 0 {
				t.Errorf("without scripts %d charts are missing, or controls are shown", n)
			}
		})
	}
}

// TestControls: a legend's button hides a variant in the charts of its panel and in no other, the arrow keys announce
// each value, and the printed page has all charts, on white and without controls.
func TestControls(t *testing.T) {
	b := open(t, fixture(t, 0))
	visible := func(section string) int {
		return eval[int](b, `[...document.querySelectorAll("#`+section+` svg [data-series=ring]:not(.row)")].filter(g => getComputedStyle(g).display !== "none").length`)
	}
	before, elsewhere := visible("c1"), visible("knees")
	b.do(chromedp.Click(`#c1 .legend button[data-series=ring]`, chromedp.ByQuery))
	if here, there := visible("c1"), visible("knees"); before == 0 || here != 0 || elsewhere == 0 || there != elsewhere {
		t.Errorf("curves of ring in its panel: %d, then %d; in another: %d, then %d", before, here, elsewhere, there)
	}
	b.do(chromedp.Focus(`#c1 figure[data-kind=throughput] .plot`, chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowDown))
	if got := eval[string](b, `document.getElementById("said").textContent`); !strings.HasPrefix(got, "cond: ") || eval[bool](b, `document.getElementById("tip").hidden`) {
		t.Errorf("%q is said of the second value", got)
	}
	b.do(chromedp.ActionFunc(func(ctx context.Context) error { // only printing fires beforeprint
		_, _, err := page.PrintToPDF().Do(ctx)
		return err
	}), emulation.SetEmulatedMedia().WithMedia("print"))
	if got := eval[string](b, `getComputedStyle(document.body).backgroundColor`); got != "rgb(255, 255, 255)" {
		t.Errorf("printed on %s", got)
	}
	if n := eval[int](b, `[...document.querySelectorAll("figure")].filter(f => !f.offsetParent).length + [...document.querySelectorAll("nav")].filter(e => e.offsetParent).length`); n > 0 {
		t.Errorf("%d charts are not printed, or controls are", n)
	}
	b.sound()
}

// complaints holds accessibility rules, each with an expression that returns the violations.
var complaints = map[string]string{
	"a chart without figures or size":    `[...document.querySelectorAll("figure")].filter(f => { const r = f.querySelector("svg").getBoundingClientRect(); return !f.querySelector("svg .pt") || r.width < 200 || r.height < 80; }).map(f => f.id)`,
	"a label outside its chart":          `[...document.querySelectorAll(".chart text")].filter(e => { const r = e.getBoundingClientRect(), box = e.closest("svg").getBoundingClientRect(); return r.width > 0 && (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1); }).map(e => e.textContent)`,
	"too wide for a phone":               `document.documentElement.scrollWidth > innerWidth ? [String(document.documentElement.scrollWidth)] : []`,
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
