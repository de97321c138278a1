package probe

import "time"

// Sampling says which events of a round are traced. The nil Sampling is for none.
type Sampling struct {
	// Every so many events, by their number, one is traced; a power of two.
	Every uint64
	// IDs returns those of an event's span, in hexadecimal.
	IDs func(seq uint64) (trace, span string)
	// Journey takes what was found out about a traced event, or about one that a
	// traced one was coalesced into.
	Journey func(Journey)
}

// Sampled reports whether an event is traced.
func (s *Sampling) Sampled(seq uint64) bool { return s != nil && seq&(s.Every-1) == 0 }

// Journey is an event's way through a pipeline.
type Journey struct {
	Seq uint64
	// Type as in a watch, and the object's key.
	Type, Key string
	// Intended is when it was meant to be released; zero in unpaced cells.
	Intended time.Time
	// Stages that it came to, in order, each with when.
	Stages []Arrival
	// Into is the event that this one was coalesced into: the version of the key
	// that was handled in its place; 0 where it came through itself.
	Into uint64
}

// Arrival at a stage.
type Arrival struct {
	Stage string
	At    time.Time
}

// Sampler sets what decides which of so many events are traced; nil for none.
func (s *Set) Sampler(sampler func(events int) *Sampling) {
	if s != nil {
		s.locked(func() { s.sampler, s.sampling = sampler, nil })
	}
}

// Begin says that so many events are going to be played. It is called before
// probes are made.
func (s *Set) Begin(events int) {
	if s != nil {
		s.locked(func() {
			if s.sampler != nil {
				s.sampling = s.sampler(events)
			}
		})
	}
}

// Sampling returns what was decided by Begin; nil for the nil Set.
func (s *Set) Sampling() *Sampling {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sampling
}
