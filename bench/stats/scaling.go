package stats

// Scaling is how a variant's throughput goes with one number: producers,
// processors, shards, keys.
type Scaling struct {
	Cell   string       `json:"cell"`
	Impl   string       `json:"impl"`
	Over   string       `json:"over"`
	Points []ScalePoint `json:"points"`
	Fit    *USL         `json:"fit,omitempty"`
	Why    string       `json:"why,omitempty"`
}

// ScalePoint is the throughput at one number.
type ScalePoint struct {
	N               float64   `json:"n"`
	EventsPerSecond []float64 `json:"eventsPerSecond"`
}

// USL is the Universal Scalability Law (Gunther), X(N) = λN / (1 + σ(N−1) + κN(N−1)).
type USL struct {
	Lambda   Estimate `json:"lambda"`
	Sigma    Estimate `json:"sigma"`
	Kappa    Estimate `json:"kappa"`
	Peak     float64  `json:"peak,omitempty"`
	PeakRate float64  `json:"peakRate,omitempty"`
	RMSE     float64  `json:"rmse"`
	R2       float64  `json:"r2"`
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
	X      string       `json:"x"`
	Y      string       `json:"y"`
	Unit   string       `json:"unit"`
	Xs     []string     `json:"xs"`
	Ys     []string     `json:"ys"`
	Points [][]*Summary `json:"points"`
}
