package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Error is a mistake in a file, or in a value that a file may have. It is one line:
//
//	FILE:LINE: FIELD: what
type Error struct {
	File  string // file, URL or [StdinName]; empty if unknown
	Line  int    // line of the mistake if known, else of the document, from 1; 0 means the whole file
	Field string // path of the field, such as storm.nodes or rules.2.change; empty if no single field is wrong
	Err   error  // cause
}

// BadField returns the error of a field; nil for a nil error.
func BadField(field string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Field: field, Err: err}
}

// Bad is [BadField] of a new error.
func Bad(field, format string, args ...any) error {
	return BadField(field, fmt.Errorf(format, args...))
}

// OneOf returns the error for a value that is not allowed.
func OneOf(got string, allowed ...string) error {
	return fmt.Errorf("%q is not one of %s", got, strings.Join(allowed, ", "))
}

func (e *Error) Error() string {
	text := strings.Join(strings.FieldsFunc(e.Err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.File == "" {
		return text
	}
	return position(e.File, e.Line) + ": " + text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Strict decodes one document in YAML or JSON. Unknown and duplicate fields are errors, and so is a second
// document. The error is an [*Error].
func Strict(file string, data []byte, to any) error {
	err := CheckAliases(data)
	if err == nil {
		d := yamlv3.NewDecoder(bytes.NewReader(data))
		if err = d.Decode(new(yamlv3.Node)); err == nil {
			var more yamlv3.Node
			if err = d.Decode(&more); err == nil {
				return &Error{File: file, Line: more.Line, Err: errors.New("more than one document")}
			}
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = yaml.UnmarshalStrict(data, to)
	}
	if err != nil {
		return mistake(file, data, err)
	}
	return nil
}

// StrictAll is [Strict] of each document of a file that has the kind, or none.
func StrictAll[T any](file string, data []byte, kind string) (all []T, err error) {
	docs, bad := splitYAML(data)
	if bad != nil {
		bad.File = file
		return nil, bad
	}
	for _, d := range docs {
		var named metav1.TypeMeta
		if CheckAliases(d.data) == nil && yaml.Unmarshal(d.data, &named) == nil && named.Kind != "" && named.Kind != kind {
			continue
		}
		var v T
		if err := Strict(file, d.data, &v); err != nil {
			at, _ := errors.AsType[*Error](err)
			at.Line += d.line - 1
			return nil, at
		}
		all = append(all, v)
	}
	return all, nil
}

// ReadStrict is [Strict] of a file. It returns the file's text for [Locate].
func ReadStrict(file string, to any) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return data, Strict(file, data, to)
}

// Locate adds the file, and the line of the field in it, to an error that has no file yet.
func Locate(file string, data []byte, err error) error {
	if err == nil {
		return nil
	}
	if unread, ok := errors.AsType[*fs.PathError](err); ok && unread.Path == file {
		return err
	}
	at, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return &Error{File: file, Err: err}
	case at.File != "":
		return at
	}
	return &Error{File: file, Line: Line(data, at.Field), Field: at.Field, Err: at.Err}
}

var (
	yamlLine = regexp.MustCompile(`\bline (\d+): `)
	quoted   = regexp.MustCompile(`"([^"]+)"`)
)

// plainText returns the text of a decoder's error without its prefixes, and the line in it; 0 for none.
func plainText(err error) (text string, line int) {
	text = err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "json: ", "yaml: ", "unmarshal errors:\n  "} {
		text = strings.TrimPrefix(text, prefix)
	}
	if m := yamlLine.FindStringSubmatchIndex(text); m != nil {
		line, _ = strconv.Atoi(text[m[2]:m[3]])
		text = text[:m[0]] + text[m[1]:]
	}
	return text, line
}

// mistake returns the error of a decoder as an [*Error].
func mistake(file string, data []byte, err error) *Error {
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(typed.Value, " ")
		first := root(data)
		at := find(first, first.Line, strings.FieldsFunc(typed.Field, func(r rune) bool { return r == '.' }), cmp.Or(nodeKinds[kind], yamlv3.ScalarNode))
		return &Error{File: file, Line: at.line, Field: typed.Field, Err: fmt.Errorf("%s is not %s", typed.Value, wanted(typed.Type))}
	}
	if _, ok := errors.AsType[*json.UnsupportedValueError](err); ok {
		line := lineOfScalar(root(data), func(n *yamlv3.Node) bool {
			var v float64
			return n.Tag == "!!float" && n.Decode(&v) == nil && (math.IsNaN(v) || math.IsInf(v, 0))
		})
		return &Error{File: file, Line: line, Err: errors.New("a number is not finite")}
	}
	text, line := plainText(err)
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if line == 0 {
			line = lineOfScalar(root(data), func(n *yamlv3.Node) bool { return n.Value == m[1] })
		}
	}
	return &Error{File: file, Line: line, Err: errors.New(text)}
}

// nodeKinds are the kinds of YAML by encoding/json's names of values. Other names are scalars.
var nodeKinds = map[string]yamlv3.Kind{"object": yamlv3.MappingNode, "array": yamlv3.SequenceNode}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "fields with values"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a single value"
	}
	return "a whole number"
}

// root returns the first node of a document; an empty one if the document cannot be parsed.
func root(data []byte) *yamlv3.Node {
	var doc yamlv3.Node
	if yamlv3.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return &yamlv3.Node{}
	}
	return doc.Content[0]
}

// Line returns the line of a field such as storm.nodes or parts.1.rounds, or of the innermost field around it that
// the document has; 0 if it has none.
func Line(data []byte, path string) int {
	return find(root(data), 0, strings.Split(path, "."), 0).line
}

// place is a field in a document, or the innermost field around it.
type place struct {
	line int
	left int  // elements of the path below it
	fits bool // the value has the wanted kind
}

// find returns the field at a path. An element of a list may lack its index, as in paths of encoding/json; then a
// value of the wanted kind wins, 0 for any.
func find(n *yamlv3.Node, line int, path []string, kind yamlv3.Kind) place {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	best := place{line, len(path), kind == 0 || n.Kind == kind}
	if len(path) == 0 {
		if i := slices.IndexFunc(n.Content, func(e *yamlv3.Node) bool { return e.Kind == kind }); !best.fits && n.Kind == yamlv3.SequenceNode && i >= 0 {
			return place{n.Content[i].Line, 0, true}
		}
		return best
	}
	look := func(value *yamlv3.Node, line int, path []string) {
		if p := find(value, line, path, kind); p.left < best.left || p.left == best.left && p.fits && !best.fits {
			best = p
		}
	}
	index, err := strconv.Atoi(path[0])
	switch {
	case n.Kind == yamlv3.SequenceNode && err == nil && index < len(n.Content):
		look(n.Content[index], n.Content[index].Line, path[1:])
	case n.Kind == yamlv3.SequenceNode:
		for _, element := range n.Content {
			look(element, line, path)
		}
	case n.Kind == yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == path[0] {
				look(n.Content[i+1], n.Content[i].Line, path[1:])
			}
		}
	}
	return best
}

// lineOfScalar returns the line of the first wanted key or value; 0 if there is none.
func lineOfScalar(n *yamlv3.Node, wanted func(*yamlv3.Node) bool) int {
	if n.Kind == yamlv3.ScalarNode && wanted(n) {
		return n.Line
	}
	for _, c := range n.Content {
		if line := lineOfScalar(c, wanted); line > 0 {
			return line
		}
	}
	return 0
}
