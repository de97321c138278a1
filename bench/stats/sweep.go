package stats

import (
	"slices"
	"time"
)

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

// Interval returns the interval of the knee over the rounds: at all tried rates up to lo every round
// met the objective, from hi on none did, and the 5 rounds next to the knee agree (by chance: 3 %).
// Either is 0 if there is no such rate. Held and Failed, a majority of few rounds, often differ
// between two searches for one variant; their intervals overlap.
func (k Knee) Interval() (lo, hi float64) {
	const agree = 5
	points := slices.DeleteFunc(slices.Clone(k.Points), func(p KneePoint) bool { return p.Verdict == "unplayed" })
	held, failed := 0, len(points)
	for held < len(points) && points[held].Holds > 0 && points[held].Holds == points[held].Rounds {
		held++
	}
	for failed > held && points[failed-1].Holds == 0 {
		failed--
	}
	for rounds := 0; held > 0 && rounds < agree; rounds += points[held].Rounds {
		held--
		lo = points[held].Rate
	}
	for rounds := 0; failed < len(points) && rounds < agree; failed++ {
		hi = points[failed].Rate
		rounds += points[failed].Rounds
	}
	return lo, hi
}

// Scaling is the throughput of a variant over one varied number: producers, processors,
// shards or keys.
type Scaling struct {
	Cell   string       `json:"cell"`          // benchmark name without the varied label
	Impl   string       `json:"impl"`          // variant
	Over   string       `json:"over"`          // varied label
	Points []ScalePoint `json:"points"`        // in ascending order of N
	Fit    *USL         `json:"fit,omitempty"` // nil without a fit
	Why    string       `json:"why,omitempty"` // reason for no fit, such as too few points; empty with a fit
}

// ScalePoint is the throughput at one value of the varied label.
type ScalePoint struct {
	N               float64   `json:"n"`               // value of the label
	EventsPerSecond []float64 `json:"eventsPerSecond"` // of each round
}

// USL is the Universal Scalability Law (Gunther), X(N) = λN / (1 + σ(N−1) + κN(N−1)).
type USL struct {
	Lambda   Estimate `json:"lambda"`             // throughput of one worker, in events/s
	Sigma    Estimate `json:"sigma"`              // contention: the serial share of the work
	Kappa    Estimate `json:"kappa"`              // coherency: the cost of agreement between workers
	Peak     float64  `json:"peak,omitempty"`     // N of the highest throughput; 0 if there is none, as Kappa is 0
	PeakRate float64  `json:"peakRate,omitempty"` // throughput at Peak, in events/s
	RMSE     float64  `json:"rmse"`               // root mean square error, relative to the curve
}

// Estimate is a fitted parameter with its 95 % confidence interval.
type Estimate struct {
	Value float64 `json:"value"` // best fit
	Lo    float64 `json:"lo"`    // at most Value
	Hi    float64 `json:"hi"`    // at least Value
}
