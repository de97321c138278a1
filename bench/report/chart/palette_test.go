package chart

import (
	"fmt"
	"math"
	"strconv"
	"testing"
)

type rgb [3]float64

func parse(t *testing.T, s string) rgb {
	t.Helper()
	v, err := strconv.ParseUint(s[1:], 16, 32)
	if err != nil || len(s) != 7 || s[0] != '#' {
		t.Fatalf("%q is no colour", s)
	}
	return rgb{float64(v >> 16 & 255), float64(v >> 8 & 255), float64(v & 255)}
}

// linear converts a channel to linear light (WCAG 2.2, relative luminance).
func linear(v float64) float64 {
	if v /= 255; v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

func contrast(a, b rgb) float64 {
	light := func(c rgb) float64 {
		return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
	}
	x, y := light(a), light(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// oklab converts to a colour space with perceptual distances (Ottosson, "A perceptual
// color space for image processing", 2020).
func oklab(c rgb) rgb {
	r, g, b := linear(c[0]), linear(c[1]), linear(c[2])
	l := math.Cbrt(0.4122214708*r + 0.5363325363*g + 0.0514459929*b)
	m := math.Cbrt(0.2119034982*r + 0.6806995451*g + 0.1073969566*b)
	s := math.Cbrt(0.0883024619*r + 0.2817188376*g + 0.6299787005*b)
	return rgb{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}

func distance(a, b rgb) float64 {
	x, y := oklab(a), oklab(b)
	return math.Sqrt(math.Pow(x[0]-y[0], 2) + math.Pow(x[1]-y[1], 2) + math.Pow(x[2]-y[2], 2))
}

func mix(a, b rgb, share float64) rgb {
	var out rgb
	for i := range out {
		out[i] = a[i]*(1-share) + b[i]*share
	}
	return out
}

func TestPaletteCanBeRead(t *testing.T) {
	for name, theme := range map[string]Theme{"light": Light, "dark": Dark} {
		t.Run(name, func(t *testing.T) {
			must := func(what, front string, back rgb, least float64) {
				t.Helper()
				if c := contrast(parse(t, front), back); c < least {
					t.Errorf("%s: contrast %.2f, want %.1f", what, c, least)
				}
			}
			page, panel := parse(t, theme.Page), parse(t, theme.Panel)
			for what, front := range map[string]string{
				"text": theme.Text, "muted": theme.Muted, "accent": theme.Accent, "good": theme.Good, "warn": theme.Warn, "bad": theme.Bad,
			} {
				must(what+" on the page", front, page, 4.5)
				must(what+" on a panel", front, panel, 4.5)
			}
			must("a panel's words on the accent", theme.Panel, parse(t, theme.Accent), 4.5)
			must("lines", theme.Line, panel, 3)
			for i, s := range theme.Series {
				must(fmt.Sprintf("series %d", i), s, panel, 3)
				for j, other := range theme.Series[:i] {
					if d := distance(parse(t, s), parse(t, other)); d < 0.06 {
						t.Errorf("series %d and %d are %.3f apart, want 0.06", j, i, d)
					}
				}
			}
			cold, hot := parse(t, theme.Cold), parse(t, theme.Hot)
			for w := 0.0; w <= 1; w += 0.05 {
				must(fmt.Sprintf("words on cold %.2f", w), theme.OnCold, mix(cold, hot, w*coldTo), 4.5)
				must(fmt.Sprintf("words on hot %.2f", w), theme.OnHot, mix(cold, hot, hotFrom+w*(1-hotFrom)), 4.5)
			}
		})
	}
}
