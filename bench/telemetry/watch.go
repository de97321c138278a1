package telemetry

import (
	"bytes"
	"context"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pprof"
	"watchlab/bench/stats"
)

// Objectives exports the latencies that the run allows.
func (s *Session) Objectives(all []stats.Objective) {
	for _, o := range all {
		if s != nil {
			s.registry.Objective(strings.TrimSuffix(o.Unit, "-ns"), o.Most)
		}
	}
}

// Watch returns a cell that reports to the session. Cells that differ only in knobs share their series, and so do all
// rates that a search tries: its further cells. The second cell of an A/A pair has its own, as it has in results.
func (s *Session) Watch(family string, c lab.Cell, further bool) lab.Cell {
	if s == nil {
		return c
	}
	labels := LabelsOf(family, c.Labels)
	w := &watched{session: s, name: c.BenchName(), family: family, own: c.Labels, rate: labels[rateLabel]}
	if further {
		labels[rateLabel] = SearchedRate
	}
	w.set = s.registry.Set(labels)
	w.set.Baseline(c.Baseline)
	s.mu.Lock()
	s.cells[w.name] = w
	s.mu.Unlock()
	build := c.New
	c.New = func() (lab.Workload, error) {
		inner, err := build()
		if err != nil || inner == nil {
			return inner, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return &workload{Workload: inner, cell: w, round: s.round}, nil
	}
	return c
}

// watched is a cell of the session.
type watched struct {
	session      *Session
	name, family string
	own          lab.Labels
	rate         string // its own; that of set may be another
	set          *Set
}

// labels returns the labels of the cell with its own rate.
func (w *watched) labels() Labels {
	l := w.set.labels
	l[rateLabel] = w.rate
	return l
}

// Progress returns the function for [lab.Options].Progress. It calls next, unless nil.
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
	defer s.mu.Unlock()
	s.round = p.Round
	share := float64(p.Done) / float64(p.Total)
	if p.Total == 0 {
		// A run with a budget has no number of plays.
		share = float64(p.Spent) / float64(max(p.Spent+p.Left, 1))
	}
	s.registry.Progress(len(s.cells), share)
	if p.Finished && p.Round > 0 && s.registry.Watched() && time.Since(s.reported) >= reportEvery {
		s.show(p.Outcome, false)
	}
	w := s.cells[p.Cell]
	if w == nil || !p.Finished {
		return
	}
	w.set.Judge(p.Result.Verdict)
	switch {
	case p.Result.Verdict.Status == lab.Invalid:
		s.registry.Withdraw(w.labels())
	case p.Round > 0 && !p.Skipped:
		w.set.Add(Rounds, 1)
		w.finish(p.Result)
	}
}

// Over ends the progress of a run, and shows its report. The outcome must not change any more.
func (s *Session) Over(o *lab.Outcome) {
	if s == nil || o == nil || o.Paused {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.Interrupted {
		s.registry.Progress(len(s.cells), 1) // the time left is an estimate
	}
	s.show(o, true)
}

// show makes the report of a run the live page. A report that cannot be written leaves the page as it is.
func (s *Session) show(o *lab.Outcome, over bool) {
	var page bytes.Buffer
	if s.report != nil && s.server != nil && s.report(&page, o) == nil {
		s.registry.Show(page.Bytes(), over)
		s.reported = time.Now()
	}
}

func (w *watched) finish(r lab.CellResult) {
	var quantiles map[string]float64
	headline := stats.Headline(r.Rounds[0].Result)
	for _, l := range r.Latency {
		if l.Boundary == headline && w.rate != lab.Unpaced {
			quantiles = map[string]float64{
				"0.5": l.P50.Seconds(), "0.9": l.P90.Seconds(), "0.99": l.P99.Seconds(), "0.999": l.P999.Seconds(), "1": l.Max.Seconds(),
			}
		}
	}
	w.session.registry.Finish(w.labels(), map[string]float64{
		EventsPerSecond.Name: r.Medians[stats.UnitEventsPerSec].Median,
		CPUPerEvent.Name:     r.Medians[stats.UnitCPUPerOp].Median / 1e9,
		BytesPerEvent.Name:   r.Medians[stats.UnitBytesPerOp].Median,
	}, quantiles)
}

// workload is one round of a watched cell.
type workload struct {
	lab.Workload
	cell  *watched
	round int // 0 for the warm-up
	span  *cellSpan
}

func (w *workload) context(ctx context.Context) context.Context {
	ctx = With(ctx, w.cell.set)
	if w.cell.session.profiled && !pprof.Labelled(ctx) {
		ctx = pprof.With(ctx, w.cell.family, w.cell.own)
	}
	return ctx
}

func (w *workload) Setup(ctx context.Context) error {
	w.span = w.cell.session.exporter.startCell(w.cell.name, w.cell.labels(), w.round)
	w.cell.set.Sampler(w.span.sampling)
	return w.Workload.Setup(w.context(ctx))
}

func (w *workload) Run(ctx context.Context, rec *cell.Recorder) error {
	phase := Measure
	if w.round == 0 {
		phase = WarmUp
	}
	w.cell.set.Phase(phase)
	defer w.cell.set.Phase(Idle)
	rec.Before(w.cell.set.Clock)
	return w.Workload.Run(w.context(ctx), rec)
}

func (w *workload) Check() error {
	err := w.Workload.Check()
	if err != nil {
		w.span.invalid(string(lab.Invalid), strings.Join(strings.Fields(err.Error()), " "))
	}
	return err
}

func (w *workload) Teardown() error {
	defer w.span.End()
	w.cell.set.Depth(nil)
	return w.Workload.Teardown()
}
