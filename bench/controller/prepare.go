package controller

import (
	"context"
	"strings"
	"time"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/rules"
	"watchlab/bench/controller/server"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/workload"
)

// prepared is what all plays share. It is not changed.
type prepared struct {
	seeded
	objects []manifest.Object
	stages  []lifecycle.Stage
	rules   *rules.Rules
	plans   []plan
	open    func(server.Setup) (server.Server, error)
}

// seeded is what all plays of a seed share.
type seeded struct {
	set      *storm.Set // without storms if there is none
	storms   []*apiserver.Prepared
	marks    []fault.Spec // faults that belong to the storm
	workload *workload.Workload
	length   time.Duration // of storm and workload, in the time of the play
}

// seed makes storm and workload from a seed. The error is a [*manifest.Error].
func (s Spec) seed(seed int64) (p seeded, err error) {
	fail := func(field string) (seeded, error) { return p, manifest.BadField(field, err) }
	p.set = &storm.Set{}
	if s.Storm.Name != "" {
		if p.set, err = s.Storm.Load(seed); err != nil {
			return fail("storm")
		}
	}
	scaled := func(at time.Duration) time.Duration { return time.Duration(float64(at) / s.Speed) }
	p.marks = p.set.MarkFaults(s.Speed)
	if p.storms, err = apiserver.PrepareSet(p.set); err != nil {
		return fail("storm")
	}
	for _, st := range p.set.Storms {
		if n := len(st.Events); n > 0 {
			p.length = max(p.length, scaled(st.Events[n-1].At))
		}
	}
	if s.Workload != "" {
		if p.workload, err = workload.Read(s.Workload, seed); err != nil {
			return fail("workload")
		}
		p.length = max(p.length, scaled(p.workload.Length()))
	}
	return p, nil
}

// again returns what the plays of another seed share. The fault plans stay the same.
func (p *prepared) again(s Spec, seed int64) (*prepared, error) {
	made, err := s.seed(seed)
	if err != nil {
		return nil, err
	}
	other := *p
	other.seeded = made
	return &other, nil
}

// prepare reads and checks all input, and says what of the objects is not as given. The error is a [*manifest.Error].
func (o Options) prepare(ctx context.Context, s Spec) (*prepared, error) {
	var err error
	fail := func(field string) (*prepared, error) { return nil, manifest.BadField(field, err) }
	p := &prepared{}
	if p.seeded, err = s.seed(s.Seed); err != nil {
		return nil, err
	}
	if p.open, err = server.Find(s.Server); err != nil {
		return fail("server")
	}
	if len(s.Manifests) > 0 {
		p.objects, err = manifest.Load(ctx, manifest.Options{Filenames: s.Manifests, Recursive: s.Recursive, Stdin: o.Stdin})
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
	for _, b := range s.beside() {
		if err = program.Check(b.Command); err != nil {
			return fail("with")
		}
	}
	if p.rules, err = rules.Load(s.Rules); err != nil {
		return fail("rules")
	}
	if p.plans, err = plansOf(s.Plans, p.length); err != nil {
		return nil, err
	}
	for _, line := range manifest.Settle(p.objects) {
		o.Notify(line)
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
