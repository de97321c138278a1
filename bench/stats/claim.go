package stats

import "math"

// Claim is a bound on the ratio of a cell's figure to that of a baseline, or on the figure itself, with the
// answer of a run.
type Claim struct {
	Says     string   `json:"says"`               // claim in one sentence
	Unit     string   `json:"unit"`               // of the figures
	Variant  string   `json:"variant"`            // labels of the cell, as in impl=ring,readers=8
	Baseline string   `json:"baseline,omitempty"` // labels of the baseline; empty for a bound in the unit
	Relation Relation `json:"relation"`           // of the ratio, or of the figure, to Bound
	Bound    float64  `json:"bound"`
	Answer   Answer   `json:"answer"`
	Why      string   `json:"why,omitempty"`   // reason for no answer
	Value    float64  `json:"value,omitempty"` // ratio of the medians, or median without a baseline; 0 without figures
	// Lo and Hi are the 95 % confidence interval of Value; both are 0 for too few rounds.
	Lo float64 `json:"lo,omitempty"`
	Hi float64 `json:"hi,omitempty"`
}

// Relation of a ratio to its bound.
type Relation string

// The relations.
const (
	AtLeast Relation = "at least"
	AtMost  Relation = "at most"
)

// Answer says whether a run confirms a claim.
type Answer string

// The answers.
const (
	Confirmed   Answer = "confirmed"    // the whole interval fulfils the relation
	Refuted     Answer = "refuted"      // no value of the interval does
	NotAnswered Answer = "not answered" // no figures, too few rounds, or the interval contains the bound
)

// Judge sets answer, value and interval from the replicates of both cells.
func (c *Claim) Judge(variant, baseline []float64) {
	c.Answer, c.Why, c.Value, c.Lo, c.Hi = NotAnswered, "no figures", 0, 0, 0
	switch {
	case len(variant) == 0 || c.Baseline != "" && len(baseline) == 0:
		return
	case c.Baseline == "":
		s := Summarize(variant)
		if c.Value, c.Why = s.Median, "too few rounds"; s.Lo == nil {
			return
		}
		c.Lo, c.Hi = *s.Lo, *s.Hi
	default:
		ratio := Compare(baseline, variant)
		if math.IsNaN(ratio.Ratio) {
			return
		}
		if c.Value, c.Why = ratio.Ratio, "too few rounds"; ratio.Hi == 0 {
			return
		}
		c.Lo, c.Hi = ratio.Lo, ratio.Hi
	}
	confirmed, refuted := c.Lo >= c.Bound, c.Hi < c.Bound
	if c.Relation == AtMost {
		confirmed, refuted = c.Hi <= c.Bound, c.Lo > c.Bound
	}
	switch {
	case confirmed:
		c.Answer, c.Why = Confirmed, ""
	case refuted:
		c.Answer, c.Why = Refuted, ""
	default:
		c.Why = "the bound is in the interval"
	}
}
