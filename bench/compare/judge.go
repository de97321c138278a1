package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// FindingKind classifies a finding.
type FindingKind string

// The kinds. [Regressed], [Broken], [Missing] and [Changed] fail the gate.
const (
	// Regressed: the figure is worse by more than the rule allows, beyond chance.
	Regressed FindingKind = "regressed"
	// Broken: the new run's cell broke an invariant or ended in an error.
	Broken FindingKind = "broken"
	// Missing: the new run lacks the cell, or the cell lacks the figure.
	Missing FindingKind = "missing"
	// Changed: the cell has other guarantees or another input than before.
	Changed FindingKind = "changed"
	// Undecided: the machine spoiled a figure, or one side has too few rounds.
	Undecided FindingKind = "undecided"
	// Blind: no regression was found, but noise may hide one.
	Blind FindingKind = "blind"
	// Improved: the figure is better by more than the allowed change.
	Improved FindingKind = "improved"
	// Held: the figure is within the allowed change.
	Held FindingKind = "held"
)

// kinds has the order of the report.
var kinds = []FindingKind{Regressed, Broken, Missing, Changed, Undecided, Blind, Improved, Held}

// fails reports whether the kind fails the gate.
func (k FindingKind) fails() bool { return slices.Index(kinds, k) < slices.Index(kinds, Undecided) }

// Finding is the result of one rule for one figure of one cell.
type Finding struct {
	// Kind is the result.
	Kind FindingKind `json:"kind"`
	// Cell is the name of the cell.
	Cell string `json:"cell"`
	// Metric is the rule's unit.
	Metric string `json:"metric"`
	// PerBaseline: Old and New are multiples of the baseline's figures.
	PerBaseline bool `json:"perBaseline,omitempty"`
	// Old and New are medians; Change is New/Old − 1, and nil without a ratio.
	Old    float64  `json:"old,omitempty"`
	New    float64  `json:"new,omitempty"`
	Change *float64 `json:"change,omitempty"`
	// Lo and Hi bound Change with 95 % confidence; nil for too few rounds.
	Lo *float64 `json:"lo,omitempty"`
	Hi *float64 `json:"hi,omitempty"`
	// Allowed is the allowed change for the worse, as a share.
	Allowed float64 `json:"allowed"`
	// P is the p of the Mann-Whitney test. Adjusted is the p of Welch's test against
	// the allowed change, after Holm's correction. Both are nil without a test.
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"adjustedP,omitempty"`
	// MinDetectable is the smallest change that the rounds detect, as a share; nil if
	// unknown.
	MinDetectable *float64 `json:"minDetectable,omitempty"`
	// Why explains the kind where the figures do not.
	Why string `json:"why,omitempty"`
	// Because and Line are the rule's.
	Because     string `json:"because"`
	Line        int    `json:"line"`
	rule        *Rule
	beyond      bool    // exceeds the allowed change, before the correction
	uncorrected float64 // p of Welch's test
}

// Judgement is the result of the gate.
type Judgement struct {
	// Old and New are the names of the runs.
	Old string `json:"old"`
	New string `json:"new"`
	// Rules is the name of the rules.
	Rules string `json:"rules"`
	// Failed is true if any finding fails the gate.
	Failed bool `json:"failed"`
	// Findings holds failures first, then the order of the rules and cells.
	Findings []Finding `json:"findings"`
	// Notes are about the runs as wholes.
	Notes []string `json:"notes,omitempty"`
}

// The errors of [Judge].
var (
	// ErrNothing: no cell with the rule's metric matches.
	ErrNothing = errors.New("matches nothing")
	// ErrBaseline: the rule is per baseline and a run is a bare file.
	ErrBaseline = errors.New("per baseline needs results folders, which know their baselines")
	// ErrMachine: the machines differ and the rule compares times.
	ErrMachine = errors.New("the runs are of different machines")
)

// Judge compares the new run with the old one. file is the name of the rules in errors.
// An error is a [*RuleError] that wraps [ErrNothing], [ErrBaseline] or [ErrMachine].
//
// Time: O(rules · cells), and two tests for each pair.
func Judge(old, now *Run, file string, rules []Rule) (*Judgement, error) {
	v := &Judgement{Old: old.Name, New: now.Name, Rules: file}
	differs := machineDiffers(old, now)
	for i := range rules {
		rule := &rules[i]
		fail := func(err error) (*Judgement, error) {
			return nil, &RuleError{File: file, Line: rule.Line, Err: fmt.Errorf("%s: %w", rule, err)}
		}
		switch {
		case rule.PerBaseline && !(old.Folder && now.Folder) && file == DefaultRulesName:
			v.Notes = append(v.Notes, fmt.Sprintf("%s was not judged: %v", rule, ErrBaseline))
			continue
		case rule.PerBaseline && !(old.Folder && now.Folder):
			return fail(ErrBaseline)
		case !rule.PerBaseline && !counted(rule.Metric) && differs != "":
			return fail(fmt.Errorf("%w: %s", ErrMachine, differs))
		}
		found := false
		for _, was := range old.Cells {
			if !rule.matches(was) || rule.PerBaseline && was.baseline == nil {
				continue
			}
			if f, ok := judge(rule, was, now.byName[was.Name]); ok {
				v.Findings, found = append(v.Findings, f), true
			}
		}
		if !found && file != DefaultRulesName {
			return fail(fmt.Errorf("%s: %w in %s", rule.Cells, ErrNothing, old.Name))
		}
	}
	if len(v.Findings) == 0 {
		return nil, &RuleError{File: file, Err: fmt.Errorf("%w in %s", ErrNothing, old.Name)}
	}
	correct(v.Findings)
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind) })
	v.Failed = v.Findings[0].Kind.fails()
	v.note(old, now, differs)
	return v, nil
}

// counted reports whether the metric does not depend on the machine's speed.
func counted(metric string) bool {
	return metric == stats.UnitAllocsPerOp || metric == stats.UnitBytesPerOp || metric == stats.UnitDeltasPerEvent
}

// machineDiffers describes the differences between the machines, in the properties that
// both runs know.
func machineDiffers(old, now *Run) string {
	var out []string
	for _, key := range []string{"cpu", "goos", "goarch", "GOMAXPROCS"} {
		if a, b := old.Machine[key], now.Machine[key]; a != "" && b != "" && a != b {
			out = append(out, fmt.Sprintf("%s is %q and %q", key, a, b))
		}
	}
	return strings.Join(out, ", ")
}

// judge judges one cell. It returns false if the old run has no figure and no reason
// for the absence.
func judge(rule *Rule, was, is *gateCell) (Finding, bool) {
	f := Finding{
		Cell: was.Name, Metric: rule.Metric, PerBaseline: rule.PerBaseline,
		Allowed: rule.Change, Because: rule.Because, Line: rule.Line, rule: rule,
	}
	before := was.values(rule.Metric, rule.PerBaseline)
	told := func(k FindingKind, why string) (Finding, bool) {
		f.Kind, f.Why = k, why
		return f, true
	}
	switch {
	case len(before) == 0 && !unbelievable(was):
		return f, false
	case is == nil:
		return told(Missing, "the new run lacks the cell")
	case is.Verdict.Status == lab.Invalid && is.Verdict.Failed():
		return told(Broken, is.Verdict.String())
	case unbelievable(is):
		return told(Undecided, is.Verdict.String())
	case unbelievable(was):
		return told(Undecided, "in the old run: "+was.Verdict.String())
	case was.Class != "" && is.Class != "" && was.Class != is.Class:
		return told(Changed, fmt.Sprintf("guarantees were %s, and are %s", was.Class, is.Class))
	case was.Input != "" && is.Input != "" && was.Input != is.Input:
		return told(Changed, "its input differs")
	}
	after := is.values(rule.Metric, rule.PerBaseline)
	if len(after) == 0 {
		if rule.PerBaseline && len(is.Samples[rule.Metric]) > 0 {
			return told(Undecided, "the baseline has no figure in the new run")
		}
		return told(Missing, "the new run lacks the figure")
	}
	f.measure(before, after)
	return f, true
}

// unbelievable reports whether a cell has no valid figures.
func unbelievable(c *gateCell) bool {
	return c.Verdict.Status == lab.Invalid || c.Verdict.Status == lab.Unplayed
}

// measure compares the rounds and sets the kind, before the correction.
func (f *Finding) measure(before, after []float64) {
	c := stats.Compare(before, after)
	f.Old, f.New, f.P = stats.Median(before), stats.Median(after), &c.P
	if f.Old != 0 {
		change := f.New/f.Old - 1
		f.Change = &change
	}
	if c.Lo > 0 {
		lo, hi := c.Lo-1, c.Hi-1
		f.Lo, f.Hi = &lo, &hi
	}
	if share, ok := stats.MinDetectable(before, after); ok {
		f.MinDetectable = &share
	}
	higher := f.rule.Better == stats.Higher
	worse := f.New-f.Old > 0 != higher
	f.Kind = Held
	switch {
	case !c.Testable:
		f.Kind, f.Why = Undecided, fmt.Sprintf("%d and %d rounds are too few for a test (4 are needed)", len(before), len(after))
	case math.Abs(f.New-f.Old) <= f.rule.Floor:
	case c.Significant && f.past(before, after):
		f.Kind = Improved
		if worse {
			f.Kind, f.beyond = Held, true // correct decides later
			f.uncorrected = welch(before, after, f.limit(higher))
		}
	case f.MinDetectable != nil && *f.MinDetectable > f.Allowed:
		f.Kind = Blind
		f.Why = fmt.Sprintf("the rounds detect only a change of %.3g %% or more", *f.MinDetectable*100)
	}
}

// limit is the largest allowed ratio.
func (f *Finding) limit(higher bool) float64 {
	if higher {
		return 1 - f.Allowed
	}
	return 1 + f.Allowed
}

// past reports whether the median and the nearer end of the interval exceed the allowed
// change, upwards or downwards.
func (f *Finding) past(before, after []float64) bool {
	grown := f.New > f.Old
	switch {
	case f.Lo == nil && grown:
		// Figures of 0 have no ratio; then the samples must not overlap.
		return slices.Min(after) > slices.Max(before)
	case f.Lo == nil:
		return slices.Max(after) < slices.Min(before)
	case grown:
		return min(*f.Lo, *f.Change) > f.Allowed
	}
	return max(*f.Hi, *f.Change) < -f.Allowed
}

// welch returns the p of the hypothesis that after is limit times before. It tests
// logarithms, or the plain figures if one is 0. For constant figures p is 1 (equal) or
// 0.
func welch(before, after []float64, limit float64) float64 {
	a, b := make([]float64, len(before)), make([]float64, len(after))
	logs := slices.Min(before) > 0 && slices.Min(after) > 0
	for i, v := range before {
		if a[i] = v; logs {
			a[i] = math.Log(v * limit)
		}
	}
	for i, v := range after {
		if b[i] = v; logs {
			b[i] = math.Log(v)
		}
	}
	thresholds := &benchmath.Thresholds{CompareAlpha: stats.Alpha}
	sa, sb := benchmath.NewSample(a, thresholds), benchmath.NewSample(b, thresholds)
	constant := func(s *benchmath.Sample) bool { return s.Values[0] == s.Values[len(s.Values)-1] }
	if constant(sa) && constant(sb) {
		if sa.Values[0] == sb.Values[0] {
			return 1
		}
		return 0
	}
	return benchmath.AssumeNormal.Compare(sa, sb).P
}

// correct applies Holm's procedure to all tested figures. The smallest p is corrected
// for all tests, the next for one fewer, and so on. A figure that stays significant is
// a regression; all others are [Blind].
func correct(findings []Finding) {
	tested := 0
	var beyond []*Finding
	for i := range findings {
		f := &findings[i]
		if f.P != nil && f.Kind != Undecided {
			tested++
		}
		if f.beyond {
			beyond = append(beyond, f)
		}
	}
	slices.SortStableFunc(beyond, func(a, b *Finding) int {
		switch {
		case a.uncorrected < b.uncorrected:
			return -1
		case a.uncorrected > b.uncorrected:
			return 1
		}
		return 0
	})
	// Figures within the allowed change count with the largest p.
	highest := 0.0
	for i, f := range beyond {
		highest = math.Max(highest, math.Min(1, f.uncorrected*float64(tested-i)))
		adjusted := highest
		f.Adjusted = &adjusted
		if f.Kind = Blind; adjusted < stats.Alpha {
			f.Kind = Regressed
		} else {
			f.Why = fmt.Sprintf("among %d figures, one such by chance is likely; more rounds can decide", tested)
		}
	}
}

// note adds notes on the runs as wholes.
func (v *Judgement) note(old, now *Run, differs string) {
	if differs != "" {
		v.Notes = append(v.Notes, "different machines: "+differs)
	}
	fresh := 0
	for _, c := range now.Cells {
		if old.byName[c.Name] == nil {
			fresh++
		}
	}
	if fresh > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("not judged: %d of the new run's %d cells, which the old run lacks", fresh, len(now.Cells)))
	}
}
