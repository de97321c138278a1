package verdict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"watchlab/loadgen/fault"
)

// occurrences are n faults, a second apart.
func occurrences(n int) []fault.Spec {
	return fault.Occurrences(fault.Cycle(time.Second, n/len(fault.Names())+1), time.Duration(n)*time.Second)
}

// TestShrink shrinks for random properties. A set of occurrences fails the play if it is in the plan; some
// properties are lost with one occurrence more, as a fault may hide another.
func TestShrink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := occurrences(rapid.IntRange(1, 20).Draw(t, "occurrences"))
		subset := func(name string) []fault.Spec {
			return slices.DeleteFunc(slices.Clone(plan), func(fault.Spec) bool { return rapid.IntRange(0, 3).Draw(t, name) > 0 })
		}
		var causes [][]fault.Spec
		for range rapid.IntRange(1, 3).Draw(t, "causes") {
			causes = append(causes, subset("cause"))
		}
		hides := subset("hides")
		property := func(p []fault.Spec) bool {
			has := func(f fault.Spec) bool { return slices.Contains(p, f) }
			if len(p) == len(plan) {
				return true
			}
			if len(hides) > 0 && len(p) < len(plan)/2 && has(hides[0]) {
				return false
			}
			return slices.ContainsFunc(causes, func(c []fault.Spec) bool {
				return !slices.ContainsFunc(c, func(f fault.Spec) bool { return !has(f) })
			})
		}
		most := rapid.SampledFrom([]int{0, 1, 3, 10, 10_000}).Draw(t, "most")
		played := map[string]int{}
		calls := 0
		got, plays, err := Shrink(t.Context(), plan, func(_ context.Context, p []fault.Spec) (bool, error) {
			calls++
			if played[fmt.Sprint(p)]++; played[fmt.Sprint(p)] > confirmations || played[fmt.Sprint(p)] > 1 && !property(p) {
				t.Errorf("played %d times: %v", played[fmt.Sprint(p)], p)
			}
			if !isPart(p, plan) {
				t.Errorf("%v is no part of %v in its order", p, plan)
			}
			return property(p), nil
		}, most)
		switch {
		case err != nil:
			t.Fatal(err)
		case plays != calls || plays > most:
			t.Errorf("%d plays reported, %d played, of %d", plays, calls, most)
		case !property(got) || !isPart(got, plan):
			t.Errorf("%v does not fail", got)
		}
		if plays == most || len(got) == 1 {
			return
		}
		for i := range got {
			if less := slices.Delete(slices.Clone(got), i, i+1); property(less) {
				t.Errorf("%v fails without %v, too", got, got[i])
			}
		}
	})
}

// isPart reports whether a plan has occurrences of another one, in its order.
func isPart(part, plan []fault.Spec) bool {
	for _, f := range part {
		i := slices.Index(plan, f)
		if i < 0 {
			return false
		}
		plan = plan[i+1:]
	}
	return len(part) > 0
}

// One cause among n occurrences is found in about 3 log n plays.
func TestShrinkBudget(t *testing.T) {
	plan := occurrences(12)
	for i := range plan {
		got, plays, err := Shrink(t.Context(), plan, func(_ context.Context, p []fault.Spec) (bool, error) {
			return slices.Contains(p, plan[i]), nil
		}, 16)
		if err != nil || len(got) != 1 || got[0] != plan[i] || plays > 12 {
			t.Errorf("cause %d: %v in %d plays, %v", i, got, plays, err)
		}
	}
}

// An error and the end of the context end it. What has failed until then is kept.
func TestShrinkEnds(t *testing.T) {
	plan := occurrences(12)
	broken := errors.New("broken")
	got, plays, err := Shrink(t.Context(), plan, func(_ context.Context, p []fault.Spec) (bool, error) {
		if len(p) == 3 {
			return false, broken
		}
		return true, nil
	}, 16)
	if !errors.Is(err, broken) || len(got) != 6 || plays != 3 {
		t.Errorf("%d occurrences after %d plays, %v; want 6 after 3 and the error", len(got), plays, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, plays, err = Shrink(ctx, plan, func(context.Context, []fault.Spec) (bool, error) {
		cancel()
		return true, nil
	}, 16)
	if !errors.Is(err, context.Canceled) || len(got) != 12 || plays != 1 {
		t.Errorf("%d occurrences after %d plays, %v; want 12 after 1 and the context's error", len(got), plays, err)
	}
}

// A plan that fails by chance is no smaller one: here each plan but the whole fails the first time only.
func TestShrinkConfirms(t *testing.T) {
	plan, played := occurrences(4), map[string]bool{}
	got, _, err := Shrink(t.Context(), plan, func(_ context.Context, p []fault.Spec) (bool, error) {
		first := !played[fmt.Sprint(p)]
		played[fmt.Sprint(p)] = true
		return first, nil
	}, 100)
	if err != nil || len(got) != len(plan) {
		t.Errorf("%v, %v; want all of the plan", got, err)
	}
}
