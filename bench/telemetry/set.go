package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
)

// Stage of a pipeline.
type Stage uint8

// The stages.
const (
	Released Stage = iota
	Enqueued
	Popped
	Stored
	Handled
	Worked

	stages
)

// stageNames are the values of the label stage. In pipelines with a merge, popped is merged.
var stageNames = [stages]string{"released", "enqueued", "popped", "stored", "handled", "worked"}

// Type of an event.
type Type uint8

// The types.
const (
	Added Type = iota
	Modified
	Deleted
	Replaced
	Sync
	Bookmark

	types
)

// typeNames are the values of the label type. REPLACED is for objects of a list, SYNC for a resync's.
var typeNames = [types]string{"ADDED", "MODIFIED", "DELETED", "REPLACED", "SYNC", "BOOKMARK"}

// TypeOf returns the type of a watch event or of a delta; Modified for an unknown or empty one, as
// a latest-object queue returns it. The first letters differ, but for Modified and Updated.
func TypeOf[T watch.EventType | cache.DeltaType](t T) Type {
	if t == "" {
		return Modified
	}
	switch t[0] {
	case 'A':
		return Added
	case 'D':
		return Deleted
	case 'R':
		return Replaced
	case 'S':
		return Sync
	case 'B':
		return Bookmark
	}
	return Modified
}

// Labels of a variant's metrics: the values of [CommonLabels].
type Labels [len(CommonLabels)]string

const (
	runLabel  = 0
	rateLabel = len(CommonLabels) - 1
)

// LabelsOf returns the labels of a cell.
func LabelsOf(family string, cell lab.Labels) (l Labels) {
	for i, name := range CommonLabels {
		switch name {
		case "family":
			l[i] = family
		case "variant":
			l[i] = cell.Label("impl")
		case "rate":
			l[i] = cmp.Or(cell.Label(name), lab.Unpaced)
		default:
			l[i] = cell.Label(name)
		}
	}
	return l
}

// Set has the metrics of one variant under one storm, see [Registry.Set]. It is safe for concurrent use.
type Set struct {
	labels Labels
	own    vectors

	mu         sync.Mutex                 // guards the fields below
	histograms []prometheus.Observer      // by Histogram; nil before the first value
	verdict    lab.Verdict                // present one
	began      time.Time                  // of the current play, or its last look; zero for none
	depth      func() (int, *int)         // returns the queue depth and the handlers' backlog; nil for no queue
	sampler    func(events int) *Sampling // selects the traced events of a round; nil for none
	sampling   *Sampling
}

// newSet returns the set of a variant. Counters of events in start at 0, as ratios of rates need the first events,
// too; other counters by stage, type or fault start with their first event, as most combinations never occur.
func newSet(labels Labels, own vectors) *Set {
	s := &Set{labels: labels, own: own, histograms: make([]prometheus.Observer, len(series))}
	for _, m := range counters {
		if len(m.Labels) == 0 {
			s.Add(m, 0)
		}
	}
	for stage := range Enqueued + 1 {
		for t := range Deleted + 1 {
			s.Count(stage, t, 0)
		}
	}
	s.set(queueDepth, 0)
	s.Baseline(false)
	s.Phase(Idle)
	return s
}

type contextKey struct{}

// With returns a context that carries the set to pipelines.
func With(ctx context.Context, s *Set) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// From returns the context's set; nil if there is none.
func From(ctx context.Context) *Set {
	s, _ := ctx.Value(contextKey{}).(*Set)
	return s
}

func (s *Set) set(m Metric, v float64, own ...string) {
	s.own.gauge(m, append(s.labels[:len(s.labels):len(s.labels)], own...)...).Set(v)
}

// Add adds to a counter; own are the values of its own labels.
func (s *Set) Add(m Metric, n float64, own ...string) {
	s.own.counters[m.Name].WithLabelValues(append(s.labels[:len(s.labels):len(s.labels)], own...)...).Add(n)
}

// Count records that n events of a type reached a stage; at Popped, deltas, objects or
// notifications that the variant returned.
func (s *Set) Count(stage Stage, t Type, n uint64) {
	s.Add(events, float64(n), stageNames[stage], typeNames[t])
	if stage == Popped {
		s.Add(Deltas, float64(n))
	}
}

// Tally counts events by stage and type for [Set.CountAll].
type Tally [stages][types]uint64

// CountAll adds a tally and clears it.
func (s *Set) CountAll(t *Tally) {
	for stage := range t {
		for kind, n := range t[stage] {
			if n > 0 {
				s.Count(Stage(stage), Type(kind), n)
			}
		}
	}
	*t = Tally{}
}

// Observe adds a value to a histogram, in nanoseconds or events; 0 for a negative one.
func (s *Set) Observe(h Histogram, value int64) {
	s.histogram(h).Observe(float64(max(value, 0)) / series[h].per)
}

// ObserveEvent is Observe for a known event. A traced event becomes an exemplar, which names the trace.
func (s *Set) ObserveEvent(h Histogram, value int64, seq uint64) {
	if !s.sampling.Sampled(seq) {
		s.Observe(h, value)
		return
	}
	s.histogram(h).(prometheus.ExemplarObserver).ObserveWithExemplar(
		float64(max(value, 0))/series[h].per, prometheus.Labels{"trace_id": s.sampling.Trace, "span_id": s.sampling.Span})
}

func (s *Set) histogram(h Histogram) prometheus.Observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.histograms[h] == nil {
		values := slices.Clone(s.labels[:])
		if m := series[h]; len(m.Labels) > 0 {
			values = append(values, m.label)
		}
		s.histograms[h] = s.own.histograms[series[h].Name].WithLabelValues(values...)
	}
	return s.histograms[h]
}

// Baseline sets whether ratios of the run are relative to the variant.
func (s *Set) Baseline(is bool) { s.set(baseline, map[bool]float64{true: 1}[is]) }

// Phase sets the phase: WarmUp, Measure or Idle.
func (s *Set) Phase(present string) {
	for _, p := range phases {
		s.set(phase, map[bool]float64{true: 1}[p == present], p)
	}
}

// Judge sets the present verdict.
func (s *Set) Judge(v lab.Verdict) {
	s.mu.Lock()
	before := s.verdict
	s.verdict = v
	s.mu.Unlock()
	if before != (lab.Verdict{}) {
		s.set(verdict, 0, string(before.Status), string(before.Cause))
	}
	s.set(verdict, 1, string(v.Status), string(v.Cause))
}

// Depth sets the function that [Set.Look] calls for the queue depth, and the number of notifications that wait for
// handlers, nil if it is not known; nil resets the depth to 0. Look may still be calling the previous function.
func (s *Set) Depth(depth func() (queue int, backlog *int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depth = depth
	s.set(queueDepth, 0)
}

// Look reads the queue depth. It may block on the queue's lock, so a scrape does not call it.
func (s *Set) Look() {
	s.mu.Lock()
	depth := s.depth
	s.mu.Unlock()
	if depth == nil {
		return
	}
	n, backlog := depth()
	s.mu.Lock()
	if s.depth == nil {
		s.mu.Unlock()
		return
	}
	s.set(queueDepth, float64(n))
	playing := s.passed(false)
	s.mu.Unlock()
	if !playing {
		return
	}
	s.Observe(QueuedEvents, int64(n))
	if backlog != nil {
		s.Observe(HandlerBacklog, int64(*backlog))
	}
}

// passed adds the time of the current play since its last look, and reports whether there is one. The caller holds mu.
func (s *Set) passed(over bool) bool {
	if s.began.IsZero() {
		return false
	}
	now := time.Now()
	s.Add(PlayTime, now.Sub(s.began).Seconds())
	if s.began = now; over {
		s.began = time.Time{}
	}
	return true
}

// Clock begins a play; stop ends it.
func (s *Set) Clock() (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.passed(true)
	}
}

// Sampling selects the events of a round that are traced; none if nil.
type Sampling struct {
	Every uint64 // traces the events whose number is a multiple of it; a power of two
	// Trace and Span are the IDs of the play's trace and of its root span, in hexadecimal.
	Trace, Span string
	Export      func(EventTrace) // exports the spans of an event
}

// Sampled reports whether an event is traced.
func (s *Sampling) Sampled(seq uint64) bool { return s != nil && seq&(s.Every-1) == 0 }

// EventTrace has the times at which an event reached the stages of a pipeline.
type EventTrace struct {
	Seq       uint64      // event's sequence number
	Type, Key string      // type as in a watch, and the object's key
	Intended  time.Time   // zero time in unpaced cells
	Stages    []StageTime // stages that the event reached, in order of time
}

// StageTime is an event's stamp at a stage.
type StageTime struct {
	Stage string // name of a stage, such as enqueued
	At    time.Time
}

// Sampler sets the function that selects the traced events of a round; nil for none.
func (s *Set) Sampler(sampler func(events int) *Sampling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sampler, s.sampling = sampler, nil
}

// Begin announces a round with a number of events. It returns the sampling of the round.
func (s *Set) Begin(events int) *Sampling {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sampler != nil {
		s.sampling = s.sampler(events)
	}
	return s.sampling
}
