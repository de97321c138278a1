// This file, run.go and rules.go are the regression gate. It compares a new run with an
// old one. Rules state the allowed change of each figure.
//
//   1. [ParseRules] reads the rules; [DefaultRules] is a default file.
//   2. [OpenRun] reads a run from a results folder or a benchfmt file.
//   3. [Gate] applies each rule to its cells and returns one [Finding] per figure.
//
// A change of a figure is judged by Welch's interval (see [stats.Shift]), of the ratio or, if a
// figure is 0, of the difference:
//
//   - held: the far end, at [HeldConfidence], is within the allowed change. No correction for the
//     number of figures is needed: the gate holds only if each figure does.
//   - regressed: the near end, at 95 %, exceeds the allowed change, and so does Welch's test after
//     Holm's correction for all figures. Without it, 10 of 200 figures would differ by chance.
//   - cannot tell: neither.
//
// At 95 %, every 20th run with a change of just the allowed size would hold. The price of more are
// rounds: with 3 % of noise and 10 % allowed, equal figures hold in 20 % of runs of 5 rounds, and in
// 97 % of runs of 10.
//
// The gate cannot detect that the machine was slower in one of the runs, because all figures change
// together. "per: baseline" helps: each figure is a multiple of the baseline's in the same round of
// the same run.

package compare

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/stats"
	"watchlab/loadgen/manifest"
)

// FindingKind classifies a finding.
type FindingKind string

// The kinds, in the order of the output. The first four fail the gate.
const (
	Regressed FindingKind = "regressed" // worse by more than the rule allows, beyond chance
	Broken    FindingKind = "broken"    // the new run's cell broke an invariant or ended in an error
	Missing   FindingKind = "missing"   // the new run lacks the cell, or the cell lacks the figure
	Changed   FindingKind = "changed"   // the cell has other guarantees or another input than before
	// CannotTell: the rounds exclude neither; or they are too few, or the machine spoiled them.
	CannotTell FindingKind = "cannot tell"
	Improved   FindingKind = "improved" // held, and better by more than the allowed change
	Held       FindingKind = "held"     // within the allowed change
)

var kinds = []FindingKind{Regressed, Broken, Missing, Changed, CannotTell, Improved, Held}

// HeldConfidence is the confidence that a held figure is within the allowed change: of 400 runs with
// a change of just the allowed size, none holds in 96 % of all cases.
const HeldConfidence = 0.9999

// leastRounds on each side allow a verdict.
const leastRounds = 4

// Finding is the result of a rule for one figure of one cell.
type Finding struct {
	Kind  FindingKind `json:"kind"`
	Cell  string      `json:"cell"`
	*Rule             // in JSON: metric, perBaseline, allowed, because, line
	// Old and New are medians, or multiples of the baseline's with PerBaseline. Change is
	// New/Old − 1, and nil without a ratio.
	Old    float64  `json:"old,omitempty"`
	New    float64  `json:"new,omitempty"`
	Change *float64 `json:"change,omitempty"`
	// Lo and Hi bound Change with 95 % confidence; nil for too few rounds.
	Lo *float64 `json:"lo,omitempty"`
	Hi *float64 `json:"hi,omitempty"`
	// Worst is the largest Change for the worse that the rounds allow, at [HeldConfidence].
	Worst *float64 `json:"worst,omitempty"`
	// P is the p of no change (see [stats.Comparison]). Adjusted is the p of Welch's test against
	// the allowed change, after Holm's correction. Both are nil without a test.
	P           *float64 `json:"p,omitempty"`
	Adjusted    *float64 `json:"adjustedP,omitempty"`
	Why         string   `json:"why,omitempty"` // explains the kind where the figures do not
	beyond      bool     // exceeds the allowed change, before the correction
	uncorrected float64  // p of Welch's test
}

// GateResult is the result of [Gate].
type GateResult struct {
	Old    string `json:"old"` // names of the runs
	New    string `json:"new"`
	Rules  string `json:"rules"`  // name of the rules
	Failed bool   `json:"failed"` // any finding fails the gate
	// CannotTell: no finding fails the gate, but all are [CannotTell], or one is and the gate is strict.
	CannotTell bool `json:"cannotTell"`
	// Findings holds failures first, then the order of the rules and cells.
	Findings []Finding `json:"findings"`
	Notes    []string  `json:"notes,omitempty"` // about the runs as wholes
}

// The errors of [Gate].
var (
	// ErrNothing: no cell with the rule's metric matches.
	ErrNothing = errors.New("matches nothing")
	// ErrBaseline: the rule is per baseline and a run is a bare file.
	ErrBaseline = errors.New("per baseline needs results folders, which know their baselines")
	// ErrMachine: the machines differ and the rule compares times.
	ErrMachine = errors.New("the runs are of different machines")
)

// Gate compares the new run with the old one. file is the name of the rules in errors.
// A strict gate fails where it cannot tell. An error is a [*manifest.Error] that wraps [ErrNothing],
// [ErrBaseline] or [ErrMachine].
func Gate(old, now *Run, file string, rules []Rule, strict bool) (*GateResult, error) {
	v := &GateResult{Old: old.name, New: now.name, Rules: file}
	differs := old.machineDiffers(now)
	for i := range rules {
		rule := &rules[i]
		fail := func(err error) (*GateResult, error) {
			return nil, &manifest.Error{File: file, Line: rule.Line, Err: fmt.Errorf("%s: %w", rule, err)}
		}
		refused, detail := error(nil), ""
		switch {
		case rule.PerBaseline && !(old.folder && now.folder):
			refused = ErrBaseline
		case !rule.PerBaseline && !slices.Contains(counted, rule.Metric) && differs != "":
			refused, detail = ErrMachine, ": "+differs
		}
		if refused != nil && file != DefaultRulesName {
			return fail(fmt.Errorf("%w%s", refused, detail))
		}
		found := false
		for _, before := range old.cells {
			if !rule.matches(before) {
				continue
			}
			if refused != nil {
				found = found || len(before.samples[rule.Metric]) > 0
			} else if f := check(rule, before, now.byName[before.name]); f != nil {
				v.Findings, found = append(v.Findings, *f), true
			}
		}
		if found && refused != nil {
			v.Notes = append(v.Notes, fmt.Sprintf("%s was not checked: %v", rule, refused))
		}
		if !found && file != DefaultRulesName {
			return fail(fmt.Errorf("%s: %w in %s", rule.Cells, ErrNothing, old.name))
		}
	}
	if len(v.Findings) == 0 {
		return nil, &manifest.Error{File: file, Err: fmt.Errorf("%w in %s", ErrNothing, old.name)}
	}
	correct(v.Findings)
	rank := func(k FindingKind) int { return slices.Index(kinds, k) }
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return rank(a.Kind) - rank(b.Kind) })
	v.Failed = rank(v.Findings[0].Kind) < rank(CannotTell)
	decided := slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind != CannotTell })
	v.CannotTell = v.Findings[0].Kind == CannotTell && (strict || !decided)
	var names []string
	if now.single {
		names = append(names, "the new run")
	}
	if old.single {
		names = append(names, "the old run")
	}
	if names != nil {
		v.Notes = append(v.Notes, oneProcess(names))
	}
	if differs != "" {
		v.Notes = append(v.Notes, "different machines: "+differs)
	}
	unchecked := slices.DeleteFunc(slices.Clone(now.cells), func(c *gateCell) bool { return old.byName[c.name] != nil })
	if n := len(unchecked); n > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("not checked: %d of the new run's %d cells, which the old run lacks", n, len(now.cells)))
	}
	return v, nil
}

// counted are metrics that do not depend on the machine's speed. Those after the first line are of watchlab controller.
var counted = []string{
	stats.UnitAllocsPerOp, stats.UnitBytesPerOp, stats.UnitDeltasPerEvent,
	"requests/run", "writes/run", "unchanged/run", "conflicts/run", "relists/run", "sent-B/run", "peak-RSS-B",
}

// check applies a rule to one cell. It returns nil if the old run has no figure and no
// reason for the absence. now is nil if the new run lacks the cell.
func check(rule *Rule, old, now *gateCell) *Finding {
	f := &Finding{Cell: old.name, Rule: rule}
	before := old.values(rule)
	switch {
	case len(before) == 0 && (old.usable() || rule.PerBaseline && old.relative == nil):
		return nil
	case now == nil:
		f.Kind, f.Why = Missing, "the new run lacks the cell"
	case now.verdict.Failed():
		f.Kind, f.Why = Broken, now.verdict.String()
	case !now.usable():
		f.Kind, f.Why = CannotTell, now.verdict.String()
	case !old.usable():
		f.Kind, f.Why = CannotTell, "in the old run: "+old.verdict.String()
	case old.class != "" && now.class != "" && old.class != now.class:
		f.Kind, f.Why = Changed, fmt.Sprintf("guarantees were %s, and are %s", old.class, now.class)
	case old.input != "" && now.input != "" && old.input != now.input:
		f.Kind, f.Why = Changed, "its input differs"
	case len(now.values(rule)) > 0:
		f.measure(before, now.values(rule))
	case len(now.samples[rule.Metric]) > 0:
		f.Kind, f.Why = CannotTell, "the baseline has no figure in the new run"
	default:
		f.Kind, f.Why = Missing, "the new run lacks the figure"
	}
	return f
}

// measure compares the rounds and sets the kind, before the correction.
func (f *Finding) measure(before, after []float64) {
	c := stats.Compare(before, after)
	f.Old, f.New, f.Kind = c.From, c.To, CannotTell
	if f.Old != 0 {
		f.Change = new(f.New/f.Old - 1)
	}
	if min(len(before), len(after)) < leastRounds {
		f.Why = fmt.Sprintf("%d and %d rounds are too few for a test (%d are needed)", len(before), len(after), leastRounds)
		return
	}
	f.P = &c.P
	shift, sign := stats.ShiftOf(before, after), f.worse()
	shift.By *= sign
	worst, limit := shift.AtMost(HeldConfidence), max(f.Allowed*f.Old, f.Floor)
	f.beyond = c.Significant && shift.By > limit
	if shift.Logs {
		f.Lo, f.Hi, f.Worst = new(c.Lo-1), new(c.Hi-1), new(math.Expm1(sign*worst))
		limit = sign*math.Log(max(0, 1+sign*limit/f.Old)) + 1e-9 // for rounding errors
		f.beyond = min(sign*math.Log(c.Lo), sign*math.Log(c.Hi)) > limit
	}
	switch rounds := shift.RoundsFor(limit, HeldConfidence); {
	case worst <= limit && c.Significant && f.Change != nil && -sign**f.Change > f.Allowed:
		f.Kind = Improved
	case worst <= limit:
		f.Kind = Held
	case f.beyond:
		f.uncorrected = shift.Beyond(limit) // correct decides
	case rounds > 0 && rounds < 1000:
		f.Why = fmt.Sprintf("about %d rounds a side can", max(rounds, len(before)+1, len(after)+1))
	}
}

// correct applies Holm's procedure to all tested figures. The smallest p is corrected
// for all tests, the next for one fewer, and so on. A figure that stays significant is
// a regression.
func correct(findings []Finding) {
	tested := 0
	var beyond []*Finding
	for i := range findings {
		f := &findings[i]
		if f.P != nil {
			tested++
		}
		if f.beyond {
			beyond = append(beyond, f)
		}
	}
	slices.SortStableFunc(beyond, func(a, b *Finding) int { return cmp.Compare(a.uncorrected, b.uncorrected) })
	// Figures within the allowed change count with the largest p.
	highest := 0.0
	for i, f := range beyond {
		highest = max(highest, min(1, f.uncorrected*float64(tested-i)))
		f.Adjusted = new(highest)
		if f.Kind = Regressed; highest >= stats.Alpha {
			f.Kind, f.Why = CannotTell, fmt.Sprintf("among %d figures, one such by chance is likely; more rounds can decide", tested)
		}
	}
}

// Text writes one line per finding. Held and improved figures are only counted.
func (v *GateResult) Text(w io.Writer) error {
	var b bytes.Buffer
	counts := map[FindingKind]int{}
	for i := range v.Findings {
		f := &v.Findings[i]
		counts[f.Kind]++
		if f.Kind != Held && f.Kind != Improved {
			fmt.Fprintf(&b, "%s: %s\n", f.Kind, f.line(v.Rules))
		}
	}
	for _, note := range v.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	var sums []string
	for _, k := range kinds {
		if counts[k] > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", counts[k], k))
		}
	}
	outcome := "passed"
	switch {
	case v.Failed:
		outcome = "failed"
	case v.CannotTell:
		outcome = "cannot tell"
	}
	fmt.Fprintf(&b, "gate %s: of %d figures, %s (%s against %s)\n", outcome, len(v.Findings), strings.Join(sums, ", "), v.New, v.Old)
	_, err := w.Write(b.Bytes())
	return err
}

// line writes a finding: cell, figure, both medians, the allowed change and the reason.
func (f *Finding) line(rules string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Cell, f.Rule)
	if f.P != nil {
		fmt.Fprintf(&b, " %s → %s", f.figure(f.Old), f.figure(f.New))
		if f.Change != nil {
			fmt.Fprintf(&b, ", %+.1f %%", *f.Change*100)
		}
		if f.Lo != nil {
			fmt.Fprintf(&b, " (%+.1f to %+.1f %%)", *f.Lo*100, *f.Hi*100)
		}
		if f.Worst != nil {
			fmt.Fprintf(&b, ", at worst %+.1f %%", *f.Worst*100)
		}
		fmt.Fprintf(&b, ", allowed %+.3g %%, p=%.3g", f.worse()*f.Allowed*100, *f.P)
		if f.Adjusted != nil {
			fmt.Fprintf(&b, ", corrected %.2g", *f.Adjusted)
		}
	}
	if f.Why != "" {
		fmt.Fprintf(&b, "; %s", f.Why)
	}
	if f.Kind == Regressed {
		fmt.Fprintf(&b, "; because %s (%s:%d)", f.Because, rules, f.Line)
	}
	return b.String()
}

// figure writes a figure with its unit and prefix, or as a multiple of the baseline.
func (f *Finding) figure(v float64) string {
	if f.PerBaseline {
		return fmt.Sprintf("%.3g×", v)
	}
	tidy, unit := benchunit.Tidy(v, f.Metric)
	return benchunit.Scale(tidy, benchunit.ClassOf(unit))
}
