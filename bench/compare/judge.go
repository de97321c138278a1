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

// FindingKind says what was found.
type FindingKind string

// The kinds. The first four fail the gate.
const (
	// Regressed: the figure is worse by more than is allowed, and that is no chance.
	Regressed FindingKind = "regressed"
	// Broken: the new run's cell broke an invariant or ended in an error.
	Broken FindingKind = "broken"
	// Missing: the new run doesn't have the cell, or the cell the figure.
	Missing FindingKind = "missing"
	// Changed: the cell isn't what it was: its guarantees, or what it is played.
	Changed FindingKind = "changed"
	// Untold: the figure could not be judged, as the machine was in the way or one
	// side has too few rounds.
	Untold FindingKind = "untold"
	// Blind: no regression was found, but one of more than is allowed might have
	// been missed.
	Blind FindingKind = "blind"
	// Improved: the figure is better by more than is allowed for the worse.
	Improved FindingKind = "improved"
	// Held: the figure is within what is allowed.
	Held FindingKind = "held"
)

// kinds in the order in which they are told.
var kinds = []FindingKind{Regressed, Broken, Missing, Changed, Untold, Blind, Improved, Held}

// fails reports whether the kind fails the gate.
func (k FindingKind) fails() bool { return slices.Index(kinds, k) < slices.Index(kinds, Untold) }

// Finding is what was found of one figure of one cell.
type Finding struct {
	Kind          FindingKind `json:"kind"`
	Cell          string      `json:"cell"`
	Metric        string      `json:"metric"`
	PerBaseline   bool        `json:"perBaseline,omitempty"`
	Old           float64     `json:"old,omitempty"`    // median
	New           float64     `json:"new,omitempty"`    // median
	Change        *float64    `json:"change,omitempty"` // New/Old − 1
	Lo            *float64    `json:"lo,omitempty"`     // 95 % interval of Change
	Hi            *float64    `json:"hi,omitempty"`
	Allowed       float64     `json:"allowed"`                 // share
	P             *float64    `json:"p,omitempty"`             // Mann-Whitney
	Adjusted      *float64    `json:"adjustedP,omitempty"`     // Welch, after Holm's correction
	MinDetectable *float64    `json:"minDetectable,omitempty"` // smallest visible change
	Why           string      `json:"why,omitempty"`           // explains the kind
	Because       string      `json:"because"`                 // the rule's reason
	Line          int         `json:"line"`                    // of the rule
	rule          *Rule
	beyond        bool
	uncorrected   float64
}

// Verdict is what the gate found.
type Judgement struct {
	Old      string    `json:"old"`
	New      string    `json:"new"`
	Rules    string    `json:"rules"` // name of the rules
	Failed   bool      `json:"failed"`
	Findings []Finding `json:"findings"` // failures first
	Notes    []string  `json:"notes,omitempty"`
}

// The errors of a gate that cannot be held.
var (
	// ErrNothing: a rule matches no cell with its metric.
	ErrNothing = errors.New("matches nothing")
	// ErrBaseline: a rule is per baseline, and a run is no results folder.
	ErrBaseline = errors.New("per baseline needs results folders, which know their baselines")
	// ErrMachine: the runs were made on different machines, and a rule holds their
	// times against each other.
	ErrMachine = errors.New("the runs are of different machines")
)

// Judge holds the new run against the old one. Errors are a [*RuleError] of the
// rule, wrapping [ErrNothing], [ErrBaseline] or [ErrMachine].
//
// Time: O(rules · cells), and for each pair that of two tests.
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

// counted are the metrics that a machine's speed doesn't move.
func counted(metric string) bool {
	return metric == stats.UnitAllocsPerOp || metric == stats.UnitBytesPerOp || metric == stats.UnitDeltasPerEvent
}

// machineDiffers names what differs of what both runs know.
func machineDiffers(old, now *Run) string {
	var out []string
	for _, key := range []string{"cpu", "goos", "goarch", "GOMAXPROCS"} {
		if a, b := old.Machine[key], now.Machine[key]; a != "" && b != "" && a != b {
			out = append(out, fmt.Sprintf("%s is %q and %q", key, a, b))
		}
	}
	return strings.Join(out, ", ")
}

// judge looks at one cell. False where the old run has no figure, and says
// nothing about why.
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
		return told(Missing, "the new run doesn't have it")
	case is.Verdict.Status == lab.Invalid && is.Verdict.Failed():
		return told(Broken, is.Verdict.String())
	case unbelievable(is):
		return told(Untold, is.Verdict.String())
	case unbelievable(was):
		return told(Untold, "in the old run: "+was.Verdict.String())
	case was.Class != "" && is.Class != "" && was.Class != is.Class:
		return told(Changed, fmt.Sprintf("guarantees were %s, and are %s", was.Class, is.Class))
	case was.Input != "" && is.Input != "" && was.Input != is.Input:
		return told(Changed, "what is played to it is not what it was")
	}
	after := is.values(rule.Metric, rule.PerBaseline)
	if len(after) == 0 {
		if rule.PerBaseline && len(is.Samples[rule.Metric]) > 0 {
			return told(Untold, "the baseline has no figure in the new run")
		}
		return told(Missing, "the new run has no such figure of it")
	}
	f.measure(before, after)
	return f, true
}

// unbelievable reports whether a cell has no figures that may be believed.
func unbelievable(c *gateCell) bool {
	return c.Verdict.Status == lab.Invalid || c.Verdict.Status == lab.Unplayed
}

// measure compares the rounds.
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
		f.Kind, f.Why = Untold, fmt.Sprintf("%d and %d rounds are too few to tell a difference from chance (4 are needed)", len(before), len(after))
	case math.Abs(f.New-f.Old) <= f.rule.Floor:
	case c.Significant && f.past(before, after):
		f.Kind = Improved
		if worse {
			f.Kind, f.beyond = Held, true // Until the correction has spoken.
			f.uncorrected = welch(before, after, f.limit(higher))
		}
	case f.MinDetectable != nil && *f.MinDetectable > f.Allowed:
		f.Kind = Blind
		f.Why = fmt.Sprintf("the rounds would show a change from %.3g %% on", *f.MinDetectable*100)
	}
}

// limit is the ratio that is just allowed.
func (f *Finding) limit(higher bool) float64 {
	if higher {
		return 1 - f.Allowed
	}
	return 1 + f.Allowed
}

// past reports whether the median and the near end of the interval lie further
// off than is allowed, upwards or downwards.
func (f *Finding) past(before, after []float64) bool {
	grown := f.New > f.Old
	switch {
	case f.Lo == nil && grown:
		// Figures of 0 have no ratio. A share of nothing is nothing, so that all that
		// counts is that the two sides don't overlap.
		return slices.Min(after) > slices.Max(before)
	case f.Lo == nil:
		return slices.Max(after) < slices.Min(before)
	case grown:
		return min(*f.Lo, *f.Change) > f.Allowed
	}
	return max(*f.Hi, *f.Change) < -f.Allowed
}

// welch is the p of the hypothesis that after is limit times before, on the
// logarithms. Figures without noise differ, or they don't; where one is 0, they
// are taken as they are.
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

// correct is Holm's procedure over all figures that were tested: the smallest p
// must hold against all of them, the next against all but one, and so on. What
// does is a regression; what doesn't is told as what the gate cannot decide.
func correct(findings []Finding) {
	tested := 0
	var beyond []*Finding
	for i := range findings {
		f := &findings[i]
		if f.P != nil && f.Kind != Untold {
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
	// Those that aren't beyond count with the largest p.
	highest := 0.0
	for i, f := range beyond {
		highest = math.Max(highest, math.Min(1, f.uncorrected*float64(tested-i)))
		adjusted := highest
		f.Adjusted = &adjusted
		if f.Kind = Blind; adjusted < stats.Alpha {
			f.Kind = Regressed
		} else {
			f.Why = fmt.Sprintf("among %d figures, one such by chance is likely; more rounds would tell", tested)
		}
	}
}

// note tells what is of the runs as wholes.
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
		v.Notes = append(v.Notes, fmt.Sprintf("not judged, as the old run doesn't have them: %d of the new run's %d cells", fresh, len(now.Cells)))
	}
}
