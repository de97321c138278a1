package stats_test

import (
	"testing"

	"watchlab/bench/stats"
)

// TestClaim: a claim is answered if the whole interval lies on one side of the bound. The ratio here is near 10.
func TestClaim(t *testing.T) {
	slow, fast := []float64{1000, 1010, 990, 1005, 995, 1002}, []float64{100, 101, 99, 102, 98, 103}
	for name, tc := range map[string]struct {
		variant, baseline []float64
		relation          stats.Relation
		bound             float64
		want              stats.Answer
	}{
		"above":                    {slow, fast, stats.AtLeast, 5, stats.Confirmed},
		"below":                    {slow, fast, stats.AtLeast, 20, stats.Refuted},
		"bound in the interval":    {slow, fast, stats.AtLeast, 10, stats.NotAnswered},
		"at most":                  {fast, slow, stats.AtMost, 0.5, stats.Confirmed},
		"not at most":              {slow, fast, stats.AtMost, 5, stats.Refuted},
		"at most, in the interval": {slow, fast, stats.AtMost, 10, stats.NotAnswered},
		"a figure":                 {slow, nil, stats.AtLeast, 900, stats.Confirmed},
		"a figure below":           {slow, nil, stats.AtLeast, 1e6, stats.Refuted},
		"few rounds":               {slow[:3], fast[:3], stats.AtLeast, 5, stats.NotAnswered},
		"few rounds of a figure":   {slow[:3], nil, stats.AtLeast, 5, stats.NotAnswered},
		"no variant":               {nil, fast, stats.AtLeast, 5, stats.NotAnswered},
		"a baseline of 0":          {slow, []float64{0, 0, 0, 0, 0, 0}, stats.AtLeast, 5, stats.NotAnswered},
	} {
		c := stats.Claim{Baseline: "impl=fast", Relation: tc.relation, Bound: tc.bound}
		if tc.baseline == nil {
			c.Baseline = ""
		}
		if c.Judge(tc.variant, tc.baseline); c.Answer != tc.want {
			t.Errorf("%s: %+v, want %s", name, c, tc.want)
		}
	}
	c := stats.Claim{Baseline: "impl=none", Relation: stats.AtLeast, Bound: 1}
	if c.Judge(slow, nil); c.Answer != stats.NotAnswered || c.Value != 0 {
		t.Errorf("without the baseline's figures: %+v", c)
	}
}
