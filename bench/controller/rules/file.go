package rules

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

const maxFile = 1 << 20 // largest file in bytes

//go:embed builtin/*.yaml
var builtin embed.FS

const standard = "default"

// Names returns the names of the built-in rules, each for controllers of kube-controller-manager.
func Names() []string { return manifest.BuiltIn(builtin, "builtin/*.yaml", standard) }

// Load reads files of rules and built-in rules by [Names], separated by commas. Nothing means the default: after each
// change by a storm or workload, the first write to the object, its owner, what it owns or an object of the same name
// is the answer, and in the end status.observedGeneration must be metadata.generation where a controller wrote the
// status. The error is a [*manifest.Error].
func Load(list string) (*Rules, error) {
	all := &Rules{}
	for name := range strings.SplitSeq(cmp.Or(list, standard), ",") {
		r, err := load(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		all.rules = append(all.rules, r.rules...)
		all.nevers = append(all.nevers, r.nevers...)
		all.finals = append(all.finals, r.finals...)
	}
	return all, nil
}

func load(name string) (*Rules, error) {
	data, err := builtin.ReadFile(path.Join("builtin", name+".yaml"))
	if err != nil {
		data, err = read(name)
	}
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return nil, &manifest.Error{File: name, Err: fmt.Errorf("%w (built-in rules: %s)", p.Err, strings.Join(Names(), ", "))}
	}
	return Parse(name, data)
}

// read reads a file, and no more of it than shows that it is too large.
func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// The form of a file.
type (
	fileForm struct {
		Rules []ruleForm  `json:"rules"`
		Never []neverForm `json:"never"`
		Final []finalForm `json:"final"`
	}
	neverForm struct {
		Name  string `json:"name"`
		Event string `json:"event"`
		By    texts  `json:"by"`
		When  string `json:"when"`
		While string `json:"while"`
	}
	ruleForm struct {
		Name   string `json:"name"`
		After  string `json:"after"`
		By     texts  `json:"by"`
		When   string `json:"when"`
		Expect texts  `json:"expect"`
		Within string `json:"within"`
	}
	finalForm struct {
		Name    string    `json:"name"`
		Each    string    `json:"each"`
		Where   string    `json:"where"`
		Written string    `json:"written"`
		Has     string    `json:"has"`
		Owns    *ownsForm `json:"owns"`
	}
	ownsForm struct {
		Resource string `json:"resource"`
		Where    string `json:"where"`
		Count    string `json:"count"`
	}
)

// texts is a list of texts, or one text.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(t))
	}
	*t = make(texts, 1)
	return json.Unmarshal(data, &(*t)[0])
}

// Parse reads rules from YAML; see the package's text. The error is a [*manifest.Error].
func Parse(file string, data []byte) (*Rules, error) {
	if len(data) > maxFile {
		return nil, &manifest.Error{File: file, Err: fmt.Errorf("more than %d bytes", maxFile)}
	}
	var form fileForm
	if err := manifest.Strict(file, data, &form); err != nil {
		return nil, err
	}
	r := &Rules{}
	if err := r.fill(form); err != nil {
		return nil, manifest.Locate(file, data, err)
	}
	return r, nil
}

func (r *Rules) fill(form fileForm) error {
	unique := func(f ruleForm, p *parser) rule {
		next := f.rule(p)
		if slices.ContainsFunc(r.rules, func(other rule) bool { return other.name == next.name }) {
			p.bad("name", "%q twice; give one of them another name", next.name)
		}
		return next
	}
	err := cmp.Or(
		fill(&r.rules, "rules", form.Rules, unique), fill(&r.nevers, "never", form.Never, neverForm.never), fill(&r.finals, "final", form.Final, finalForm.final),
	)
	if err == nil && len(r.rules)+len(r.nevers)+len(r.finals) == 0 {
		err = errors.New("neither rules nor never nor final")
	}
	return err
}

// fill parses the entries of a list of a file.
func fill[F, T any](out *[]T, list string, forms []F, parse func(F, *parser) T) error {
	for i, f := range forms {
		p := parser{path: fmt.Sprintf("%s.%d", list, i)}
		next := parse(f, &p)
		if p.err != nil {
			return p.err
		}
		*out = append(*out, next)
	}
	return nil
}

// parser parses the texts of a rule. It keeps the first error.
type parser struct {
	path string // of the rule
	err  error
}

func (p *parser) bad(field, format string, args ...any) {
	if p.err == nil {
		p.err = manifest.Bad(p.path+"."+field, format, args...)
	}
}

// parsed returns the parsed text of a field; the zero value for an empty text.
func parsed[T any](p *parser, field, text string, parse func(string) (T, error)) (v T) {
	if text != "" {
		var err error
		if v, err = parse(text); err != nil {
			p.bad(field, "%w", err)
		}
	}
	return v
}

// required is parsed for a text that must not be empty.
func required[T any](p *parser, field, text string, parse func(string) (T, error)) (v T) {
	if text == "" {
		p.bad(field, "is missing")
	}
	return parsed(p, field, text, parse)
}

func oneOf(allowed ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("%q (allowed: %s)", s, strings.Join(allowed, ", "))
		}
		return s, nil
	}
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q (allowed: a duration such as 10s)", s)
	}
	return d, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// rule is an entry of rules.
type rule struct {
	name    string
	after   event
	expect  []answer
	when    *expression // nil for always
	within  time.Duration
	by      []string // nil for all but controllers
	expects string   // text of expect
}

const controllers = "controller" // in by: any client

func (f ruleForm) rule(p *parser) rule {
	r := rule{
		after: required(p, "after", f.After, parseEvent), when: parsed(p, "when", f.When, compileWith("$before")),
		within: parsed(p, "within", f.Within, duration), name: parsed(p, "name", f.Name, printable),
	}
	r.by = f.By.authors(p)
	if len(f.Expect) == 0 {
		p.bad("expect", "is missing")
	}
	var expects []string
	for _, text := range f.Expect {
		r.expect = append(r.expect, required(p, "expect", text, parseAnswer))
		expects = append(expects, oneLine(text))
	}
	r.expects = strings.Join(expects, " or ")
	r.name = cmp.Or(r.name, oneLine(f.After)+": "+r.expects)
	return r
}

func (t texts) authors(p *parser) (by []string) {
	for _, text := range t {
		by = append(by, required(p, "by", text, oneOf(record.ByStorm, record.ByWorkload, record.ByLifecycle, controllers)))
	}
	return by
}

// never is an entry of never: an event of a rule that must not come, while an object exists.
type never struct {
	rule
	while *answer // whose target is that object; nil for always
}

func (f neverForm) never(p *parser) never {
	n := never{rule: rule{
		after: required(p, "event", f.Event, parseEvent), when: parsed(p, "when", f.When, compileWith("$before")), name: parsed(p, "name", f.Name, printable),
		by: f.By.authors(p),
	}}
	n.name = cmp.Or(n.name, "never "+oneLine(f.Event))
	if n.by == nil {
		n.by = []string{controllers}
	}
	if f.While != "" {
		a := required(p, "while", f.While, func(s string) (answer, error) { return parseAnswer("write to " + s) })
		if a.relation == itself || a.relation == itOwns {
			p.bad("while", "%q (allowed: its owner, RESOURCE that owns it, RESOURCE of the same name)", f.While)
		}
		n.while = &a
	}
	return n
}

func printable(s string) (string, error) {
	if s == "" || storm.Printable(s) != s {
		return "", fmt.Errorf("%q: it must be printable", s)
	}
	return s, nil
}

// final is an entry of final.
type final struct {
	name    string
	each    pattern
	where   *expression // nil for all
	written bool        // of the objects whose status a controller wrote
	has     *expression // nil for nothing
	owns    *owns       // nil for nothing
}

type owns struct {
	resource pattern
	where    *expression // nil for all
	count    *expression
}

func (f finalForm) final(p *parser) final {
	out := final{
		name: parsed(p, "name", f.Name, printable), each: required(p, "each", f.Each, parsePattern), where: parsed(p, "where", f.Where, compileWith()),
		written: parsed(p, "written", f.Written, oneOf("status")) != "", has: parsed(p, "has", f.Has, compileWith()),
	}
	name := f.Each
	if o := f.Owns; o != nil {
		out.owns = &owns{
			resource: required(p, "owns.resource", o.Resource, parsePattern), where: parsed(p, "owns.where", o.Where, compileWith()),
			count: required(p, "owns.count", o.Count, compileWith()),
		}
		name += " owns " + o.Resource
	} else if f.Has == "" {
		p.bad("has", "is missing, and so is owns")
	}
	out.name = cmp.Or(out.name, name)
	return out
}
