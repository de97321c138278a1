package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/chart"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
)

// TestColours: the lines of each registered variant have its colour in the report, whatever follows the
// name in the legend.
func TestColours(t *testing.T) {
	names := slices.Clone(variants)
	for _, v := range deltafifo.Variants() {
		names = append(names, v.Name)
	}
	for _, v := range queue.Variants() {
		names = append(names, v.Name)
	}
	for _, v := range merge.Variants() {
		names = append(names, v.Name)
	}
	for _, name := range names {
		for _, legend := range []string{name, name + " ", name + " in-order out", name + "-again per-key"} {
			var hexes []string
			for _, c := range colours() {
				if regexp.MustCompile(strings.Trim(c.Pattern, "/")).MatchString(legend) {
					hexes = append(hexes, c.Hex)
				}
			}
			if want := []string{chart.Hex(name).Dark}; !slices.Equal(hexes, want) {
				t.Errorf("the line %q has the colours %v, want %v", legend, hexes, want)
			}
		}
	}
}
