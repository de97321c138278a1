package main

import (
	"strings"

	"watchlab/bench/chart"
)

// variants are those of the families that export metrics. Their lines have the colours of the report.
var variants = []string{
	"cond", "channel", "ring", "sharded",
	"clientgo-fifo", "clientgo-informer", "clientgo-deltafifo", "clientgo-realfifo", "clientgo-realfifo-batch", "reference",
}

// colour is that of the lines whose names match the pattern: a variant, the second cell of its A/A pair,
// and what follows a space.
type colour struct{ Pattern, Hex string }

// colours returns those of the variants on a dark page.
func colours() (all []colour) {
	for _, name := range variants {
		all = append(all, colour{"/^" + name + "(-again)?( |$)/", chart.Hex(name).Dark})
	}
	return all
}

// ByVariant reports whether the lines of the panel are variants.
func (p panel) ByVariant() bool {
	return p.Kind == timeSeries && len(p.Queries) > 0 && strings.HasPrefix(p.Queries[0].Legend, "{{variant}}")
}
