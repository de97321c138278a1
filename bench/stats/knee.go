package stats

import "time"

// Objective is a latency that has to be held: a quantile, by its unit
// ([UnitP99]), and the most that it may be.
type Objective struct {
	Unit string        `json:"unit"`
	Most time.Duration `json:"mostNs"`
}

// Knee is the highest rate at which a variant holds an objective.
type Knee struct {
	Cell      string      `json:"cell"` // name without the rate
	Impl      string      `json:"impl"`
	Objective Objective   `json:"objective"`
	Held      float64     `json:"held"`             // highest rate, in events/s, below which all tried rates held; 0: none
	Failed    float64     `json:"failed,omitempty"` // lowest rate above Held that failed; 0: none
	Limit     string      `json:"limit"`            // latency, generator, invariant, search (its end), or time
	Points    []KneePoint `json:"points"`           // tried rates, ascending
}

// KneePoint is one rate that was tried.
type KneePoint struct {
	Rate    float64            `json:"rate"`              // events/s
	Latency map[string]float64 `json:"latency,omitempty"` // median over the rounds in ns, by unit
	Rounds  int                `json:"rounds"`
	Holds   int                `json:"holds"`             // rounds that held the objective
	Verdict string             `json:"verdict,omitempty"` // short form, where figures are unreliable
}
