package telemetry

import (
	"context"
	"slices"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
	"watchlab/bench/stats"
	"watchlab/bench/telemetry/expose"
	"watchlab/bench/telemetry/metric"
	"watchlab/bench/telemetry/otlp"
	"watchlab/bench/telemetry/probe"
)

// Watch returns the comparisons with cells that tell the session what happens; for
// the nil Session as they are. Cells that differ by knobs or pace alone share a set
// of series: their labels are those of [metric.CommonLabels]. So do the two of an
// A/A pair, whose second is no cell of its own here.
func (s *Session) Watch(comparisons []lab.Comparison) []lab.Comparison {
	if s == nil {
		return comparisons
	}
	cells := 0
	out := slices.Clone(comparisons)
	for i := range out {
		out[i] = s.watch(out[i])
		cells += len(out[i].Cells)
	}
	s.registry.Progress(cells, 0)
	return out
}

func (s *Session) watch(c lab.Comparison) lab.Comparison {
	c.Cells = s.watchCells(c, c.Cells)
	if more := c.More; more != nil {
		c.More = func(played []lab.CellResult) []lab.Cell { return s.watchCells(c, more(played)) }
	}
	return c
}

func (s *Session) watchCells(c lab.Comparison, cells []lab.Cell) []lab.Cell {
	out := slices.Clone(cells)
	for i := range out {
		w := s.watchedCell(c, &out[i])
		build := out[i].New
		out[i].New = func() (lab.Workload, error) {
			inner, err := build()
			if err != nil || inner == nil {
				return inner, err
			}
			return &workload{Workload: inner, cell: w, round: s.currentRound()}, nil
		}
	}
	return out
}

// watched is a cell that is told of.
type watched struct {
	session *Session
	name    string
	rate    string
	set     *probe.Set

	headline cell.Boundary

	rounds []cell.Result
	last   *cell.Result
}

func (s *Session) watchedCell(of lab.Comparison, c *lab.Cell) *watched {
	l := probe.Labels{Family: of.Family}
	w := &watched{session: s, name: c.BenchName(), rate: lab.Unpaced, headline: of.Latency}
	for _, label := range c.Labels {
		switch label.Key {
		case "impl":
			l.Variant = label.Value
		case "delivery":
			l.Delivery = label.Value
		case "pipeline":
			l.Pipeline = label.Value
		case "storm":
			l.Storm = label.Value
		case "source":
			l.Source = label.Value
		case "rate":
			w.rate = label.Value
		}
	}
	w.set = s.registry.Set(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells[w.name] = w
	return w
}

func (s *Session) currentRound() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.round
}

// Progress is to be called for each [lab.Options].Progress, and calls next, which
// may be nil.
func (s *Session) Progress(next func(lab.Progress)) func(lab.Progress) {
	if s == nil {
		return next
	}
	return func(p lab.Progress) {
		s.progress(p)
		if next != nil {
			next(p)
		}
	}
}

func (s *Session) progress(p lab.Progress) {
	s.mu.Lock()
	s.round = p.Round
	w, cells := s.cells[p.Cell], len(s.cells)
	s.mu.Unlock()
	if p.Total > 0 {
		s.registry.Progress(cells, float64(p.Done)/float64(p.Total))
	}
	if w == nil || !p.Finished {
		return
	}
	w.set.Judge(probe.Verdict{Status: string(p.Verdict.Status), Cause: string(p.Verdict.Cause)})
	switch {
	case p.Verdict.Status == lab.Invalid:
		s.registry.Withdraw(w.set.Labels(), w.rate)
	case p.Round > 0 && !p.Skipped:
		w.set.Round()
		w.finish()
	}
}

// finish counts the last play, and exposes what the cell has measured so far.
func (w *watched) finish() {
	s := w.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.last == nil {
		return
	}
	w.rounds, w.last = append(w.rounds, *w.last), nil
	f := expose.Finished{Labels: w.set.Labels(), Rate: w.rate}
	var perSecond []float64
	var parts []cell.Quantiles
	headline := stats.Headline(w.rounds[0], w.headline)
	for _, r := range w.rounds {
		perSecond = append(perSecond, r.EventsPerSecond)
		if l, ok := r.At(headline); ok {
			parts = append(parts, l.Quantiles)
		}
	}
	f.EventsPerSecond = stats.Median(perSecond)
	if len(parts) > 0 {
		// Those of one boundary are always of the same shape.
		if q, err := cell.MergeHistograms(parts...); err == nil {
			f.Quantiles = map[string]float64{
				"0.5": q.P50.Seconds(), "0.9": q.P90.Seconds(), "0.99": q.P99.Seconds(), "0.999": q.P999.Seconds(), "1": q.Max.Seconds(),
			}
		}
	}
	s.registry.Finish(f)
}

// workload is one play of a watched cell.
type workload struct {
	lab.Workload
	cell  *watched
	round int
	span  *otlp.Cell
	rec   *cell.Recorder
}

// forget what a play measured that was not asked for.
func (s *Session) forget(w *watched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.last = nil
}

// context is the one that the workload is to run under.
func (w *workload) context(ctx context.Context) context.Context {
	s := w.cell.session
	ctx = probe.With(ctx, w.cell.set)
	ctx = expose.WithUpstream(ctx, s.registry.Upstream())
	if s.profiler != nil && !profile.Labelled(ctx) {
		l := w.cell.set.Labels()
		ctx = profile.With(ctx, l.Family, l.Variant, l.Storm)
	}
	return ctx
}

func (w *workload) Setup(ctx context.Context) error {
	w.span = w.cell.session.run.StartCell(w.cell.name, w.cell.set.Labels(), w.cell.rate, w.round)
	w.cell.set.Sampler(w.span.Sampling)
	w.cell.session.forget(w.cell)
	return w.Workload.Setup(w.context(ctx))
}

func (w *workload) Run(ctx context.Context, rec *cell.Recorder) error {
	w.rec = rec
	phase := metric.Measure
	if w.round == 0 {
		phase = metric.WarmUp
	}
	w.cell.set.Phase(phase)
	defer w.cell.set.Phase(metric.Idle)
	return w.Workload.Run(w.context(ctx), rec)
}

func (w *workload) Check() error {
	err := w.Workload.Check()
	if err != nil {
		w.span.Judge(probe.Verdict{Status: string(lab.Invalid), Cause: oneLine(err.Error())})
		return err
	}
	// The lab asks the recorder too, and judges its errors.
	if r, err := w.rec.Result(); err == nil && w.round > 0 {
		s := w.cell.session
		s.mu.Lock()
		defer s.mu.Unlock()
		w.cell.last = &r
	}
	return nil
}

func (w *workload) Teardown() error {
	defer w.span.End()
	w.cell.set.Depth(nil, 0)
	return w.Workload.Teardown()
}

// oneLine folds an error's text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
