package rules

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/storm"
)

const maxFile = 1 << 20 // largest file in bytes

// FileError is the error of a file, with its line.
type FileError struct {
	File string
	Line int // from 1; 0 means the whole file
	Err  error
}

// Error returns one line such as
//
//	rules my.yaml: line 3: expect: target "its parent" (allowed: …)
func (e *FileError) Error() string {
	text := storm.Printable(e.Err.Error())
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return fmt.Sprintf("rules %s: %s", storm.Printable(e.File), text)
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

func bad(n *yaml.Node, format string, args ...any) error {
	return &FileError{Line: n.Line, Err: fmt.Errorf(format, args...)}
}

//go:embed builtin/*.yaml
var builtin embed.FS

const standard = "default"

// Names returns the names of the built-in rules, each for controllers of kube-controller-manager.
func Names() []string {
	files, _ := builtin.ReadDir("builtin") // embedded
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".yaml"); name != standard {
			names = append(names, name)
		}
	}
	return names
}

// Default returns the rules of a play without a file. After each change by a storm or workload, the first
// write to the object, its owner, what it owns or an object of the same name is the answer. In the end,
// status.observedGeneration must be metadata.generation where a controller wrote the status.
func Default() *Rules {
	r, err := Load(standard)
	if err != nil {
		panic(err) // a test reads the embedded files
	}
	return r
}

// Load reads files of rules and built-in rules by [Names], separated by commas. Nothing means [Default]. The
// error is a [*FileError].
func Load(list string) (*Rules, error) {
	if list == "" {
		list = standard
	}
	all := &Rules{}
	for name := range strings.SplitSeq(list, ",") {
		r, err := load(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		all.rules = append(all.rules, r.rules...)
		all.finals = append(all.finals, r.finals...)
	}
	return all, nil
}

func load(name string) (*Rules, error) {
	if data, err := builtin.ReadFile(path.Join("builtin", name+".yaml")); err == nil {
		return Parse(name, data)
	}
	r, err := read(name)
	var p *os.PathError
	if errors.As(err, &p) {
		return nil, &FileError{File: name, Err: fmt.Errorf("%w (built-in rules: %s)", p.Err, strings.Join(Names(), ", "))}
	}
	return r, err
}

func read(name string) (*Rules, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return Parse(name, data)
}

// Parse reads rules from YAML; see the package's text. The error is a [*FileError] of that file.
func Parse(file string, data []byte) (*Rules, error) {
	r, err := parse(data)
	if err == nil {
		return r, nil
	}
	var at *FileError
	if !errors.As(err, &at) {
		at = &FileError{Err: err}
	}
	at.File = file
	return nil, at
}

// yamlLine matches the line number in an error of package yaml.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (?s:(.*))$`)

func parse(data []byte) (*Rules, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	err := d.Decode(&doc)
	if err == nil {
		if err = d.Decode(&more); err == nil {
			return nil, bad(&more, "more than one document")
		}
	}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		return nil, &FileError{Line: line, Err: errors.New(m[2])}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return nil, err
	case len(doc.Content) != 1:
		return nil, errors.New("the file is empty")
	}
	root, err := fields(doc.Content[0], "rules", "final")
	if err != nil {
		return nil, err
	}
	r := &Rules{}
	for _, n := range list(root["rules"]) {
		next, err := parseRule(n)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(r.rules, func(other rule) bool { return other.name == next.name }) {
			return nil, bad(n, "rule %q: twice; give one of them a name", next.name)
		}
		r.rules = append(r.rules, next)
	}
	for _, n := range list(root["final"]) {
		f, err := parseFinal(n)
		if err != nil {
			return nil, err
		}
		r.finals = append(r.finals, f)
	}
	if len(r.rules)+len(r.finals) == 0 {
		return nil, bad(doc.Content[0], "neither rules nor final")
	}
	return r, nil
}

// list returns the items of a list, or a single value.
func list(n *yaml.Node) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	}
	return []*yaml.Node{n}
}

// fields returns the values of a mapping by field.
func fields(n *yaml.Node, allowed ...string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, bad(n, "must be fields with values (allowed: %s)", strings.Join(allowed, ", "))
	}
	out := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(allowed, key.Value):
			return nil, bad(key, "unknown field %q (allowed: %s)", key.Value, strings.Join(allowed, ", "))
		case out[key.Value] != nil:
			return nil, bad(key, "%s: duplicate field, first in line %d", key.Value, out[key.Value].Line)
		case value.Tag == "!!null":
			return nil, bad(value, "%s: no value", key.Value)
		}
		out[key.Value] = value
	}
	return out, nil
}

// text passes the text of an optional field to f.
func text(n *yaml.Node, field string, f func(string) error) error {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		return bad(n, "%s: must be a single value", field)
	}
	if err := f(n.Value); err != nil {
		return bad(n, "%s: %w", field, err)
	}
	return nil
}

// into stores a parsed text.
func into[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(s string) (err error) {
		*to, err = parse(s)
		return err
	}
}

func oneOf(allowed ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("%q (allowed: %s)", s, strings.Join(allowed, ", "))
		}
		return s, nil
	}
}

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

func parseRule(n *yaml.Node) (r rule, err error) {
	f, err := fields(n, "name", "after", "by", "when", "expect", "within")
	if err != nil {
		return r, err
	}
	for _, name := range []string{"after", "expect"} {
		if f[name] == nil {
			return r, bad(n, "%s: missing", name)
		}
	}
	err = errors.Join(
		text(f["after"], "after", into(&r.after, parseEvent)),
		text(f["when"], "when", into(&r.when, compileWith("$before"))),
		text(f["within"], "within", into(&r.within, func(s string) (time.Duration, error) {
			d, err := time.ParseDuration(s)
			if err != nil || d <= 0 {
				return 0, fmt.Errorf("%q (allowed: a duration such as 10s)", s)
			}
			return d, nil
		})),
	)
	for _, n := range list(f["by"]) {
		var by string
		err = errors.Join(err, text(n, "by", into(&by, oneOf(record.ByStorm, record.ByWorkload, record.ByLifecycle, controllers))))
		r.by = append(r.by, by)
	}
	var texts []string
	for _, n := range list(f["expect"]) {
		var a answer
		err = errors.Join(err, text(n, "expect", into(&a, parseAnswer)))
		r.expect = append(r.expect, a)
		texts = append(texts, strings.Join(strings.Fields(n.Value), " "))
	}
	if err == nil && len(r.expect) == 0 {
		err = bad(f["expect"], "expect: empty")
	}
	r.expects = strings.Join(texts, " or ")
	r.name = strings.Join(strings.Fields(f["after"].Value), " ") + ": " + r.expects
	return r, errors.Join(err, text(f["name"], "name", into(&r.name, printable)))
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
	written string      // of the objects that a controller wrote: status or any; empty for all
	has     *expression // nil for nothing
	owns    *owns       // nil for nothing
}

type owns struct {
	resource pattern
	where    *expression // nil for all
	count    *expression
}

func parseFinal(n *yaml.Node) (out final, err error) {
	f, err := fields(n, "name", "each", "where", "written", "has", "owns")
	switch {
	case err != nil:
		return out, err
	case f["each"] == nil:
		return out, bad(n, "each: missing")
	case f["has"] == nil && f["owns"] == nil:
		return out, bad(n, "neither has nor owns")
	}
	err = errors.Join(
		text(f["each"], "each", into(&out.each, parsePattern)),
		text(f["where"], "where", into(&out.where, compileWith())),
		text(f["written"], "written", into(&out.written, oneOf("status", "any"))),
		text(f["has"], "has", into(&out.has, compileWith())),
	)
	out.name = string(out.each)
	if n := f["owns"]; n != nil && err == nil {
		f, err := fields(n, "resource", "where", "count")
		switch {
		case err != nil:
			return out, err
		case f["resource"] == nil || f["count"] == nil:
			return out, bad(n, "owns: resource and count are required")
		}
		out.owns = &owns{}
		err = errors.Join(
			text(f["resource"], "resource", into(&out.owns.resource, parsePattern)),
			text(f["where"], "where", into(&out.owns.where, compileWith())),
			text(f["count"], "count", into(&out.owns.count, compileWith())),
		)
		if err != nil {
			return out, err
		}
		out.name += " owns " + string(out.owns.resource)
	}
	return out, errors.Join(err, text(f["name"], "name", into(&out.name, printable)))
}
