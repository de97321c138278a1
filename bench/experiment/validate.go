package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"watchlab/bench/pipeline"
	"watchlab/bench/pprof"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

const memorySource = source.MemoryName // default source of a [Spec]

// Validate rejects an invalid Spec. It reads no files and connects to nothing. The error
// is a [manifest.Error] if one field is wrong.
func (s Spec) Validate() error {
	full := s.withDefaults()
	in := map[string]string{"pipeline": full.Pipeline, "source": full.Source, "family": string(full.Family)}
	checks := []func() error{s.validateRun, s.validateStorm, s.validateSearch, s.validateStages}
	if len(s.Parts) > 0 {
		in, checks = nil, []func() error{s.validateRun, s.validateParts}
	}
	if err := checkFields(&s, in); err != nil {
		return err
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validateRun validates what a run has once, for all its parts.
func (s *Spec) validateRun() error {
	switch {
	case s.Budget.Duration > 0 && s.Rounds > 0 && len(s.Parts) == 0 && !s.isKnee():
		return manifest.Bad("budget", "is in place of --rounds")
	case s.Processes > 1 && s.Memory:
		return manifest.Bad("processes", "is not for --memory")
	}
	if _, err := s.profileKinds(); err != nil {
		return err
	}
	return s.validateClaims()
}

func (s *Spec) profileKinds() ([]pprof.Kind, error) {
	if len(s.Profiles) == 0 {
		return nil, nil
	}
	kinds, err := pprof.Parse(strings.Join(s.Profiles, ","))
	return kinds, manifest.BadField("profiles", err)
}

func (s *Spec) validateParts() error {
	if s.Search != nil {
		return manifest.Bad("search", "is not for an experiment with parts")
	}
	for i, part := range s.Parts {
		var err error
		switch {
		case len(part.Parts) > 0:
			err = manifest.Bad("parts", "a part has no parts")
		case part.Search != nil:
			err = manifest.Bad("search", "a part has no search")
		case len(part.Claims) > 0:
			err = manifest.Bad("claims", "a part has no claims")
		default:
			err = s.inherit(part).Validate()
		}
		if err != nil {
			return inPart(i, err)
		}
	}
	return nil
}

// validateStorm validates the selection, the shares and the pace of the storm.
func (s *Spec) validateStorm() error {
	if d := s.HandlerCost.Duration; d > maxHandlerCost {
		return manifest.Bad("handlerCost", "%v (allowed: 0 to %v)", d, maxHandlerCost)
	}
	if err := s.Storm.Validate(); err != nil {
		return err
	}
	return s.parse(new(pipeline.Config))
}

// validateStages validates the choice of encoding, decoder, initial list, store and workqueue.
func (s *Spec) validateStages() error {
	if s.Store != "" {
		if _, err := store.Lookup(s.Store); err != nil {
			return manifest.BadField("store", err)
		}
	}
	if s.Workqueue != "" {
		if _, err := workqueue.Lookup(s.Workqueue); err != nil {
			return manifest.BadField("workqueue", err)
		}
	}
	_, err := s.Wire.Complete()
	if errors.Is(err, source.ErrInitialList) {
		return manifest.BadField("initialList", err)
	}
	return manifest.BadField("decode", err)
}

const (
	maxValues      = 1000 // cells that a list may ask for
	maxHandlerCost = time.Second
)

// parse sets the config's fields that the Spec has as text.
func (s *Spec) parse(c *pipeline.Config) (err error) {
	if len(s.Paces) > maxValues {
		return manifest.Bad("paces", "%d values (allowed: %d)", len(s.Paces), maxValues)
	}
	for _, text := range s.Paces {
		p, err := pace.Parse(text)
		if err == nil && slices.ContainsFunc(c.Paces, func(o pace.Pace) bool { return o.String() == p.String() }) {
			err = fmt.Errorf("%s is named twice", text)
		}
		if err != nil {
			return manifest.BadField("paces", err)
		}
		c.Paces = append(c.Paces, p)
	}
	c.Budget = s.LagBudget.Duration
	if s.Share != "" {
		if c.Share, err = storm.ParseShare(s.Share); err != nil {
			return manifest.BadField("share", err)
		}
	}
	if c.Faults, err = fault.ParseAll(s.Faults...); err == nil {
		_, err = fault.New(c.Faults, 0) // An informer is no program to crash.
	}
	return manifest.BadField("faults", err)
}

// Validate rejects invalid sizes, and sizes for a storm that is no profile.
func (s Storm) Validate() error {
	const in = "storm."
	if err := checkFields(&s, nil); err != nil {
		bad, _ := errors.AsType[*manifest.Error](err)
		return manifest.BadField(in+bad.Field, bad.Err)
	}
	if s.Scale != 0 && !(s.Scale > 0) || s.Scale > 1e6 {
		return manifest.Bad(in+"scale", "%v is not allowed (allowed: above 0, up to 1000000)", s.Scale)
	}
	if s.Skew != "" {
		if _, err := storm.ParseSkew(s.Skew); err != nil {
			return manifest.BadField(in+"skew", err)
		}
	}
	if slices.Contains(storm.Names(), s.Name) {
		return nil
	}
	for _, f := range Fields(&s) {
		if f.Path != "name" && !isZero(f.value) {
			return manifest.Bad(in+f.Path, "storm %q is no profile, whose size and skew can be chosen (profiles: %s)", cmp.Or(s.Name, DefaultStorm), strings.Join(storm.Names(), ", "))
		}
	}
	return nil
}
