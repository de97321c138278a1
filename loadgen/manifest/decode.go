package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// document is a part of a file with one object or list.
type document struct {
	data []byte
	line int // number of the first line, from 1
}

// Decode reads the objects of a file in JSON or YAML; see [Load] for the results. source is
// the name in errors. lenient ignores unknown and duplicate fields, as API servers and the
// kubelet do; the last duplicate wins. An empty file is not an error.
func Decode(source string, data []byte, lenient bool) ([]Object, error) {
	docs, err := split(data)
	var errs []error
	if err != nil {
		err.Source = source
		errs = append(errs, err)
	}
	var objects []Object
	for _, d := range docs {
		some, err := d.decode(source, lenient)
		objects = append(objects, some...)
		errs = append(errs, parts(err)...)
	}
	return objects, errors.Join(errs...)
}

// split splits a file into documents. With an error it returns the documents before it.
func split(data []byte) ([]document, *Error) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		docs, err := splitJSON(data)
		// A file that is not JSON from its first value may be YAML in flow style.
		if err == nil || len(docs) > 0 || json.Valid(data) {
			return docs, err
		}
		if docs, yerr := splitYAML(data); yerr == nil && len(docs) > 0 {
			if _, err := yaml.YAMLToJSON(docs[0].data); err == nil {
				return docs, nil
			}
		}
		return nil, err
	}
	return splitYAML(data)
}

// splitJSON splits a sequence of JSON values.
func splitJSON(data []byte) ([]document, *Error) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		before := dec.InputOffset()
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			at := before
			var syntax *json.SyntaxError
			switch {
			case errors.As(err, &syntax):
				at = syntax.Offset - 1
			case errors.Is(err, io.ErrUnexpectedEOF):
				at, err = int64(len(data)), errors.New("the file ends in the middle of an object")
			}
			return docs, &Error{Line: line(data, at), Err: fmt.Errorf("%w: %w", ErrManifest, err)}
		}
		docs = append(docs, document{raw, line(data, dec.InputOffset()-int64(len(raw)))})
	}
}

// line returns the line number of an offset, from 1.
func line(data []byte, at int64) int {
	at = min(max(at, 0), int64(len(data)))
	return 1 + bytes.Count(data[:at], []byte("\n"))
}

// splitYAML splits a file at lines that begin with ---. apimachinery's reader does the same
// but does not return line numbers.
func splitYAML(data []byte) ([]document, *Error) {
	var docs []document
	begin, at, n := 0, 0, 0
	first := 1
	flush := func(end int) {
		if d, ok := content(data[begin:end], first); ok {
			docs = append(docs, d)
		}
	}
	for at < len(data) {
		n++
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if l := data[at:end]; bytes.HasPrefix(l, []byte("---")) {
			rest := strings.TrimSpace(string(l[3:]))
			if rest != "" && !strings.HasPrefix(rest, "#") {
				return docs, &Error{Line: n, Err: fmt.Errorf("%w: a document separator with %q behind it", ErrManifest, rest)}
			}
			flush(at)
			begin, first = end, n+1
		}
		at = end
	}
	flush(len(data))
	return docs, nil
}

// content returns the document from its first line with content. It returns false for an empty
// document.
func content(data []byte, first int) (document, bool) {
	for len(data) > 0 {
		l, rest, _ := bytes.Cut(data, []byte("\n"))
		if t := bytes.TrimSpace(l); len(t) > 0 && t[0] != '#' && t[0] != '%' {
			return document{data, first}, true
		}
		data, first = rest, first+1
	}
	return document{}, false
}

// decode reads the objects of a document.
func (d document) decode(source string, lenient bool) ([]Object, error) {
	fail := func(err error) error { return d.fail(source, err) }
	toJSON := yaml.YAMLToJSONStrict
	if lenient {
		toJSON = yaml.YAMLToJSON
	}
	data, err := toJSON(d.data)
	if err != nil {
		return nil, fail(err)
	}
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	if len(data) == 0 || data[0] != '{' {
		return nil, fail(errors.New("it is not an object"))
	}
	result := resource.NewLocalBuilder().
		Unstructured().
		Stream(bytes.NewReader(data), source).
		ContinueOnError().
		Flatten().
		Do()
	if err := result.Err(); err != nil {
		return nil, fail(err)
	}
	var objects []Object
	var errs []error
	visitor := resource.NewDecoratedVisitor(result, named, typed(lenient))
	err = visitor.Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		objects = append(objects, Object{
			Object: info.Object, Kind: info.Object.GetObjectKind().GroupVersionKind(),
			Namespace: info.Namespace, Name: info.Name,
			Source: source, Line: d.line,
		})
		return nil
	})
	for _, err := range flat(err) {
		errs = append(errs, fail(err))
	}
	return objects, errors.Join(errs...)
}

// flat returns the elements of an aggregated error.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	var agg utilerrors.Aggregate
	if errors.As(err, &agg) {
		return utilerrors.Flatten(agg).Errors()
	}
	return []error{err}
}

// named rejects an object without a name or a version.
func named(info *resource.Info, err error) error {
	if err != nil {
		return err
	}
	if info.Object.GetObjectKind().GroupVersionKind().Version == "" {
		return errors.New("Object 'apiVersion' is missing")
	}
	m, err := meta.Accessor(info.Object)
	if err != nil {
		return err
	}
	if m.GetName() == "" && m.GetGenerateName() == "" {
		return fmt.Errorf("%s: metadata.name is missing", info.Object.GetObjectKind().GroupVersionKind().Kind)
	}
	return nil
}

// typed converts an object to its Go type if client-go has one.
func typed(lenient bool) resource.VisitorFunc {
	return func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		u, ok := info.Object.(*unstructured.Unstructured)
		kind := info.Object.GetObjectKind().GroupVersionKind()
		if !ok || !scheme.Scheme.Recognizes(kind) {
			return nil
		}
		o, err := scheme.Scheme.New(kind)
		if err != nil {
			return err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, !lenient); err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, u.GetName(), err)
		}
		o.GetObjectKind().SetGroupVersionKind(kind)
		info.Object = o
		return nil
	}
}

// yamlLine matches the line number in an error of the YAML parser, relative to the document.
var yamlLine = regexp.MustCompile(`(?:yaml: )?(?:unmarshal errors:\s*)?\bline (\d+): `)

// fail adds a line number to an error: that of the parser, else the document's first line.
func (d document) fail(source string, err error) error {
	text := err.Error()
	for _, noise := range []string{"error converting YAML to JSON: ", "unable to decode " + strconv.Quote(source) + ": ", "error parsing " + source + ": "} {
		text = strings.ReplaceAll(text, noise, "")
	}
	at := d.line
	if m := yamlLine.FindStringSubmatchIndex(text); m != nil {
		if n, aerr := strconv.Atoi(text[m[2]:m[3]]); aerr == nil && n > 0 {
			at = d.line + n - 1
			text = text[:m[0]] + text[m[1]:]
		}
	}
	return &Error{Source: source, Line: at, Err: fmt.Errorf("%w: %s", ErrManifest, strings.TrimPrefix(text, "yaml: "))}
}
