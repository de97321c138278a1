package storm

import (
	"bytes"
	"cmp"
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

const maxFile = 1 << 20 // largest file in bytes

// FileError is the error of a file, with its line.
type FileError struct {
	File string // name of the file
	Line int    // line of the error, from 1; 0 means the whole file
	Err  error  // cause
}

// Error returns one line such as
//
//	storm black-friday.yaml: line 7: profile nodeloss: lost: 1.5 (allowed: above 0, up to 1)
func (e *FileError) Error() string {
	text := Printable(e.Err.Error())
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return fmt.Sprintf("storm %s: %s", Printable(e.File), text)
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// ErrFile is wrapped by the errors for files that are not a composition: invalid YAML, unknown
// fields, values of the wrong type.
var ErrFile = errors.New("invalid file")

// Printable quotes a text that would not be one line of printable characters, such as an error with
// a part of a file.
func Printable(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
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
	var at *FileError
	if !errors.As(err, &at) {
		at = &FileError{Err: err}
	}
	at.File = file
	return Composition{}, at
}

func badNode(n *yaml.Node, format string, args ...any) error {
	return &FileError{Line: n.Line, Err: invalid(format, args...)}
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
		Name     string      `yaml:"name"`
		Seed     *int64      `yaml:"seed"`
		Profiles []yaml.Node `yaml:"profiles"`
		Faults   []yaml.Node `yaml:"faults"`
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
	if n := len(head.Profiles); n == 0 || n > MaxParts {
		return Composition{}, badNode(cmp.Or(fields["profiles"], root), "profiles: %d entries (allowed: 1 to %d)", n, MaxParts)
	}
	for i := range head.Profiles {
		p, err := parsePart(&head.Profiles[i], seed)
		if err != nil {
			return Composition{}, err
		}
		c.Parts = append(c.Parts, p)
	}
	for i := range head.Faults {
		n := &head.Faults[i]
		var spec fault.Spec
		if _, err := decode(n, nil, &spec); err != nil {
			return Composition{}, err
		}
		if err := spec.Validate(); err != nil {
			return Composition{}, &FileError{Line: n.Line, Err: err}
		}
		c.Faults = append(c.Faults, spec)
	}
	return c, nil
}

// yamlLine matches the line number in an error of package yaml.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): (?s:(.*))$`)

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

// syntax returns an error of package yaml with its line.
func syntax(err error) error {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if line, numErr := strconv.Atoi(m[1]); numErr == nil {
			return &FileError{Line: line, Err: invalid("%s", m[2])}
		}
	}
	return invalid("%s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// partHead has the common fields of an entry. Nodes and Pods are also parameters, but other
// parameters scale with them.
type partHead struct {
	Profile  string        `yaml:"profile"`
	Seed     *int64        `yaml:"seed"`
	Start    time.Duration `yaml:"start,omitempty"`
	Duration time.Duration `yaml:"duration,omitempty"`
	Pace     *pace.Pace    `yaml:"pace,omitempty"`
	Nodes    int           `yaml:"nodes,omitempty"`
	Pods     int           `yaml:"pods,omitempty"`
	Scale    float64       `yaml:"scale,omitempty"`
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
		return Part{}, &FileError{Line: name.Line, Err: err}
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
	within := func(name string, value any, allowed string) {
		if fields[name] != nil {
			c.within(name, value, allowed)
		}
	}
	within("nodes", head.Nodes, "1 to 1000000")
	within("pods", head.Pods, "0 to 5000000")
	within("scale", head.Scale, "above 0, up to 1000000")
	if err = c.err; err == nil {
		// The size comes first: it changes other parameters, which the file may override.
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
		at = cmp.Or(fields[param.Param], n)
	}
	return Part{}, &FileError{Line: at.Line, Err: err}
}

// decode stores the values of a mapping in structs and returns the value of each field. Each key
// must be a field of one of the structs. With a kind, the field must also apply to that profile.
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
		if value.Tag == "!!null" {
			return nil, badNode(value, "%s: no value", key.Value)
		}
		for _, to := range targets[key.Value] {
			if n := fraction(value, to.Type()); n != nil {
				return nil, badNode(n, "%s: must be %s", key.Value, nounOf(to.Type()))
			}
			err := value.Decode(to.Addr().Interface())
			var wrong *yaml.TypeError
			switch {
			case errors.As(err, &wrong):
				at := *value
				if m := yamlLine.FindStringSubmatch(wrong.Errors[0]); m != nil {
					at.Line, _ = strconv.Atoi(m[1]) // The expression matches a number.
				}
				return nil, badNode(&at, "%s: must be %s", key.Value, nounOf(to.Type()))
			case err != nil:
				return nil, badNode(value, "%s: %v", key.Value, err)
			}
		}
	}
	return fields, nil
}

// fraction returns a number with a fraction in place of an integer, which package yaml would
// truncate; nil if there is none.
func fraction(n *yaml.Node, to reflect.Type) *yaml.Node {
	for to.Kind() == reflect.Pointer || to.Kind() == reflect.Slice {
		to = to.Elem()
	}
	for _, item := range append(n.Content, n) {
		if (to.Kind() == reflect.Int || to.Kind() == reflect.Int64) && item.ShortTag() == "!!float" {
			return item
		}
	}
	return nil
}

func nounOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s"
	case t.Kind() == reflect.Pointer:
		return nounOf(t.Elem())
	case t == reflect.TypeFor[[]int]():
		return "a list of integers such as [1, 2]"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "an integer"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "a single value"
}

func isMapping(n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return nil
	case yaml.AliasNode:
		return badNode(n, "*%s: aliases are not allowed", n.Value)
	}
	return badNode(n, "must be fields with values (name: value)")
}

// YAML returns the composition in the format of [Parse], with all parameters.
func (c Composition) YAML() ([]byte, error) {
	var profiles []*yaml.Node
	for _, p := range c.Parts {
		var head, params yaml.Node
		if err := head.Encode(partHead{Profile: p.Profile.Name(), Seed: &p.Seed, Start: p.Start, Duration: p.Duration, Pace: p.Pace}); err != nil {
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
