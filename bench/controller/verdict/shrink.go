package verdict

import (
	"context"
	"fmt"
	"slices"

	"watchlab/loadgen/fault"
)

// confirmations is the number of plays in a row that a smaller plan has to fail.
const confirmations = 2

// Shrink returns the smallest part of a failing fault plan that it finds with at most most calls of fails, by
// delta debugging (Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, 2002, ddmin). It
// returns only a plan that has failed: the given one, or one that fails has confirmed twice, as one that fails by chance
// is of little use. The plan has single occurrences; see [fault.Occurrences].
func Shrink(ctx context.Context, plan []fault.Spec, fails func(context.Context, []fault.Spec) (bool, error), most int) (smallest []fault.Spec, plays int, err error) {
	smallest = slices.Clone(plan)
	passed := map[string]bool{} // plans, by their text
	parts := 2
	for len(smallest) > 1 {
		reduced := false
		for _, candidate := range candidates(smallest, parts) {
			if passed[fmt.Sprint(candidate)] {
				continue
			}
			failed := true
			for n := 0; n < confirmations && failed; n++ {
				if plays == most || ctx.Err() != nil {
					return smallest, plays, ctx.Err()
				}
				plays++
				var err error
				if failed, err = fails(ctx, candidate); err != nil {
					return smallest, plays, err
				}
			}
			if failed {
				// Of a complement, one part less is left.
				if len(candidate) > (len(smallest)+parts-1)/parts {
					parts = max(parts-1, 2)
				} else {
					parts = 2
				}
				smallest, reduced = candidate, true
				break
			}
			passed[fmt.Sprint(candidate)] = true
		}
		if reduced {
			continue
		}
		if parts >= len(smallest) {
			break
		}
		parts = min(2*parts, len(smallest))
	}
	return smallest, plays, nil
}

// candidates are the parts of a plan and, for more than two, their complements.
func candidates(plan []fault.Spec, parts int) (out [][]fault.Spec) {
	var complements [][]fault.Spec
	for i := range parts {
		from, to := i*len(plan)/parts, (i+1)*len(plan)/parts
		if from == to {
			continue
		}
		out = append(out, slices.Clone(plan[from:to]))
		if parts > 2 {
			complements = append(complements, slices.Concat(plan[:from], plan[to:]))
		}
	}
	return append(out, complements...)
}
