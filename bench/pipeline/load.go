package pipeline

import (
	"slices"
	"time"

	"watchlab/impls"
	"watchlab/loadgen/pace"
)

// Stamps selects the stamped events of an unpaced cell of deltafifo or queue; see the
// package documentation. Paced cells stamp every event.
type Stamps string

const (
	// StampsNone stamps none. The cell has no latencies.
	StampsNone Stamps = "none"
	// StampsSampled, the default, stamps every 64th on the way in, and reads the
	// clock once for 64 on the way out.
	StampsSampled Stamps = "sampled"
	// StampsAll stamps every event, and reads the clock for each hand-over.
	StampsAll Stamps = "all"
)

// AllStamps returns all values of Stamps.
func AllStamps() []Stamps { return []Stamps{StampsNone, StampsSampled, StampsAll} }

// The limits of a config.
const (
	maxGoroutines  = 1024
	maxHandlerCost = time.Second
)

// stampsOf returns the stamped events of an unpaced cell.
func (s *Config) stampsOf() Stamps {
	switch {
	case s.Family == impls.Merge:
		return StampsAll
	case s.Stalled:
		// A latency would measure how long the consumer was held.
		return StampsNone
	}
	return s.Stamps
}

// consumersOf returns the number of consumers of a variant: one where the variant
// allows only one.
func (s *Config) consumersOf(g impls.Guarantees) int {
	if g.Consumers == impls.ManyConsumers {
		return max(1, s.Consumers)
	}
	return 1
}

// labelLoad adds a label for each load option that is set.
func (s *Config) labelLoad(l *labelSet, g impls.Guarantees) {
	if s.Consumers > 0 {
		l.add("consumers", s.consumersOf(g))
	}
	if s.Stalled {
		l.add("consumer", "stalled")
	}
	l.add("readers", s.Readers)
	l.add("handler", s.HandlerCost)
	l.add("procs", s.Procs)
	l.add("stamps", s.Stamps)
}

// checkLoad validates the load options. relisted: the storm has relists.
func (s *Config) checkLoad(relisted bool) error {
	queue := s.Pipeline == QueuePipeline && s.Family != impls.Merge
	paced := slices.ContainsFunc(s.Paces, pace.Pace.Paced)
	for _, n := range []struct {
		what string
		n    int
	}{{"consumers", s.Consumers}, {"readers", s.Readers}, {"procs", s.Procs}} {
		if n.n < 0 || n.n > maxGoroutines {
			return refuse("%d %s (allowed: 0 to %d)", n.n, n.what, maxGoroutines)
		}
	}
	switch {
	case s.Consumers > 0 && !queue:
		return refuse("consumers of family %s in the %s pipeline, which has one (allowed: deltafifo and queue in the %s pipeline)", s.Family, s.Pipeline, QueuePipeline)
	case s.Consumers > 1 && relisted:
		return refuse("%d consumers on storm %s, which is relisted: a tombstone doesn't say which of them it follows (allowed: 1)", s.Consumers, s.Storm.Name)
	case s.Readers > 0 && s.Pipeline != InformerPipeline:
		return refuse("readers in the %s pipeline, which has no indexer (allowed: %s)", s.Pipeline, InformerPipeline)
	case s.HandlerCost < 0 || s.HandlerCost > maxHandlerCost:
		return refuse("a handler that takes %v an event (allowed: 0 to %v)", s.HandlerCost, maxHandlerCost)
	case s.HandlerCost > 0 && s.Family == impls.Merge:
		return refuse("a handler's cost for family %s (allowed: %s, %s)", s.Family, impls.DeltaFIFO, impls.Queue)
	case s.Stamps != "" && !slices.Contains(AllStamps(), s.Stamps):
		return refuse("stamps %q (allowed: %s, %s, %s)", s.Stamps, StampsNone, StampsSampled, StampsAll)
	case s.Stamps != "" && s.Family == impls.Merge:
		return refuse("stamps %s for family %s, whose pipelines stamp every event", s.Stamps, s.Family)
	case s.Stamps != "" && paced:
		return refuse("stamps %s at a pace, where every event is stamped (allowed: unpaced)", s.Stamps)
	case s.Stalled && !queue:
		return refuse("a stalled consumer of family %s in the %s pipeline (allowed: deltafifo and queue in the %s pipeline)", s.Family, s.Pipeline, QueuePipeline)
	case s.Stalled && s.Knobs.Capacity > 0:
		return refuse("a stalled consumer and capacity %d: producers would wait for ever (allowed: unbounded)", s.Knobs.Capacity)
	case s.Stalled && s.Consumers > 1:
		return refuse("a stalled consumer and %d of them (allowed: 1)", s.Consumers)
	case s.Stalled && paced:
		return refuse("a stalled consumer at a pace: what is measured is how it drains (allowed: unpaced)")
	case s.Stalled && s.Stamps != "":
		return refuse("stamps %s with a stalled consumer, which has no latencies", s.Stamps)
	}
	return nil
}
