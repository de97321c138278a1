package chart

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
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

func (c rgb) linear() rgb { return rgb{linear(c[0]), linear(c[1]), linear(c[2])} }

func contrast(a, b rgb) float64 {
	light := func(c rgb) float64 {
		l := c.linear()
		return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2]
	}
	x, y := light(a), light(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// deuteranopia returns linear light as it looks without green cones (Machado, Oliveira and Fernandes, "A
// physiologically-based model for simulation of color vision deficiency", 2009, severity 1).
func deuteranopia(c rgb) rgb {
	within := func(v float64) float64 { return min(max(v, 0), 1) }
	return rgb{
		within(0.367322*c[0] + 0.860646*c[1] - 0.227968*c[2]),
		within(0.280085*c[0] + 0.672501*c[1] + 0.047413*c[2]),
		within(-0.011820*c[0] + 0.042940*c[1] + 0.968881*c[2]),
	}
}

// oklab converts linear light to a colour space with perceptual distances (Ottosson, "A perceptual
// color space for image processing", 2020).
func oklab(c rgb) rgb {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
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

// TestPalette requires a contrast of 4.5 for text and 3 for graphics (WCAG 2.2,
// 1.4.3 and 1.4.11), and a distance between the series' colours, also with deuteranopia.
func TestPalette(t *testing.T) {
	themes := map[string]map[string]rgb{"light": {}, "dark": {}}
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+):light-dark\((#[0-9a-f]{6}),(#[0-9a-f]{6})\)`).FindAllStringSubmatch(CSS(), -1) {
		themes["light"][m[1]], themes["dark"][m[1]] = parse(t, m[2]), parse(t, m[3])
	}
	for name, theme := range themes {
		t.Run(name, func(t *testing.T) {
			colour := func(name string) rgb {
				c, ok := theme[name]
				if !ok {
					t.Fatalf("no colour %s", name)
				}
				return c
			}
			must := func(what string, front, back rgb, least float64) {
				t.Helper()
				if c := contrast(front, back); c < least {
					t.Errorf("%s: contrast %.2f, want %.1f", what, c, least)
				}
			}
			panel := colour("panel")
			for _, what := range []string{"text", "muted", "accent", "good", "warn", "bad"} {
				must(what+" on the page", colour(what), colour("page"), 4.5)
				must(what+" on a panel", colour(what), panel, 4.5)
			}
			must("a panel's words on the accent", panel, colour("accent"), 4.5)
			must("lines", colour("line"), panel, 3)
			for i := range colours {
				s := colour(fmt.Sprintf("s%d", i))
				must(fmt.Sprintf("series %d", i), s, panel, 3)
				for j := range i {
					other := colour(fmt.Sprintf("s%d", j))
					if d := distance(s.linear(), other.linear()); d < 0.08 {
						t.Errorf("series %d and %d are %.3f apart, want 0.08", j, i, d)
					}
					if d := distance(deuteranopia(s.linear()), deuteranopia(other.linear())); d < 0.08 {
						t.Errorf("with deuteranopia series %d and %d are %.3f apart, want 0.08", j, i, d)
					}
				}
			}
		})
	}
}

// names returns the names of a family's variants.
func names[O, T any](all []impls.Variant[O, T]) (names []string) {
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names
}

// TestStyles: each registered variant has a style of its own, and no two of a family share it.
func TestStyles(t *testing.T) {
	for family, variants := range map[string][]string{
		"decode": names(decode.Variants()), "deltafifo": names(deltafifo.Variants()), "queue": names(queue.Variants()),
		"merge": append(names(merge.Variants()), "kubelet"), "store": names(store.Variants()), "workqueue": names(workqueue.Variants()),
	} {
		seen := map[Style]string{}
		for _, v := range variants {
			if _, ok := styles[v]; !ok {
				t.Errorf("%s: no style for %s", family, v)
			}
			if other, ok := seen[Of(v)]; ok {
				t.Errorf("%s: %s looks like %s", family, v, other)
			}
			seen[Of(v)] = v
		}
	}
	theirs := Of("their-ring")
	if again := Of("their-ring"); again != theirs || theirs.Dashed {
		t.Error("a variant of another module")
	}
}
