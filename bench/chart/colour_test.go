package chart

import (
	"fmt"
	"math"
	"regexp"
	"testing"

	"github.com/lucasb-eyer/go-colorful"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
)

func contrast(a, b colorful.Color) float64 {
	light := func(c colorful.Color) float64 { // the relative luminance of WCAG 2.2
		red, green, blue := c.LinearRgb()
		return 0.2126*red + 0.7152*green + 0.0722*blue
	}
	x, y := light(a), light(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// deuteranopia returns a colour as it looks without green cones (Machado, Oliveira and Fernandes, "A
// physiologically-based model for simulation of color vision deficiency", 2009, severity 1).
func deuteranopia(c colorful.Color) colorful.Color {
	red, green, blue := c.LinearRgb()
	within := func(v float64) float64 { return min(max(v, 0), 1) }
	return colorful.LinearRgb(
		within(0.367322*red+0.860646*green-0.227968*blue),
		within(0.280085*red+0.672501*green+0.047413*blue),
		within(-0.011820*red+0.042940*green+0.968881*blue),
	)
}

// distance is that of Oklab, a colour space with perceptual distances.
func distance(a, b colorful.Color) float64 {
	l1, a1, b1 := a.OkLab()
	l2, a2, b2 := b.OkLab()
	return math.Hypot(math.Hypot(l1-l2, a1-a2), b1-b2)
}

// TestPalette requires a contrast of 4.5 for text and 3 for graphics (WCAG 2.2,
// 1.4.3 and 1.4.11), and a distance between the series' colours, also with deuteranopia.
func TestPalette(t *testing.T) {
	parse := func(hex string) colorful.Color {
		c, err := colorful.Hex(hex)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	themes := map[string]map[string]colorful.Color{"light": {}, "dark": {}}
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+):light-dark\((#[0-9a-f]{6}),(#[0-9a-f]{6})\)`).FindAllStringSubmatch(CSS(), -1) {
		themes["light"][m[1]], themes["dark"][m[1]] = parse(m[2]), parse(m[3])
	}
	for name, theme := range themes {
		t.Run(name, func(t *testing.T) {
			colour := func(name string) colorful.Color {
				c, ok := theme[name]
				if !ok {
					t.Fatalf("no colour %s", name)
				}
				return c
			}
			must := func(what string, front, back colorful.Color, least float64) {
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
					if d := distance(s, other); d < 0.08 {
						t.Errorf("series %d and %d are %.3f apart, want 0.08", j, i, d)
					}
					if d := distance(deuteranopia(s), deuteranopia(other)); d < 0.08 {
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
