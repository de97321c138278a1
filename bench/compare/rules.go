package compare

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"

	"watchlab/bench/stats"
	"watchlab/loadgen/manifest"
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
		return nil, path, &manifest.Error{File: path, Err: err}
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
// Unknown and missing fields are errors. An error is a [*manifest.Error]. file is the name of the rules in errors.
func ParseRules(file string, data []byte) ([]Rule, error) {
	var form struct {
		Rules []ruleForm `json:"rules"`
	}
	if err := manifest.Strict(file, data, &form); err != nil {
		return nil, err
	}
	if len(form.Rules) == 0 {
		return nil, manifest.Locate(file, data, manifest.Bad("rules", "there is none"))
	}
	rules := make([]Rule, len(form.Rules))
	for i, f := range form.Rules {
		path := fmt.Sprintf("rules.%d", i)
		if err := f.fill(&rules[i]); err != nil {
			at, _ := errors.AsType[*manifest.Error](err)
			at.Field = strings.TrimSuffix(path+"."+at.Field, ".")
			return nil, manifest.Locate(file, data, at)
		}
		rules[i].Line = manifest.Line(data, path)
	}
	return rules, nil
}

// ruleForm is a rule in a file.
type ruleForm struct {
	Metric  string `json:"metric"`
	Cells   string `json:"cells"`
	Change  string `json:"change"`
	Floor   string `json:"floor"`
	Per     string `json:"per"`
	Better  string `json:"better"`
	Because string `json:"because"`
}

// fill checks the form and fills the rule. The error is a [*manifest.Error] of a field.
func (f ruleForm) fill(r *Rule) (err error) {
	*r = Rule{
		Metric: f.Metric, Cells: cmp.Or(f.Cells, "*"), PerBaseline: f.Per == "baseline",
		Better: cmp.Or(stats.Direction(f.Better), stats.Better(f.Metric)), Because: strings.Join(strings.Fields(f.Because), " "),
	}
	switch {
	case f.Metric == "" || strings.ContainsAny(f.Metric, " \t"):
		return manifest.Bad("metric", "%q is no unit", f.Metric)
	case f.Per != "" && !r.PerBaseline:
		return manifest.Bad("per", "%q is not baseline", f.Per)
	case f.Better != "" && r.Better != stats.Lower && r.Better != stats.Higher:
		return manifest.Bad("better", "%q is neither lower nor higher", f.Better)
	case r.Better == stats.Unknown:
		return manifest.Bad("metric", "%s: the unit has no better direction: set better to lower or higher", f.Metric)
	}
	if r.filter, err = benchproc.NewFilter(r.Cells); err != nil {
		return manifest.BadField("cells", err)
	}
	if f.Change == "" {
		return manifest.Bad("change", "is missing")
	}
	if r.Allowed, err = share(f.Change); err == nil && r.Allowed >= 1 {
		err = fmt.Errorf("%s is no limit (want less than 100%%)", f.Change)
	}
	if err != nil {
		return manifest.BadField("change", err)
	}
	if r.Floor, err = fromZero(cmp.Or(f.Floor, "0")); err == nil && r.PerBaseline && r.Floor > 0 {
		err = errors.New("is in the metric's unit, and has none per baseline")
	}
	if err == nil && r.Because == "" {
		return manifest.Bad("because", "is missing: the reason")
	}
	return manifest.BadField("floor", err)
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
	res := c.result
	res.Values = []benchfmt.Value{{Unit: r.Metric}}
	m, err := r.filter.Match(&res)
	return err == nil && m.Any()
}
