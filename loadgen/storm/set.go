package storm

import (
	"fmt"
	"time"

	"watchlab/loadgen/fault"
)

// Set is what a profile makes: the storms of one cluster, a [Storm] for each
// resource, on one clock. Like a storm, it is shared and must not be changed.
type Set struct {
	Name string

	Storms []*Storm

	Phases []Phase

	Faults []fault.Spec
}

// Phase is a stretch of a storm with a name: baseline, storm or drain.
type Phase struct {
	Name string

	From, To time.Duration
}

// MarkFaults returns the relists of the first storm as faults, for a server that
// plays the set to anybody: pipelines play marks themselves.
func (s *Set) MarkFaults() []fault.Spec {
	if len(s.Storms) == 0 {
		return nil
	}
	var out []fault.Spec
	first := s.Storms[0]
	for _, m := range first.Marks {
		if m.What == MarkRelist && m.After > 0 {
			out = append(out, fault.Spec{Name: fault.Relist, At: fault.Duration(first.Events[m.After-1].At)})
		}
	}
	return out
}

// Of returns the storm of a resource by its plural name, such as "pods", and
// false where the set has none.
func (s *Set) Of(resource string) (*Storm, bool) {
	for _, st := range s.Storms {
		if st.Resource.Resource == resource {
			return st, true
		}
	}
	return nil, false
}

// Validate checks each storm (see [Storm.Validate]), that there is one, that no
// resource has two, and that phases don't end before they begin. The error wraps
// [ErrInvalid] and names the resource. O(events).
func (s *Set) Validate() error {
	if len(s.Storms) == 0 {
		return fmt.Errorf("%w: a set without storms", ErrInvalid)
	}
	seen := map[string]bool{}
	for _, st := range s.Storms {
		name := st.Resource.GroupResource().String()
		if seen[name] {
			return fmt.Errorf("%w: two storms of %s", ErrInvalid, name)
		}
		seen[name] = true
		if err := st.Validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, p := range s.Phases {
		if p.To < p.From || p.From < 0 {
			return fmt.Errorf("%w: phase %s lasts from %v to %v", ErrInvalid, p.Name, p.From, p.To)
		}
	}
	return nil
}
