package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"watchlab/bench/internal/golden"
	"watchlab/bench/pipeline"
	"watchlab/impls"
)

// TestCompareCells: each delivery has its own table and its own baseline, which testdata/cells.txt marks.
func TestCompareCells(t *testing.T) {
	small := smallStorm(t)
	var got strings.Builder
	for _, c := range []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"clientgo-deltafifo", "clientgo-realfifo-batch", "cond"}, Producers: 8, Paces: rates(0, 250)},
		{Family: impls.Queue, Pipeline: "queue", Impls: []string{"clientgo-fifo", "cond"}},
		{Family: impls.Merge, Pipeline: "kubelet", Source: "memory", Impls: []string{"cond"}},
	} {
		c.Storm = small
		comparisons := must(pipeline.Compare(c))(t)
		for _, c := range comparisons {
			fmt.Fprintln(&got, c.Title)
			for _, cl := range c.Cells {
				mark := "  "
				if cl.Baseline {
					mark = "* "
				}
				if cl.Guarantees == "" {
					t.Errorf("%s: no guarantees", name(cl))
				}
				fmt.Fprintln(&got, mark+name(cl))
			}
		}
	}
	golden.Check(t, "cells.txt", got.String())
}

// TestKnobs: variants that take the options show them in labels and guarantees. The
// baseline is played without them. All runs keep every invariant.
func TestKnobs(t *testing.T) {
	t.Parallel()
	for title, tc := range map[string]struct {
		spec pipeline.Config
		want map[string]string
	}{
		"bounded and lent": {
			pipeline.Config{Family: impls.DeltaFIFO, Modes: []string{"in-order"}, Impls: []string{"clientgo-realfifo-batch", "ring"}, Knobs: pipeline.Knobs{Capacity: 7, HandOver: impls.Lent}},
			map[string]string{"clientgo-realfifo-batch": "", "ring": "capacity=7 handover=lent"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			tc.spec.Pipeline, tc.spec.Storm, tc.spec.Events = pipeline.QueuePipeline, smallStorm(t), 2000
			comparisons, err := pipeline.Compare(tc.spec)
			if err != nil || len(comparisons) != 1 {
				t.Fatalf("%d comparisons, %v", len(comparisons), err)
			}
			got := map[string]string{}
			for _, c := range comparisons[0].Cells {
				var knobs []string
				impl := ""
				for _, l := range c.Labels {
					switch l.Key {
					case "impl":
						impl = l.Value
					case "capacity", "handover":
						knobs = append(knobs, l.Key+"="+l.Value)
					}
				}
				got[impl] = strings.Join(knobs, " ")
				if unequal := strings.Contains(c.Guarantees, "lent") || strings.Contains(c.Guarantees, "shared") || strings.Contains(c.Guarantees, "coalesces latest"); unequal != (got[impl] != "") {
					t.Errorf("%s: guarantees are %q", impl, c.Guarantees)
				}
				if _, run, check := play(t.Context(), t, c); run != nil || check != nil {
					t.Errorf("%s: %v, %v", impl, run, check)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
