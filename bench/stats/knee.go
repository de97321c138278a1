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
	Cell      string      `json:"cell"`
	Impl      string      `json:"impl"`
	Objective Objective   `json:"objective"`
	Held      float64     `json:"held"`
	Failed    float64     `json:"failed,omitempty"`
	Limit     string      `json:"limit"`
	Points    []KneePoint `json:"points"`
}

// KneePoint is one rate that was tried.
type KneePoint struct {
	Rate    float64            `json:"rate"`
	Latency map[string]float64 `json:"latency,omitempty"`
	Rounds  int                `json:"rounds"`
	Holds   int                `json:"holds"`
	Verdict string             `json:"verdict,omitempty"`
}
