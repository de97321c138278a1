package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// sentence answers in one sentence: did it pass, and what does it cost?
func (o *Result) sentence() string {
	if len(o.Plays) == 0 {
		return "No play has finished."
	}
	what := o.outcome("The controller", o.Programs[len(o.Programs)-1])
	if len(o.Programs) == 2 {
		what = o.outcome("New", New) + ", and " + o.outcome("old", Old)
	}
	if s := o.Shrunk; s != nil {
		if len(s.Faults) == 0 {
			what += "; it needs no fault to fail"
		} else if what += "; the smallest fault plan that fails is " + strings.Join(s.Faults, "; "); o.Interrupted {
			what += " (shrinking was interrupted)"
		}
		if s.Repeated > 0 && s.Failed == 0 {
			what += ", which passed when it was repeated"
		}
	}
	if len(o.Programs) == 2 {
		return what + ". " + o.difference()
	}
	f := o.Plays[0].Figures
	if n, ok := f[UnitWrites]; ok && n == 0 {
		what += "; it wrote nothing without faults, so that the verdicts say little"
	}
	if n := o.Plays[0].LoggedErrors; n > 0 && o.Plays[0].Plan == PlanNone {
		what += "; it logged " + lab.Plural(n, "error") + " without faults"
	}
	if f[UnitP99] > 0 {
		with := "without faults"
		if plan := o.Plays[0].Plan; plan != PlanNone {
			with = "with faults (" + plan + ")"
		}
		what += fmt.Sprintf("; %s, p99 of the reconcile latency is %s", with, chart.Nanoseconds(f[UnitP99]))
	}
	return what + "."
}

// outcome says how many plays of a program have passed.
func (o *Result) outcome(who, program string) string {
	plays, failed, names := 0, 0, []string{}
	for i := range o.Plays {
		p := &o.Plays[i]
		if p.Program != program {
			continue
		}
		if plays++; !p.Failed() {
			continue
		}
		failed++
		for _, v := range p.Verdicts {
			if v.Failed && !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
		}
	}
	of := lab.Plural(plays, "play") + " of " + o.Spec.Played()
	if failed == 0 {
		return who + " passes " + of
	}
	return fmt.Sprintf("%s fails %d of %s: %s", who, failed, of, strings.Join(names, ", "))
}

// difference says which figures differ between two programs.
func (o *Result) difference() string {
	var worse, better []string
	for _, c := range o.Compared {
		times := map[bool]string{true: "more than 0", false: chart.Ratio(c.Stats.Ratio)}[c.Stats.From == 0]
		text := fmt.Sprintf("%s %s (%s, %s)", times, Title(c.Unit), c.Cell, stats.PText(c.Stats.P))
		switch {
		case c.Lost:
			worse = append(worse, text)
		case c.Won:
			better = append(better, text)
		}
	}
	switch {
	case len(worse)+len(better) == 0:
		return "No figure of new differs significantly from old."
	case len(worse) == 0:
		return "New is better than old: " + strings.Join(better, ", ") + "; no figure is worse."
	case len(better) == 0:
		return "New is worse than old: " + strings.Join(worse, ", ") + "."
	}
	return "New is worse than old: " + strings.Join(worse, ", ") + "; better: " + strings.Join(better, ", ") + "."
}

// Missing says what an interrupted run lacks.
func (o *Result) Missing() string {
	if o.Shrunk != nil {
		return "Interrupted: all plays have finished, shrinking has not."
	}
	return "Interrupted: later plays are missing."
}

// command returns the command line that plays a fault plan of a Spec, as it was given, again, without the comparison.
func (s Spec) command(program Program, faults []string, seed int64) string {
	s.Plans, s.Seed, s.Rounds, s.Budget.Duration = []string{cmp.Or(strings.Join(faults, "; "), PlanNone)}, seed, 0, 0
	args := append([]string{"watchlab", "controller"}, experiment.Arguments(&s)...)
	if !s.Attach {
		args = slices.Concat(args, []string{"--"}, program.Command)
	}
	return lab.CommandLine(args)
}
