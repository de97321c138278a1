package controller

import (
	"cmp"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/controller/server"
	"watchlab/bench/lab"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/manifest"
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
	// PlanExplore stands for plans that are aimed at what the program does without faults, until one fails.
	PlanExplore = "explore"
)

const (
	defaultStorm  = "nodeloss" // without a storm and a workload
	defaultNodes  = 20         // of defaultStorm, of which 4 are lost
	defaultSpeed  = 3          // of defaultStorm, whose minute thus takes 20 s
	defaultRounds = 5          // of two programs
	defaultSettle = 30 * time.Second
	defaultBudget = 10 * time.Minute
)

// redacted is the Spec without the credentials of its URLs, for the results.
func (s Spec) redacted() Spec {
	s.Programs = slices.Clone(s.Programs)
	for i := range s.Programs {
		s.Programs[i].Command = lab.RedactAll(s.Programs[i].Command)
	}
	s.With = lab.RedactAll(s.With)
	s.Manifests, s.Metrics = lab.RedactAll(s.Manifests), lab.Redact(s.Metrics)
	return s
}

// without are the parts in the lists of Without.
func (s Spec) without() []string {
	return strings.FieldsFunc(strings.Join(s.Without, ","), func(r rune) bool { return r == ',' || r == ' ' })
}

// besideName is that of a program beside. No replica of the controllers has one.
var besideName = regexp.MustCompile(`^([a-z][a-z0-9]*-)*[a-z][a-z0-9]*$`)

// beside are the programs of With.
func (s Spec) beside() (all []Program) {
	for _, with := range s.With {
		name, command, _ := strings.Cut(with, "=")
		all = append(all, Program{name, strings.Fields(command)})
	}
	return all
}

// complete fills in the defaults.
func (s Spec) complete() Spec {
	s.Programs = slices.Clone(s.Programs)
	for i := range s.Programs {
		s.Programs[i].Label = cmp.Or(s.Programs[i].Label, New)
	}
	if s.Storm.Name == "" && s.Workload == "" {
		if s.Speed = cmp.Or(s.Speed, defaultSpeed); reflect.ValueOf(s.Storm).IsZero() {
			s.Storm.Nodes = defaultNodes
		}
		s.Storm.Name = defaultStorm
	}
	if len(s.Plans) == 0 {
		if s.Plans = []string{PlanNone, PlanExplore}; len(s.Programs) > 1 {
			s.Plans = []string{PlanNone, PlanAll} // The same plans for both.
		}
	}
	s.Speed = cmp.Or(s.Speed, 1)
	s.Seed = cmp.Or(s.Seed, 1)
	s.Server = cmp.Or(s.Server, server.Simulated)
	s.Replicas = cmp.Or(s.Replicas, 1)
	if s.Rounds == 0 {
		if s.Rounds = 1; len(s.Programs) > 1 {
			s.Rounds = defaultRounds
		}
	}
	s.Settle = cmp.Or(s.Settle, metav1.Duration{Duration: defaultSettle})
	s.Budget = cmp.Or(s.Budget, metav1.Duration{Duration: defaultBudget})
	s.Warmup = cmp.Or(s.Warmup, metav1.Duration{Duration: time.Minute})
	return s
}

// CompareWith makes the last program the one that is compared with the command of another, which is words without
// quotes. The error is a [*manifest.Error].
func (s *Spec) CompareWith(against string) error {
	old := strings.Fields(against)
	switch {
	case len(old) == 0:
		return manifest.Bad("against", "names no program")
	case strings.ContainsAny(against, "\"'\\"):
		return manifest.Bad("against", "quotes are not read (write the command into controller.yaml)")
	case len(s.Programs) == 0:
		return manifest.Bad("programs", "no program is given to compare with --against")
	}
	s.Programs = []Program{{Label: Old, Command: old}, s.Programs[len(s.Programs)-1]}
	return nil
}

// Validate checks the Spec without its files. The error is a [*manifest.Error].
func (s Spec) Validate() error {
	switch {
	case s.Attach && len(s.Programs) > 0:
		return manifest.Bad("programs", "a program is given, but with attach it runs elsewhere")
	case !s.Attach && (len(s.Programs) == 0 || len(s.Programs[0].Command) == 0):
		return manifest.Bad("programs", "no program is given (watchlab controller -- ./my-controller)")
	case len(s.Programs) > 2:
		return manifest.Bad("programs", "%d programs (allowed: 1, or 2 to compare)", len(s.Programs))
	case s.Attach && s.InCluster:
		return manifest.Bad("attach", "programs that run elsewhere are not started")
	case s.Server != "" && s.Server != server.Simulated && (s.Workload == "" || s.Storm.Name != ""):
		return manifest.Bad("server", "%s takes the requests of a --workload, and not the events of a storm", s.Server)
	case s.Replicas < 0 || s.Replicas > 100:
		return manifest.Bad("replicas", "%d (allowed: 1 to 100)", s.Replicas)
	case len(s.Programs) == 2 && slices.Contains(s.Plans, PlanExplore):
		return manifest.Bad("plans", "%s draws plans for one program, and two are given", PlanExplore)
	case s.Rounds < 0:
		return manifest.Bad("rounds", "%d is negative", s.Rounds)
	case s.Speed < 0 || s.Speed > 1e6 || math.IsNaN(s.Speed):
		return manifest.Bad("speed", "%v (allowed: more than 0, at most 1e6)", s.Speed)
	case s.Budget.Duration < 0:
		return manifest.Bad("budget", "%v is negative", s.Budget.Duration)
	case s.Settle.Duration < 0 || s.Warmup.Duration < 0:
		return manifest.Bad("settle", "a time is negative")
	}
	names := map[string]bool{}
	for i, b := range s.beside() {
		if !besideName.MatchString(b.Label) || len(b.Command) == 0 || names[b.Label] {
			return manifest.Bad("with", "%q is not NAME=COMMAND with a name of its own", lab.Redact(s.With[i]))
		}
		names[b.Label] = true
	}
	for _, part := range s.without() {
		if !slices.Contains(lifecycle.Parts(), part) {
			return manifest.Bad("without", "%q (allowed: %s)", part, strings.Join(lifecycle.Parts(), ", "))
		}
	}
	if !reflect.ValueOf(s.Storm).IsZero() {
		named := s.Storm
		if named.Name == "" {
			if s.Workload != "" {
				return manifest.Bad("storm", "a size is given, but no storm")
			}
			named.Name = defaultStorm
		}
		if err := named.Validate(); err != nil {
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

// text is the plan as --faults takes it.
func (p plan) text() string {
	var texts []string
	for _, f := range p.faults {
		texts = append(texts, f.String())
	}
	return cmp.Or(strings.Join(texts, "; "), PlanNone)
}

// plansOf returns the fault plans for a storm of a length.
func plansOf(texts []string, length time.Duration) ([]plan, error) {
	var plans []plan
	for _, text := range texts {
		var made []plan
		switch text {
		case PlanNone, PlanExplore:
			made = []plan{{name: text}}
		case PlanAll:
			made = []plan{{PlanAll, fault.Cycle(length/time.Duration(len(fault.Names())+1), 1)}}
		case PlanEach:
			third := fault.Duration(length / 3)
			for _, name := range fault.Names() {
				made = append(made, plan{string(name), []fault.Spec{{Name: name, At: third, Every: third, Count: 2}}})
			}
		default:
			faults, err := fault.ParseAll(text)
			if err != nil {
				return nil, manifest.BadField("plans", err)
			}
			made = []plan{{planName(text), faults}}
		}
		for _, p := range made {
			if slices.ContainsFunc(plans, func(have plan) bool { return have.name == p.name }) {
				return nil, manifest.Bad("plans", "%s is given twice", p.name)
			}
			plans = append(plans, p)
		}
	}
	return plans, nil
}
