package controller

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"watchlab/bench/experiment"
	"watchlab/loadgen/fault"
)

// The labels of programs.
const (
	New = "new" // program under test
	Old = "old" // baseline of a comparison
)

// The names of fault plans that are no faults.
const (
	PlanNone = "none" // without faults
	PlanAll  = "all"  // each fault once, spread over the storm
	PlanEach = "each" // a plan for each fault, which strikes twice
)

// ErrSpec is wrapped by the errors for a Spec that cannot be played.
var ErrSpec = errors.New("invalid Spec")

// FieldError is a mistake in a [Spec]. It matches [ErrSpec].
type FieldError struct {
	Field string // such as plans
	Err   error
}

func (e *FieldError) Error() string        { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error        { return e.Err }
func (e *FieldError) Is(target error) bool { return target == ErrSpec }

// Load reads a Spec from a YAML file, such as controller.yaml of a results folder. Unknown fields are errors.
func Load(path string) (Spec, error) {
	var s Spec
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := yaml.UnmarshalStrict(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// defaultStorm plays without a storm and a workload: the loss of 4 of 20 nodes.
var defaultStorm = experiment.Storm{Name: "nodeloss", Nodes: 20}

const (
	defaultSpeed  = 3 // of defaultStorm, whose minute thus takes 20 s
	defaultRounds = 5 // of two programs
)

// complete fills in the defaults.
func (s Spec) complete() Spec {
	if reflect.ValueOf(s.Storm).IsZero() && s.Workload == "" {
		s.Storm, s.Speed = defaultStorm, cmp.Or(s.Speed, defaultSpeed)
	}
	if len(s.Plans) == 0 {
		s.Plans = []string{PlanNone, PlanAll}
	}
	s.Speed = cmp.Or(s.Speed, 1)
	s.Seed = cmp.Or(s.Seed, 1)
	s.Replicas = cmp.Or(s.Replicas, 1)
	if s.Rounds == 0 {
		if s.Rounds = 1; len(s.Programs) > 1 {
			s.Rounds = defaultRounds
		}
	}
	s.Settle = cmp.Or(s.Settle, metav1.Duration{Duration: 30 * time.Second})
	s.Warmup = cmp.Or(s.Warmup, metav1.Duration{Duration: time.Minute})
	return s
}

// Validate checks the Spec without its files. The error is a [*FieldError].
func (s Spec) Validate() error {
	bad := func(field, format string, args ...any) error { return &FieldError{field, fmt.Errorf(format, args...)} }
	switch {
	case s.Attach && len(s.Programs) > 0:
		return bad("programs", "a program is given, but with attach it runs elsewhere")
	case !s.Attach && (len(s.Programs) == 0 || len(s.Programs[0].Command) == 0):
		return bad("programs", "no program is given (watchlab controller -- ./my-controller)")
	case len(s.Programs) > 2:
		return bad("programs", "%d programs (allowed: 1, or 2 to compare)", len(s.Programs))
	case s.Attach && (len(s.Restarts) > 0 || s.InCluster):
		return bad("attach", "programs that run elsewhere are not started")
	case s.Replicas < 0 || s.Replicas > 100:
		return bad("replicas", "%d (allowed: 1 to 100)", s.Replicas)
	case s.Rounds < 0:
		return bad("rounds", "%d is negative", s.Rounds)
	case s.Speed < 0 || s.Speed > 1e6 || math.IsNaN(s.Speed):
		return bad("speed", "%v (allowed: more than 0, at most 1e6)", s.Speed)
	case s.Settle.Duration < 0 || s.Warmup.Duration < 0:
		return bad("settle", "a time is negative")
	}
	for _, at := range s.Restarts {
		if at.Duration <= 0 {
			return bad("restarts", "%v is not after the start of the storm", at.Duration)
		}
	}
	if !reflect.ValueOf(s.Storm).IsZero() {
		if s.Storm.Name == "" {
			return bad("storm", "a size is given, but no storm")
		}
		if err := s.Storm.Validate(); err != nil {
			return err
		}
	}
	_, err := plansOf(s.Plans, time.Minute)
	return err
}

// plan is a fault plan.
type plan struct {
	name   string
	faults []fault.Spec
}

// plansOf returns the fault plans for a storm of a length.
func plansOf(texts []string, length time.Duration) ([]plan, error) {
	var plans []plan
	add := func(p plan) error {
		if slices.ContainsFunc(plans, func(have plan) bool { return have.name == p.name }) {
			return &FieldError{"plans", fmt.Errorf("%s is given twice", p.name)}
		}
		plans = append(plans, p)
		return nil
	}
	for _, text := range texts {
		var err error
		switch text {
		case PlanNone:
			err = add(plan{name: PlanNone})
		case PlanAll:
			err = add(plan{PlanAll, fault.Tour(length/time.Duration(len(fault.Names())+1), 1)})
		case PlanEach:
			for _, name := range fault.Names() {
				third := fault.Duration(length / 3)
				if err = add(plan{string(name), []fault.Spec{{Name: name, At: third, Every: third, Count: 2}}}); err != nil {
					return nil, err
				}
			}
		default:
			var faults []fault.Spec
			if faults, err = fault.ParseAll(text); err != nil {
				return nil, &FieldError{"plans", err}
			}
			err = add(plan{planName(text), faults})
		}
		if err != nil {
			return nil, err
		}
	}
	return plans, nil
}
