package stats

// Scaling is how a variant's throughput goes with one number: producers,
// processors, shards, keys.
type Scaling struct {
	Cell   string       `json:"cell"`
	Impl   string       `json:"impl"`
	Over   string       `json:"over"`          // the varied label
	Points []ScalePoint `json:"points"`        // ascending N
	Fit    *USL         `json:"fit,omitempty"` // nil without a fit; Why says why
	Why    string       `json:"why,omitempty"`
}

// ScalePoint is the throughput at one number.
type ScalePoint struct {
	N               float64   `json:"n"`
	EventsPerSecond []float64 `json:"eventsPerSecond"` // of each round
}

// USL is the Universal Scalability Law (Gunther), X(N) = λN / (1 + σ(N−1) + κN(N−1)).
type USL struct {
	Lambda   Estimate `json:"lambda"`             // throughput of one
	Sigma    Estimate `json:"sigma"`              // contention: the serial share
	Kappa    Estimate `json:"kappa"`              // coherency: cost of agreement
	Peak     float64  `json:"peak,omitempty"`     // N of the highest throughput; 0 without one (Kappa 0)
	PeakRate float64  `json:"peakRate,omitempty"` // throughput at Peak
	RMSE     float64  `json:"rmse"`               // relative to the medians
	R2       float64  `json:"r2"`                 // explained variance
}

// Estimate is a figure with its confidence interval.
type Estimate struct {
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// Surface is a figure over two numbers, for one variant.
type Surface struct {
	Cell   string       `json:"cell"`
	Impl   string       `json:"impl"`
	X      string       `json:"x"`    // varied label
	Y      string       `json:"y"`    // varied label
	Unit   string       `json:"unit"` // of Points
	Xs     []string     `json:"xs"`   // in order
	Ys     []string     `json:"ys"`
	Points [][]*Summary `json:"points"` // by y, then x; nil where the cell is invalid
}
