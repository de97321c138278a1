package stats

// Scaling is how a variant's throughput goes with one number: producers,
// processors, shards, keys.
type Scaling struct {
	Cell string `json:"cell"`
	Impl string `json:"impl"`
	// Over is the label that was varied.
	Over string `json:"over"`
	// Points in ascending order of N.
	Points []ScalePoint `json:"points"`
	// Fit is the Universal Scalability Law's; nil where there are too few points
	// for it, or where the number isn't one of workers. Then Why says so.
	Fit *USL   `json:"fit,omitempty"`
	Why string `json:"why,omitempty"`
}

// ScalePoint is the throughput at one number.
type ScalePoint struct {
	N float64 `json:"n"`
	// EventsPerSecond of each round.
	EventsPerSecond []float64 `json:"eventsPerSecond"`
}

// USL is the Universal Scalability Law (Gunther), X(N) = λN / (1 + σ(N−1) + κN(N−1)).
type USL struct {
	// Lambda is the throughput of one, Sigma contention: the share that is done one
	// after the other; Kappa coherency: what each pays for agreeing with each
	// other.
	Lambda Estimate `json:"lambda"`
	Sigma  Estimate `json:"sigma"`
	Kappa  Estimate `json:"kappa"`
	// Peak is the N at which throughput is highest, PeakRate that throughput; 0
	// where there is none, as Kappa is 0.
	Peak     float64 `json:"peak,omitempty"`
	PeakRate float64 `json:"peakRate,omitempty"`
	// RMSE is the root mean square error of the fit, relative to the medians; R2
	// how much of their variance it explains.
	RMSE float64 `json:"rmse"`
	R2   float64 `json:"r2"`
}

// Estimate is a figure with its confidence interval.
type Estimate struct {
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// Surface is a figure over two numbers, for one variant.
type Surface struct {
	Cell string `json:"cell"`
	Impl string `json:"impl"`
	// X and Y are the labels that were varied, Unit is what stands in Points.
	X    string `json:"x"`
	Y    string `json:"y"`
	Unit string `json:"unit"`
	// Xs and Ys are the values in order, as the labels have them.
	Xs []string `json:"xs"`
	Ys []string `json:"ys"`
	// Points by y and then x: the summary of the rounds; nil where the cell is
	// invalid.
	Points [][]*Summary `json:"points"`
}
