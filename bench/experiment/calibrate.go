package experiment

import (
	"context"
	"fmt"
	"slices"

	"watchlab/bench/lab"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// A pace that this machine does not keep is divided by paceStep, at most paceSteps times.
const (
	paceStep  = 4
	paceSteps = 2
)

// Calibrated returns the plan with the paces of its parts lowered to those that this machine keeps now.
// Each pace is played with the baseline, usually the slowest variant. A pace that is not kept at any
// step is left out and named in the Spec.
func (p *Plan) Calibrated(ctx context.Context) (*Plan, error) {
	s := p.Spec
	s.Calibrate, s.Parts = false, nil
	load := &planner{storms: map[string]*storm.Storm{}}
	for _, part := range p.Spec.Parts {
		var kept []string
		for _, text := range part.Paces {
			slower, err := load.keep(ctx, p.Spec.inherit(part).withDefaults(), text)
			if err != nil {
				return nil, err
			}
			if slower == "" {
				s.Unkept = append(s.Unkept, text)
			} else {
				kept = append(kept, slower)
			}
		}
		if len(kept) > 0 || len(part.Paces) == 0 {
			part.Paces = kept
			s.Parts = append(s.Parts, part)
		}
	}
	return New(s)
}

// keep returns the pace, or the first slower one that generator and baseline keep; empty for none. A
// pace that is no plain rate stays.
func (p *planner) keep(ctx context.Context, s Spec, text string) (string, error) {
	rate, err := pace.ParseRate(text)
	if err != nil || !rate.Pace().Paced() {
		return text, nil //nolint:nilerr // not a rate: a burst or the times of a trace
	}
	config, err := p.config(s)
	if err != nil {
		return "", err
	}
	for range paceSteps + 1 {
		config.Paces = []pace.Pace{rate.Pace()}
		comparisons, err := compare(config)
		if err != nil {
			return "", err
		}
		for i := range comparisons {
			c := &comparisons[i]
			c.Cells = slices.DeleteFunc(c.Cells, func(cl lab.Cell) bool { return !cl.Baseline })
		}
		o, err := lab.Run(ctx, slices.DeleteFunc(comparisons, func(c lab.Comparison) bool { return len(c.Cells) == 0 }),
			lab.Options{Name: "calibration", Rounds: 2, NoAA: true, Seed: s.Seed})
		if err == nil && o.Interrupted {
			err = context.Cause(ctx)
		}
		if err != nil {
			return "", fmt.Errorf("calibration: %w", err)
		}
		if keeps(o, float64(rate)) {
			return rate.String(), nil
		}
		rate /= paceStep
	}
	return "", nil
}

// keeps reports whether all rounds keep the rate, with half the late releases that a valid cell may
// have. A variant that fails is for the run to report.
func keeps(o *lab.Outcome, rate float64) bool {
	for _, cl := range o.Cells() {
		if cl.Verdict.Failed() {
			return true
		}
		if cl.Verdict.Status == lab.Invalid {
			return false
		}
		for _, r := range cl.Rounds {
			if r.Result.Lag.LateShare > lab.MaxLateShare/2 || r.Result.EventsPerSecond < 0.9*rate {
				return false
			}
		}
	}
	return true
}
