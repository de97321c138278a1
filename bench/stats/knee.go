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
	// Cell is the variant's name as benchmarks have it, without its rate; Impl the
	// variant alone.
	Cell string `json:"cell"`
	Impl string `json:"impl"`
	// Objective that was to be held.
	Objective Objective `json:"objective"`
	// Held is the highest rate, in events a second, that held it and below which
	// all that were tried did; 0 where none did. Failed is the lowest rate above
	// that which didn't; 0 where the search ended before there was one.
	Held   float64 `json:"held"`
	Failed float64 `json:"failed,omitempty"`
	// Limit says what stood in the way of higher rates: "latency", "generator",
	// "invariant", "search" where the search's end was reached, or "time".
	Limit string `json:"limit"`
	// Points are the rates that were tried, in ascending order.
	Points []KneePoint `json:"points"`
}

// KneePoint is one rate that was tried.
type KneePoint struct {
	// Rate in events a second, as it was asked for.
	Rate float64 `json:"rate"`
	// Latency by its unit, in nanoseconds: the median over the rounds.
	Latency map[string]float64 `json:"latency,omitempty"`
	// Rounds that were played, and how many of them held the objective.
	Rounds int `json:"rounds"`
	Holds  int `json:"holds"`
	// Verdict in short, where the figures may not be believed.
	Verdict string `json:"verdict,omitempty"`
}
