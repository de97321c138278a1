package storm

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
)

// maxFile is the largest file in bytes.
const maxFile = 1 << 20

// FileError is the error of a file, with its line.
type FileError struct {
	// File is the name of the file. Line is the line of the error, from 1; 0 means the whole
	// file.
	File string
	Line int
	// Err is the cause.
	Err error
}

// Error returns one line such as
//
//	storm black-friday.yaml: line 7: profile nodeloss: lost: 1.5 (allowed: above 0, up to 1)
func (e *FileError) Error() string {
	at := ""
	if e.Line > 0 {
		at = fmt.Sprintf("line %d: ", e.Line)
	}
	return fmt.Sprintf("storm %s: %s%s", printable(e.File), at, printable(e.Err.Error()))
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// ErrFile is wrapped by the errors for files that are not a composition: invalid YAML, unknown
// fields, values of the wrong type.
var ErrFile = errors.New("invalid file")

// printable keeps a message on one line, whatever the file contains.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// ReadFile reads a composition from a YAML file; see [Parse]. seed is the default seed, and
// the file name is the default name.
func ReadFile(path string, seed int64) (Composition, error) {
	fail := func(err error) (Composition, error) {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err // The path precedes the message.
		}
		return Composition{}, &FileError{File: path, Err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fail(err)
	}
	c, err := Parse(path, data, seed)
	if c.Name == "" {
		base := filepath.Base(path)
		c.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	return c, err
}

// Parse reads a composition from YAML:
//
//	name: black-friday       # optional
//	seed: 7                  # optional; default: the caller's
//	profiles:
//	- profile: steady
//	  nodes: 100             # also pods and scale: the rest follows, see Profile.Resize
//	- profile: nodeloss
//	  start: 20s
//	  duration: 1m
//	  pace: trace:2x
//	  seed: 8                # optional; default: that of the file
//	  nodes: 50
//	  lost: 0.5              # the profile's own parameters
//	faults:                  # see package fault
//	- name: disconnect
//	  every: 2s
//
// Unknown and duplicate fields are errors. Errors are a [*FileError] with the line. They wrap
// [ErrFile], [ErrUnknownProfile], [ErrParam], [ErrComposition] or [fault.ErrSpec]. Their File
// is the argument file.
func Parse(file string, data []byte, seed int64) (Composition, error) {
	c, err := parse(data, seed)
	if err == nil {
		return c, nil
	}
	var located *lineError
	if errors.As(err, &located) {
		return Composition{}, &FileError{File: file, Line: located.line, Err: located.err}
	}
	return Composition{}, &FileError{File: file, Err: err}
}

// lineError is an error with its line.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

func badNode(n *yaml.Node, format string, args ...any) error {
	return &lineError{line: n.Line, err: fmt.Errorf("%w: %s", ErrFile, fmt.Sprintf(format, args...))}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFile, fmt.Sprintf(format, args...))
}

func parse(data []byte, seed int64) (Composition, error) {
	root, err := document(data)
	if err != nil {
		return Composition{}, err
	}
	var head struct {
		Name     string    `yaml:"name"`
		Seed     *int64    `yaml:"seed"`
		Profiles yaml.Node `yaml:"profiles"`
		Faults   yaml.Node `yaml:"faults"`
	}
	fields, err := decode(root, nil, &head)
	if err != nil {
		return Composition{}, err
	}
	if head.Seed != nil {
		seed = *head.Seed
	}
	c := Composition{Name: head.Name}
	if strings.ContainsFunc(c.Name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return Composition{}, badNode(fields["name"], "name: it must be printable")
	}
	entries, err := list(fields["profiles"], root, "profiles")
	if err != nil {
		return Composition{}, err
	}
	if len(entries) == 0 || len(entries) > MaxParts {
		return Composition{}, badNode(orNode(fields["profiles"], root), "profiles: %d entries (allowed: 1 to %d)", len(entries), MaxParts)
	}
	for _, n := range entries {
		p, err := parsePart(n, seed)
		if err != nil {
			return Composition{}, err
		}
		c.Parts = append(c.Parts, p)
	}
	if fields["faults"] == nil {
		return c, nil
	}
	faults, err := list(fields["faults"], root, "faults")
	if err != nil {
		return Composition{}, err
	}
	for _, n := range faults {
		var spec fault.Spec
		if _, err := decode(n, nil, &spec); err != nil {
			return Composition{}, err
		}
		if err := spec.Validate(); err != nil {
			return Composition{}, &lineError{line: n.Line, err: err}
		}
		c.Faults = append(c.Faults, spec)
	}
	return c, nil
}

// yamlLine matches the line number in an error of package yaml.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): (?s:(.*))$`)

// document returns the single document of a file.
func document(data []byte) (*yaml.Node, error) {
	if len(data) > maxFile {
		return nil, invalid("more than %d bytes", maxFile)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, invalid("the file is empty")
	case err != nil:
		return nil, syntax(err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, badNode(&more, "more than one document")
	case !errors.Is(err, io.EOF):
		return nil, syntax(err)
	}
	if len(doc.Content) != 1 {
		return nil, invalid("the file is empty")
	}
	return doc.Content[0], nil
}

func syntax(err error) error {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if line, numErr := strconv.Atoi(m[1]); numErr == nil {
			return &lineError{line: line, err: invalid("%s", m[2])}
		}
	}
	return invalid("%s", strings.TrimPrefix(err.Error(), "yaml: "))
}

func orNode(n, or *yaml.Node) *yaml.Node {
	if n == nil {
		return or
	}
	return n
}

// list returns the items of a list.
func list(n, parent *yaml.Node, name string) ([]*yaml.Node, error) {
	if n == nil {
		return nil, badNode(parent, "%s: missing", name)
	}
	if n.Kind != yaml.SequenceNode {
		return nil, badNode(n, "%s: must be a list", name)
	}
	return n.Content, nil
}

// partHead has the common fields of an entry. Nodes and Pods are also parameters, but other
// parameters scale with them.
type partHead struct {
	Profile  string        `yaml:"profile"`
	Seed     *int64        `yaml:"seed"`
	Start    time.Duration `yaml:"start"`
	Duration time.Duration `yaml:"duration"`
	Pace     *pace.Pace    `yaml:"pace"`
	Nodes    int           `yaml:"nodes"`
	Pods     int           `yaml:"pods"`
	Scale    float64       `yaml:"scale"`
}

func parsePart(n *yaml.Node, seed int64) (Part, error) {
	if err := isMapping(n); err != nil {
		return Part{}, err
	}
	// The profile decides which fields are valid.
	var name *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "profile" {
			name = n.Content[i+1]
		}
	}
	if name == nil {
		return Part{}, badNode(n, "profile: missing (allowed: %s)", strings.Join(Names(), ", "))
	}
	profile, err := NewProfile(name.Value)
	if err != nil {
		return Part{}, &lineError{line: name.Line, err: err}
	}
	var head partHead
	given := *profile
	fields, err := decode(n, profile.kind, &head, &given)
	if err != nil {
		return Part{}, err
	}
	if head.Seed != nil {
		seed = *head.Seed
	}
	part := Part{Profile: profile, Seed: seed, Start: head.Start, Duration: head.Duration, Pace: head.Pace}
	c := &checks{kind: profile.kind}
	if fields["nodes"] != nil {
		c.number("nodes", head.Nodes, 1, maxNodes)
	}
	if fields["pods"] != nil {
		c.number("pods", head.Pods, 0, maxPods)
	}
	if fields["scale"] != nil && (!(head.Scale > 0) || head.Scale > 1e6) {
		c.fail("scale", head.Scale, "above 0, up to 1000000")
	}
	if err = c.err; err == nil {
		// The size comes first because it changes other parameters. The parameters in the file
		// then override them.
		profile.Resize(head.Nodes, head.Pods, head.Scale)
		nodes, pods := profile.Nodes, profile.Pods
		if _, err := decode(n, profile.kind, &partHead{}, profile); err != nil {
			return Part{}, err
		}
		if head.Scale > 0 {
			profile.Nodes, profile.Pods = nodes, pods
		}
		if err = part.validate(); err == nil {
			return part, nil
		}
	}
	at := n
	var param *ParamError
	if errors.As(err, &param) {
		at = orNode(fields[param.Param], n)
	}
	return Part{}, &lineError{line: at.Line, err: err}
}

// decode stores the values of a mapping in structs and returns the value of each field. Each
// key must be a field of one of the structs. With a kind, the field must also apply to that
// profile.
func decode(n *yaml.Node, kind *profileKind, into ...any) (map[string]*yaml.Node, error) {
	if err := isMapping(n); err != nil {
		return nil, err
	}
	targets := map[string][]reflect.Value{}
	var names []string
	for _, s := range into {
		v := reflect.ValueOf(s).Elem()
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			if name == "" || kind != nil && !kind.applies(name) {
				continue
			}
			if targets[name] == nil {
				names = append(names, name)
			}
			targets[name] = append(targets[name], v.Field(i))
		}
	}
	what := ""
	if kind != nil {
		what = kind.name + ": "
	}
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || targets[key.Value] == nil:
			return nil, badNode(key, "%sunknown field %q (allowed: %s)", what, key.Value, strings.Join(names, ", "))
		case fields[key.Value] != nil:
			return nil, badNode(key, "%s: duplicate field, first in line %d", key.Value, fields[key.Value].Line)
		}
		fields[key.Value] = value
		for _, to := range targets[key.Value] {
			if err := decodeValue(value, to); err != nil {
				var located *lineError
				if errors.As(err, &located) {
					return nil, &lineError{line: located.line, err: invalid("%s: %v", key.Value, located.err)}
				}
				return nil, badNode(value, "%s: %v", key.Value, err)
			}
		}
	}
	return fields, nil
}

// isMapping refuses a node without fields.
func isMapping(n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return nil
	case yaml.AliasNode:
		return badNode(n, "*%s: aliases are not allowed", n.Value)
	}
	return badNode(n, "must be fields with values (name: value)")
}

// decodeValue reads one value. It is stricter than package yaml: null is an error, and a
// duration needs a unit.
func decodeValue(n *yaml.Node, to reflect.Value) error {
	if to.Type() == reflect.TypeFor[yaml.Node]() {
		to.Set(reflect.ValueOf(*n))
		return nil
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return decodeValue(n, to.Elem())
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return errors.New("must be a list, such as [1, 2]")
		}
		to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			if err := decodeValue(item, to.Index(i)); err != nil {
				return &lineError{line: item.Line, err: err}
			}
		}
		return nil
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return errors.New("must be a single value")
	}
	switch v := to.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(n.Value)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s", n.Value)
		}
		*v = d
		return nil
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(n.Value))
	}
	switch to.Kind() {
	case reflect.String:
		to.SetString(n.Value)
	case reflect.Int, reflect.Int64:
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not an integer", n.Value)
		}
		to.SetInt(v)
	case reflect.Float64:
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", n.Value)
		}
		to.SetFloat(v)
	default:
		return fmt.Errorf("no value of type %v can be read", to.Type())
	}
	return nil
}

// YAML returns the composition in the format of [Parse], with all parameters.
func (c Composition) YAML() ([]byte, error) {
	type entry struct {
		Profile  string        `yaml:"profile"`
		Seed     int64         `yaml:"seed"`
		Start    time.Duration `yaml:"start,omitempty"`
		Duration time.Duration `yaml:"duration,omitempty"`
		Pace     *pace.Pace    `yaml:"pace,omitempty"`
	}
	var profiles []*yaml.Node
	for _, p := range c.Parts {
		var head, params yaml.Node
		if err := head.Encode(entry{p.Profile.Name(), p.Seed, p.Start, p.Duration, p.Pace}); err != nil {
			return nil, err
		}
		if err := params.Encode(p.Profile); err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(params.Content); i += 2 {
			if p.Profile.kind.applies(params.Content[i].Value) {
				head.Content = append(head.Content, params.Content[i:i+2]...)
			}
		}
		profiles = append(profiles, &head)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err := enc.Encode(struct {
		Name     string       `yaml:"name,omitempty"`
		Profiles []*yaml.Node `yaml:"profiles"`
		Faults   []fault.Spec `yaml:"faults,omitempty"`
	}{c.Name, profiles, c.Faults})
	return out.Bytes(), errors.Join(err, enc.Close())
}
