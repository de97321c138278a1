package stats

import "time"

// Objective is an upper bound on a latency quantile.
type Objective struct {
	Unit string        `json:"unit"`   // quantile, such as [UnitP99]
	Most time.Duration `json:"mostNs"` // largest allowed latency
}

// Knee is the highest rate at which a variant meets an objective.
type Knee struct {
	Cell      string    `json:"cell"`             // benchmark name without the rate
	Impl      string    `json:"impl"`             // variant
	Objective Objective `json:"objective"`        // to meet at each rate
	Held      float64   `json:"held"`             // highest rate in events/s that, like all lower tried rates, met it; 0: none
	Failed    float64   `json:"failed,omitempty"` // lowest rate above Held that failed it; 0: none
	// Limit is the reason for no higher rate: "latency", "generator", "invariant",
	// "search" (the end of its range) or "time".
	Limit  string      `json:"limit"`
	Points []KneePoint `json:"points"` // tried rates, ascending
}

// KneePoint is the result at one tried rate.
type KneePoint struct {
	Rate    float64            `json:"rate"`              // events/s
	Latency map[string]float64 `json:"latency,omitempty"` // median over the rounds in ns, by unit
	Rounds  int                `json:"rounds"`            // played rounds
	Holds   int                `json:"holds"`             // rounds that met the objective
	Verdict string             `json:"verdict,omitempty"` // short form; empty if valid
}
