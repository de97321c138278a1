package browser

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/lucasb-eyer/go-colorful"
)

// leastApart is the least distance in Oklab between the colours of two variants, as in the palette's own test
// (bench/chart). Black and white are 1 apart; 0.02 is about the least that people see side by side.
const leastApart = 0.08

// TestDeuteranopia reads the colours of the variants from pictures of the report's first legend, as Chromium
// draws them for a reader without green cones, on light and on dark: each two of them differ.
func TestDeuteranopia(t *testing.T) {
	b := open(t, fixture(t), chromedp.EmulateViewport(1200, 900, chromedp.EmulateScale(4)),
		emulation.SetEmulatedVisionDeficiency(emulation.SetEmulatedVisionDeficiencyTypeDeuteranopia))
	for _, theme := range []string{"light", "dark"} {
		b.do(chromedp.Evaluate(fmt.Sprintf(`document.documentElement.dataset.theme = %q`, theme), nil))
		seen := b.keys()
		if len(seen) != len(fixtureImpls)+1 {
			t.Fatalf("%s: %d variants in the legend, want %d", theme, len(seen), len(fixtureImpls)+1)
		}
		for _, pair := range alike(seen) {
			t.Errorf("%s: %s", theme, pair)
		}
	}
	// Red and green, which differ for others, show that the browser draws for such a reader.
	b.do(chromedp.Evaluate(`for (const [i, key] of document.querySelectorAll("#c1 .legend .key .series").entries()) key.style.setProperty("--c", i % 2 ? "#d20020" : "#288c20")`, nil))
	if n := len(alike(b.keys())); n != 10 {
		t.Errorf("with reds and greens %d of 10 pairs are alike", n)
	}
	b.do(emulation.SetEmulatedVisionDeficiency(emulation.SetEmulatedVisionDeficiencyTypeNone))
	if n := len(alike(b.keys())); n != 4 {
		t.Errorf("with reds and greens %d pairs are alike for others, want 4", n)
	}
	b.sound()
}

// key is the colour of a variant in a picture.
type key struct {
	name   string
	colour colorful.Color
}

// keys reads the legend's colours at the beginning of each key's line, which a dash begins, too.
func (b *tab) keys() (out []key) {
	b.t.Helper()
	type place struct {
		Name string
		X, Y float64
	}
	places := eval[[]place](b, `(() => {
		document.querySelector("#c1 .legend").scrollIntoView({block: "center", behavior: "instant"});
		return [...document.querySelectorAll("#c1 .legend button")].map(e => {
			const r = e.querySelector(".key").getBoundingClientRect();
			return {name: e.dataset.series, x: (r.x + r.width * 3 / 26) * devicePixelRatio, y: (r.y + r.height / 2) * devicePixelRatio};
		});
	})()`)
	var shot []byte
	b.do(chromedp.CaptureScreenshot(&shot))
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range places {
		colour, _ := colorful.MakeColor(picture.At(int(p.X), int(p.Y)))
		out = append(out, key{p.Name, colour})
	}
	return out
}

// alike names the pairs of colours that are closer than leastApart.
func alike(keys []key) (pairs []string) {
	for i, a := range keys {
		for _, b := range keys[:i] {
			l1, a1, b1 := a.colour.OkLab()
			l2, a2, b2 := b.colour.OkLab()
			if d := math.Hypot(math.Hypot(l1-l2, a1-a2), b1-b2); d < leastApart {
				pairs = append(pairs, fmt.Sprintf("%s (%s) and %s (%s) are %.3f apart, want %.2f", b.name, b.colour.Hex(), a.name, a.colour.Hex(), d, leastApart))
			}
		}
	}
	return pairs
}
