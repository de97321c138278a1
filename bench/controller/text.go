package controller

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/controller/verdict"
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
		switch len(s.Faults) {
		case 0:
			what += "; it needs no fault to fail"
		default:
			what += "; the smallest fault plan that fails is " + strings.Join(s.Faults, "; ")
			if o.Interrupted {
				what += " (shrinking was interrupted)"
			}
		}
		if s.Repeated > 0 && s.Failed == 0 {
			what += ", which passed when it was repeated"
		}
	}
	if len(o.Programs) == 2 {
		return what + ". " + o.difference()
	}
	if f := o.Plays[0].Figures; f[UnitP99] > 0 {
		with := "without faults"
		if plan := o.Plays[0].Plan; plan != PlanNone {
			with = "with faults (" + plan + ")"
		}
		what += fmt.Sprintf("; %s, p99 of the reconcile latency is %s", with, show(f[UnitP99], UnitP99))
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
		text := fmt.Sprintf("%s %s (%s, %s)", timesOf(c.Stats.Ratio), Title(c.Unit), c.Cell, stats.PText(c.Stats.P))
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

func timesOf(r float64) string {
	if math.IsNaN(r) {
		return "more than 0"
	}
	return strconv.FormatFloat(r, 'g', 3, 64) + "×"
}

// show formats a figure with its unit.
func show(v float64, unit string) string {
	switch {
	case strings.HasSuffix(unit, "-ns") || strings.HasSuffix(unit, "-ns/run"):
		return time.Duration(v).Round(time.Duration(math.Pow(10, max(0, math.Floor(math.Log10(max(v, 1)))-2)))).String()
	case strings.Contains(unit, "-B"):
		return benchunit.Scale(v, benchunit.Binary) + "B"
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// shown are the columns of the table of plays.
var shown = []string{UnitP50, UnitP99, UnitConverge, UnitRequests, UnitRefused, UnitRelists, UnitBehind, UnitCPU, UnitRSS}

// Text writes the sentence, a row for each play, and the failures.
func (o *Result) Text(w io.Writer) error {
	fmt.Fprintln(w, o.Sentence)
	if len(o.Plays) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := []string{"program", "faults", "verdict"}
	for _, unit := range shown {
		head = append(head, Title(unit))
	}
	fmt.Fprintln(tab, strings.Join(head, "\t"))
	for i := range o.Plays {
		p := &o.Plays[i]
		row := []string{p.Program, p.Plan, "passed"}
		if p.Failed() {
			row[2] = p.Failure().Name
		}
		for _, unit := range shown {
			text := "-"
			if v, ok := p.Figures[unit]; ok {
				text = show(v, unit)
			}
			row = append(row, text)
		}
		fmt.Fprintln(tab, strings.Join(row, "\t"))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, f := range o.failures() {
		fmt.Fprintf(w, "\n%s: %s: %s\n", f.first.Name, f.verdict, f.shown.Text)
		for _, e := range f.shown.Evidence {
			fmt.Fprintf(w, "  %8s  %s\n", e.At.Round(time.Millisecond), e.Text)
		}
		if f.failed > 1 {
			fmt.Fprintf(w, "  %d of %s of this program failed so\n", f.failed, lab.Plural(f.plays, "play"))
		}
	}
	if s := o.Shrunk; s != nil {
		plan := "none: it fails without faults"
		if len(s.Faults) > 0 {
			plan = strings.Join(s.Faults, "; ")
		}
		fmt.Fprintf(w, "\nSmallest fault plan that still fails (%s): %s\n", s.Verdict, plan)
		fmt.Fprintf(w, "  %d of %d occurrences, found in %s; it failed %d of %d times\n  %s\n", len(s.Faults), s.Of, lab.Plural(s.Plays, "play"), s.Failed, s.Repeated, s.Command)
	}
	if o.Interrupted {
		fmt.Fprintln(w, "\n"+o.Missing())
	}
	return nil
}

// failed is a verdict that failed in plays of one program.
type failed struct {
	program, verdict string
	plays, failed    int
	first            *Play
	shown            verdict.Verdict // of the first play
}

// failures returns the failed verdicts, the baseline's last.
func (o *Result) failures() []*failed {
	var all []*failed
	for i := range o.Plays {
		p := &o.Plays[i]
		for _, v := range p.Verdicts {
			k := slices.IndexFunc(all, func(f *failed) bool { return f.program == p.Program && f.verdict == v.Name })
			if k < 0 {
				k, all = len(all), append(all, &failed{program: p.Program, verdict: v.Name})
			}
			f := all[k]
			f.plays++
			if !v.Failed {
				continue
			}
			if f.failed++; f.first == nil {
				f.first, f.shown = p, v
			}
		}
	}
	all = slices.DeleteFunc(all, func(f *failed) bool { return f.failed == 0 })
	slices.SortStableFunc(all, func(a, b *failed) int {
		return cmp.Compare(slices.Index(o.Programs, b.program), slices.Index(o.Programs, a.program))
	})
	return all
}

// Missing says what an interrupted run lacks.
func (o *Result) Missing() string {
	if o.Shrunk != nil {
		return "Interrupted: all plays have finished, shrinking has not."
	}
	return "Interrupted: later plays are missing."
}

// command is the command that plays a fault plan of the Spec again, without the comparison.
func (s Spec) command(program Program, faults []string, seed int64) string {
	args := []string{"watchlab", "controller"}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag, quote(value))
		}
	}
	add("storm", s.Storm.Name)
	if s.Storm.Nodes > 0 {
		add("nodes", strconv.Itoa(s.Storm.Nodes))
	}
	if s.Storm.Pods > 0 {
		add("pods", strconv.Itoa(s.Storm.Pods))
	}
	if s.Storm.Scale > 0 {
		add("scale", strconv.FormatFloat(s.Storm.Scale, 'g', -1, 64))
	}
	add("skew", s.Storm.Skew)
	add("workload", s.Workload)
	for _, m := range s.Manifests {
		add("manifest", m)
	}
	if s.Recursive {
		args = append(args, "--recursive")
	}
	for _, m := range s.Stages {
		add("stages", m)
	}
	add("rules", s.Rules)
	plan := PlanNone
	if len(faults) > 0 {
		plan = strings.Join(faults, "; ")
	}
	add("faults", plan)
	if s.Speed != 1 {
		add("speed", strconv.FormatFloat(s.Speed, 'g', -1, 64))
	}
	add("seed", strconv.FormatInt(seed, 10))
	if s.Replicas > 1 {
		add("replicas", strconv.Itoa(s.Replicas))
	}
	for _, at := range s.Restarts {
		add("restart", at.Duration.String())
	}
	if s.InCluster {
		args = append(args, "--in-cluster")
	}
	add("metrics", s.Metrics)
	if s.Settle.Duration > 0 && s.Settle.Duration != defaultSettle {
		add("settle", s.Settle.Duration.String())
	}
	if s.Attach {
		return strings.Join(append(args, "--attach"), " ")
	}
	args = append(args, "--")
	for _, a := range program.Command {
		args = append(args, quote(a))
	}
	return strings.Join(args, " ")
}

// quote quotes a word for a shell if it needs it.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
