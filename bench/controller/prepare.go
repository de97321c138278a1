package controller

import (
	"context"
	"io"
	"strings"
	"time"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/rules"
	"watchlab/bench/experiment"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/workload"
)

// prepared is what all plays share. It is not changed.
type prepared struct {
	set      *storm.Set // without storms if there is none
	storms   []*apiserver.Prepared
	marks    []fault.Spec // faults that belong to the storm
	workload *workload.Workload
	objects  []manifest.Object
	stages   []lifecycle.Stage
	rules    *rules.Rules
	plans    []plan
	length   time.Duration // of storm and workload, in the time of the play
}

// prepare reads and checks all input. The error is a [*experiment.FieldError].
func prepare(ctx context.Context, s Spec, stdin io.Reader) (*prepared, error) {
	p := &prepared{set: &storm.Set{}}
	var err error
	fail := func(field string) (*prepared, error) { return nil, &experiment.FieldError{Field: field, Err: err} }
	if s.Storm.Name != "" {
		if p.set, err = s.Storm.Load(s.Seed); err != nil {
			return fail("storm")
		}
	}
	scaled := func(at time.Duration) time.Duration { return time.Duration(float64(at) / s.Speed) }
	for _, mark := range append(p.set.Faults, p.set.MarkFaults()...) {
		mark.At = fault.Duration(scaled(time.Duration(mark.At)))
		p.marks = append(p.marks, mark)
	}
	budget := store.NewBudget(0)
	for _, st := range p.set.Storms {
		ready, err := apiserver.PrepareWith(st, budget)
		if err != nil {
			return nil, &experiment.FieldError{Field: "storm", Err: err}
		}
		p.storms = append(p.storms, ready)
		if n := len(st.Events); n > 0 {
			p.length = max(p.length, scaled(st.Events[n-1].At))
		}
	}
	if s.Workload != "" {
		if p.workload, err = workload.Read(s.Workload, s.Seed); err != nil {
			return fail("workload")
		}
		p.length = max(p.length, scaled(p.workload.Length()))
	}
	if len(s.Manifests) > 0 {
		p.objects, err = manifest.Load(ctx, manifest.Options{Filenames: s.Manifests, Recursive: s.Recursive, Stdin: stdin})
		if err != nil {
			return fail("manifests")
		}
	}
	if p.stages, err = lifecycle.ReadStages(s.Stages...); err != nil {
		return fail("stages")
	}
	for _, prog := range s.Programs {
		if s.Attach {
			break
		}
		if err := program.Check(prog.Command); err != nil {
			return nil, err
		}
	}
	p.rules = rules.Default()
	if s.Rules != "" {
		if p.rules, err = rules.Load(s.Rules); err != nil {
			return fail("rules")
		}
	}
	if p.plans, err = plansOf(s.Plans, p.length); err != nil {
		return nil, err
	}
	return p, nil
}

// planName is the name of faults in the name of a play: their kinds, in turn.
func planName(text string) string {
	var names []string
	for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		name, _, _ := strings.Cut(strings.TrimSpace(one), ":")
		names = append(names, strings.TrimSpace(name))
	}
	return strings.Join(names, "+")
}
