package probe

import "time"

// Sampling says which events of a round are traced. The nil Sampling is for none.
type Sampling struct {
	Every uint64

	IDs func(seq uint64) (trace, span string)

	Journey func(Journey)
}

// Sampled reports whether an event is traced.
func (s *Sampling) Sampled(seq uint64) bool { return s != nil && seq&(s.Every-1) == 0 }

// Journey is an event's way through a pipeline.
type Journey struct {
	Seq uint64

	Type, Key string

	Intended time.Time

	Stages []Arrival

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
