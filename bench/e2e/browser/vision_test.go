package browser

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
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

// key is the colour of a variant in a picture, in Oklab.
type key struct {
	name, hex string
	lab       [3]float64
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
		red, green, blue, _ := picture.At(int(p.X), int(p.Y)).RGBA()
		out = append(out, key{p.Name, fmt.Sprintf("#%02x%02x%02x", red>>8, green>>8, blue>>8), oklab(red, green, blue)})
	}
	return out
}

// alike names the pairs of colours that are closer than leastApart.
func alike(keys []key) (pairs []string) {
	for i, a := range keys {
		for _, b := range keys[:i] {
			if d := math.Hypot(math.Hypot(a.lab[0]-b.lab[0], a.lab[1]-b.lab[1]), a.lab[2]-b.lab[2]); d < leastApart {
				pairs = append(pairs, fmt.Sprintf("%s (%s) and %s (%s) are %.3f apart, want %.2f", b.name, b.hex, a.name, a.hex, d, leastApart))
			}
		}
	}
	return pairs
}

// oklab converts a colour to a space with perceptual distances (Ottosson, "A perceptual color space for image
// processing", 2020).
func oklab(channels ...uint32) [3]float64 {
	var c [3]float64
	for i, v := range channels {
		if c[i] = float64(v) / 0xffff; c[i] <= 0.04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
		}
	}
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return [3]float64{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}
