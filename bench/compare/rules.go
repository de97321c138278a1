package compare

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"

	"watchlab/bench/stats"
)

// Rule limits how much one metric of some cells may change for the worse.
type Rule struct {
	Metric string `json:"metric"` // a unit of bench.txt, such as events/s or p99-ns
	Cells  string `json:"-"`      // a filter in the syntax of golang.org/x/perf/benchproc/syntax; "*" selects all cells
	// Allowed is the allowed change as a share. With 0.1, a time may grow to 1.1 times the
	// old one, and a rate may fall to 0.9 times.
	Allowed float64 `json:"allowed"`
	// Floor is the smallest difference that counts, in the metric's unit. It protects
	// figures near 0, where any share is tiny.
	Floor float64 `json:"-"`
	// PerBaseline compares multiples of the baseline's figure in the same round. This
	// removes the effect of a slower machine.
	PerBaseline bool            `json:"perBaseline,omitempty"`
	Better      stats.Direction `json:"-"`       // the good direction; by default that of [stats.Better]
	Because     string          `json:"because"` // reason for the rule; regressions show it
	Line        int             `json:"line"`    // in the file
	filter      *benchproc.Filter
}

// String returns the metric, followed by "per baseline" if set.
func (r *Rule) String() string {
	if r.PerBaseline {
		return r.Metric + " per baseline"
	}
	return r.Metric
}

// worse is the sign of a change for the worse.
func (r *Rule) worse() float64 {
	if r.Better == stats.Higher {
		return -1
	}
	return 1
}

// ErrRule is wrapped by the errors for invalid rules.
var ErrRule = errors.New("bad rule")

// RuleError is an error in a rules file.
type RuleError struct {
	File string // name of the rules
	Line int    // 0 if unknown
	Err  error  // the cause
}

func (e *RuleError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}
func (e *RuleError) Unwrap() error { return e.Err }

// DefaultRules is a rules file for results folders, and ControllerRules one for those of watchlab controller.
var (
	//go:embed gate.yaml
	DefaultRules []byte
	//go:embed gate-controller.yaml
	ControllerRules []byte
)

// DefaultRulesName is the name of the default rules in findings and errors.
const DefaultRulesName = "default rules"

// ReadRules reads rules from a file; see [ParseRules]. Without a path it returns [DefaultRules] and
// [ControllerRules].
// name is that of the rules in findings and errors.
func ReadRules(path string) (rules []Rule, name string, err error) {
	if path == "" {
		for _, data := range [][]byte{DefaultRules, ControllerRules} {
			some, err := ParseRules(DefaultRulesName, data)
			if err != nil {
				return nil, DefaultRulesName, err
			}
			rules = append(rules, some...)
		}
		return rules, DefaultRulesName, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		if p, ok := errors.AsType[*os.PathError](err); ok {
			err = p.Err // The path is already in File.
		}
		return nil, path, &RuleError{File: path, Err: err}
	}
	rules, err = ParseRules(path, data)
	return rules, path, err
}

// ParseRules reads rules from YAML:
//
//	rules:
//	- metric: events/s
//	  cells: '/impl:(cond OR ring) -/rate:400'   # optional: all
//	  change: 10%                                # or 0.1
//	  floor: 0                                   # optional, in the metric's unit
//	  per: baseline                              # optional
//	  better: higher                             # if the unit has no direction
//	  because: throughput is what the variant is for
//
// Unknown and missing fields are errors. An error is a [*RuleError] with the line and
// wraps [ErrRule]. file is the name of the rules in errors.
func ParseRules(file string, data []byte) ([]Rule, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, syntaxError(file, err)
	}
	fail := func(at *yaml.Node, format string, args ...any) ([]Rule, error) {
		return nil, &RuleError{File: file, Line: at.Line, Err: fmt.Errorf("%w: %w", ErrRule, fmt.Errorf(format, args...))}
	}
	if len(doc.Content) == 0 {
		return fail(&doc, "there is none")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode || len(root.Content) != 2 || root.Content[0].Value != "rules" || root.Content[1].Kind != yaml.SequenceNode {
		return fail(root, "want a list named rules and nothing else")
	}
	var rules []Rule
	for _, node := range root.Content[1].Content {
		if node.Kind != yaml.MappingNode {
			return fail(node, "want metric, change and because")
		}
		rule := Rule{Line: node.Line, Cells: "*"}
		seen := map[string]bool{}
		for field := range slices.Chunk(node.Content, 2) {
			key, value := field[0].Value, field[1]
			if seen[key] {
				return fail(field[0], "%s is set twice", key)
			}
			seen[key] = true
			if value.Kind != yaml.ScalarNode {
				return fail(value, "%s: want one value", key)
			}
			if err := rule.set(key, value.Value); err != nil {
				return fail(value, "%s: %w", key, err)
			}
		}
		for _, key := range []string{"metric", "change", "because"} {
			if !seen[key] {
				return fail(node, "%s is missing", key)
			}
		}
		if rule.Better = cmp.Or(rule.Better, stats.Better(rule.Metric)); rule.Better == stats.Unknown {
			return fail(node, "%s: the unit has no better direction: set better to lower or higher", rule.Metric)
		}
		if rule.PerBaseline && rule.Floor > 0 {
			return fail(node, "floor is in the metric's unit, and has none per baseline")
		}
		rules = append(rules, rule)
	}
	if len(rules) == 0 {
		return fail(root, "there is none")
	}
	return rules, nil
}

var yamlLine = regexp.MustCompile(`^yaml: line ([0-9]+): `)

// syntaxError extracts the line from the parser's message; the parser does not provide
// it otherwise.
func syntaxError(file string, err error) error {
	text, line := err.Error(), 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // The pattern matches digits only.
		text = strings.TrimPrefix(text, m[0])
	}
	return &RuleError{File: file, Line: line, Err: fmt.Errorf("%w: %s", ErrRule, text)}
}

// set parses one field of a rule.
func (r *Rule) set(key, value string) error {
	var err error
	switch key {
	case "metric":
		if r.Metric = value; value == "" || strings.ContainsAny(value, " \t") {
			return fmt.Errorf("%q is no unit", value)
		}
	case "cells":
		r.Cells = value
		r.filter, err = benchproc.NewFilter(value)
	case "change":
		if r.Allowed, err = share(value); err == nil && r.Allowed >= 1 {
			err = fmt.Errorf("%s is no limit (want less than 100%%)", value)
		}
	case "floor":
		r.Floor, err = fromZero(value)
	case "per":
		if r.PerBaseline = value == "baseline"; !r.PerBaseline {
			err = fmt.Errorf("%q is not baseline", value)
		}
	case "better":
		if r.Better = stats.Direction(value); r.Better != stats.Lower && r.Better != stats.Higher {
			err = fmt.Errorf("%q is neither lower nor higher", value)
		}
	case "because":
		if r.Because = strings.Join(strings.Fields(value), " "); r.Because == "" {
			err = errors.New("no reason")
		}
	default:
		err = errors.New("no such field (have metric, cells, change, floor, per, better, because)")
	}
	return err
}

// share parses "10%" and "0.1".
func share(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := fromZero(strings.TrimSpace(number))
	if percent {
		v /= 100
	}
	return v, err
}

func fromZero(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 1) {
		return 0, fmt.Errorf("%q is not a number from 0 on", text)
	}
	return v, nil
}

// matches reports whether the rule applies to a cell.
func (r *Rule) matches(c *gateCell) bool {
	if r.filter == nil {
		return true
	}
	res := c.result
	res.Values = []benchfmt.Value{{Unit: r.Metric}}
	m, err := r.filter.Match(&res)
	return err == nil && m.Any()
}
