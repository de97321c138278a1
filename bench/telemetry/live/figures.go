package live

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
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

// Labels of a variant's metrics: the common ones, in their order.
type Labels struct {
	Run, Family, Variant, Delivery, Pipeline, Storm, Source, Encoding, Decode, Store, Workqueue, Rate string
}

// Values returns the labels in the order of the common labels, and Names their names.
func (l Labels) Values() []string {
	return []string{l.Run, l.Family, l.Variant, l.Delivery, l.Pipeline, l.Storm, l.Source, l.Encoding, l.Decode, l.Store, l.Workqueue, l.Rate}
}

// Names returns the names of the common labels.
func (Labels) Names() []string { return commonLabels }

// LabelsOf returns the labels of a cell, whose own labels label returns by their keys.
func LabelsOf(family string, label func(key string) string) Labels {
	return Labels{
		Family: family, Variant: label("impl"), Delivery: label("delivery"), Pipeline: label("pipeline"),
		Storm: label("storm"), Source: label("source"), Encoding: label("encoding"), Decode: label("decode"),
		Store: label("store"), Workqueue: label("workqueue"), Rate: label("rate"),
	}
}

// Group names the comparison of the labels: all but the run, the variant and the rate.
func (l Labels) Group() string {
	parts := []string{l.Family, l.Delivery, l.Pipeline, l.Storm, l.Source, l.Encoding, l.Decode, l.Store, l.Workqueue}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · ")
}

// Verdict on a cell: a status and a cause as in bench/lab.
type Verdict struct{ Status, Cause string }

// Figures of one variant. [Set.Update] gives access to them, [Set.Snapshot] a copy.
type Figures struct {
	Labels         Labels    // of the variant
	Created        time.Time // start of the counters
	QueueDepth     int       // at the last [Set.Look]
	HandlerBacklog *int      // notifications that wait for handlers; nil if it is not known
	Phase          string    // WarmUp, Measure or Idle
	Verdict        Verdict
	Baseline       bool // ratios of the run are relative to it

	judged   map[Verdict]bool // all verdicts so far
	began    time.Time        // of the current play; zero for none
	played   time.Duration    // of the plays that ended
	events   [stages][types]uint64
	counters map[count]uint64
	dists    []Distribution // by Histogram
	sampling *Sampling
}

// count is a series of a counter: its metric, and the value of the metric's own label, if it has one.
type count struct {
	desc  *prometheus.Desc
	label string
}

// Judge sets the present verdict.
func (f *Figures) Judge(v Verdict) { f.Verdict, f.judged[v] = v, true }

// PlayTime returns the time of all plays.
func (f *Figures) PlayTime() time.Duration {
	if f.began.IsZero() {
		return f.played
	}
	return f.played + time.Since(f.began)
}

// Count records that n events of a type reached a stage.
func (f *Figures) Count(s Stage, t Type, n int) { f.events[s][t] += uint64(n) }

// Add adds to a counter; label is the value of its own label, if it has one.
func (f *Figures) Add(m Metric, n uint64, label ...string) {
	f.counters[count{m.desc, strings.Join(label, "")}] += n
}

// Counted returns a counter.
func (f *Figures) Counted(m Metric, label ...string) uint64 {
	return f.counters[count{m.desc, strings.Join(label, "")}]
}

// Observe adds a value to a histogram, in nanoseconds or events; 0 for a negative one.
func (f *Figures) Observe(h Histogram, value int64) { f.ObserveN(h, value, 1) }

// ObserveN adds a value n times.
func (f *Figures) ObserveN(h Histogram, value int64, n uint64) {
	f.dists[h].observe(value, n, series[h].per)
}

// ObserveEvent is Observe for a known event. A traced event becomes an exemplar.
func (f *Figures) ObserveEvent(h Histogram, value int64, seq uint64) {
	f.Observe(h, value)
	if f.sampling.Sampled(seq) {
		trace, span := f.sampling.IDs(seq)
		f.dists[h].exemplify(float64(value)/series[h].per, trace, span)
	}
}

// Events returns the number of events of a type that reached a stage.
func (f *Figures) Events(s Stage, t Type) uint64 { return f.events[s][t] }

// Total returns the number of events that reached a stage; at Popped, of deltas, objects or
// notifications that the variant returned.
func (f *Figures) Total(s Stage) (n uint64) {
	for _, of := range f.events[s] {
		n += of
	}
	return n
}

// Distribution returns the values of a histogram.
func (f *Figures) Distribution(h Histogram) *Distribution { return &f.dists[h] }

// Set has the figures of one variant under one storm. It is safe for concurrent use. Methods of
// the nil Set are no-ops.
type Set struct {
	upstream *Upstream

	mu      sync.Mutex // guards the fields below
	figures Figures
	depth   func() int                 // returns the queue depth; nil for no queue
	sampler func(events int) *Sampling // selects the traced events of a round; nil for none
}

// NewSet returns an empty set in phase idle, without a registry.
func NewSet(labels Labels) *Set {
	s := &Set{figures: Figures{
		Labels: labels, Created: time.Now(), Phase: Idle,
		counters: map[count]uint64{}, judged: map[Verdict]bool{}, dists: make([]Distribution, len(series)),
	}}
	for _, m := range counters {
		if len(m.Labels) == 0 {
			s.figures.Add(m, 0)
		}
	}
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

// Labels of the set.
func (s *Set) Labels() Labels { return s.figures.Labels }

// Upstream returns the metrics under client-go's names; nil without a registry.
func (s *Set) Upstream() *Upstream {
	if s == nil {
		return nil
	}
	return s.upstream
}

// Update calls f under the set's lock. f must not call the set's methods.
func (s *Set) Update(f func(*Figures)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.figures)
}

// Depth sets the function that [Set.Look] calls for the queue depth; nil resets the depth to 0. Look may
// still be calling the previous function.
func (s *Set) Depth(depth func() int) {
	s.Update(func(f *Figures) {
		s.depth, f.QueueDepth, f.HandlerBacklog = depth, 0, nil
	})
}

// Look reads the queue depth. It may block on the queue's lock, so a scrape does not call it.
func (s *Set) Look() {
	var depth func() int
	s.Update(func(*Figures) { depth = s.depth })
	if depth == nil {
		return
	}
	n := depth()
	s.Update(func(f *Figures) {
		if s.depth == nil {
			return
		}
		f.QueueDepth = n
		if f.began.IsZero() {
			return
		}
		f.Observe(QueuedEvents, int64(n))
		if b := f.HandlerBacklog; b != nil {
			f.Observe(HandlerBacklog, int64(*b))
		}
	})
}

// Clock begins a play; stop ends it.
func (s *Set) Clock() (stop func()) {
	s.Update(func(f *Figures) { f.began = time.Now() })
	return func() {
		s.Update(func(f *Figures) { f.played, f.began = f.PlayTime(), time.Time{} })
	}
}

// Sampling selects the events of a round that are traced; none if nil.
type Sampling struct {
	Every uint64 // traces the events whose number is a multiple of it; a power of two
	// IDs returns the IDs of an event's trace and span, in hexadecimal.
	IDs    func(seq uint64) (trace, span string)
	Export func(EventTrace) // exports the spans of an event
}

// Sampled reports whether an event is traced.
func (s *Sampling) Sampled(seq uint64) bool { return s != nil && seq&(s.Every-1) == 0 }

// EventTrace has the times at which an event reached the stages of a pipeline.
type EventTrace struct {
	Seq       uint64      // event's sequence number
	Type, Key string      // type as in a watch, and the object's key
	Intended  time.Time   // zero time in unpaced cells
	Stages    []StageTime // stages that the event reached, in order of time
	Into      uint64      // event that this one was coalesced into; 0 for none
}

// StageTime is an event's stamp at a stage.
type StageTime struct {
	Stage string // name of a stage, such as enqueued
	At    time.Time
}

// Sampler sets the function that selects the traced events of a round; nil for none.
func (s *Set) Sampler(sampler func(events int) *Sampling) {
	s.Update(func(f *Figures) { s.sampler, f.sampling = sampler, nil })
}

// Begin announces a round with a number of events. It returns the sampling of the round.
func (s *Set) Begin(events int) (sampling *Sampling) {
	s.Update(func(f *Figures) {
		if s.sampler != nil {
			f.sampling = s.sampler(events)
		}
		sampling = f.sampling
	})
	return sampling
}

// Snapshot returns a copy. Two counts may differ by some events while the pipeline runs.
func (s *Set) Snapshot() *Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.figures
	out.counters, out.judged, out.dists = maps.Clone(out.counters), maps.Clone(out.judged), slices.Clone(out.dists)
	for h := range out.dists {
		out.dists[h].exemplars = maps.Clone(out.dists[h].exemplars)
	}
	return &out
}
