package compare

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"

	"watchlab/bench/stats"
)

// Rule says how much a metric of some cells may change for the worse.
type Rule struct {
	Metric      string  // a unit of bench.txt
	Cells       string  // benchproc filter
	Change      float64 // allowed share for the worse
	Floor       float64 // smaller differences are ignored, in the metric's unit
	PerBaseline bool    // as multiples of the baseline in the same round
	Better      stats.Direction
	Because     string // reason, shown with a regression
	Line        int    // in the rules file
	filter      *benchproc.Filter
}

// String names the rule's figure.
func (r *Rule) String() string {
	if r.PerBaseline {
		return r.Metric + " per baseline"
	}
	return r.Metric
}

// allows writes what is allowed: "+10 %" or "-10 %".
func (r *Rule) allows() string {
	sign := "+"
	if r.Better == stats.Higher {
		sign = "-"
	}
	return fmt.Sprintf("%s%.3g %%", sign, r.Change*100)
}

// ErrRule is wrapped by the errors for rules that cannot be used.
var ErrRule = errors.New("bad rule")

// RuleError is an error of a rules file.
type RuleError struct {
	File string
	Line int // 0: unknown
	Err  error
}

func (e *RuleError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}
func (e *RuleError) Unwrap() error { return e.Err }

// Default is a file of rules for results folders that watchlab writes.
//
//go:embed gate.yaml
var DefaultRules []byte

// DefaultRulesName is how the default rules are called in findings and errors.
const DefaultRulesName = "default rules"

// ReadFile reads rules from a file; see [Parse].
func ReadRules(path string) ([]Rule, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err // Without the path, which stands before it.
		}
		return nil, &RuleError{File: path, Err: err}
	}
	return ParseRules(path, data)
}

// Parse reads rules from YAML:
//
//	rules:
//	- metric: events/s
//	  cells: '/impl:(cond OR ring) -/rate:400'   # optional: all
//	  change: 10%                                # or 0.1
//	  floor: 0                                   # optional, in the metric's unit
//	  per: baseline                              # optional
//	  better: higher                             # where the unit doesn't tell
//	  because: throughput is what the variant is for
//
// It is strict: a field that there isn't, or one that is missing, is an error.
// Errors are a [*RuleError] with the line, wrapping [ErrRule]. file is the name
// that they show.
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
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			if seen[key.Value] {
				return fail(key, "%s stands there twice", key.Value)
			}
			seen[key.Value] = true
			if value.Kind != yaml.ScalarNode {
				return fail(value, "%s: want one value", key.Value)
			}
			if err := rule.set(key.Value, value.Value); err != nil {
				return fail(value, "%s: %w", key.Value, err)
			}
		}
		for _, key := range []string{"metric", "change", "because"} {
			if !seen[key] {
				return fail(node, "%s is missing", key)
			}
		}
		if rule.Better == stats.Unknown {
			if rule.Better = stats.Better(rule.Metric); rule.Better == stats.Unknown {
				return fail(node, "%s: the unit doesn't tell which way is better: say better: lower or higher", rule.Metric)
			}
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

// syntaxError takes the line out of the parser's text, which has it nowhere
// else.
func syntaxError(file string, err error) error {
	e := &RuleError{File: file, Err: fmt.Errorf("%w: %w", ErrRule, err)}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1]) // Digits are what it takes.
		e.Err = fmt.Errorf("%w: %s", ErrRule, strings.TrimPrefix(err.Error(), m[0]))
	}
	return e
}

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
		if r.Change, err = share(value); err == nil && r.Change >= 1 {
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

// share reads "10%" and "0.1".
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

// matches reports whether the rule is for a cell.
func (r *Rule) matches(c *gateCell) bool {
	if r.filter == nil {
		return true
	}
	res := c.result
	res.Values = []benchfmt.Value{{Unit: r.Metric}}
	m, err := r.filter.Match(&res)
	return err == nil && m.Any()
}
