package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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
	objects, errs := decodeAll(source, data, lenient)
	return objects, errors.Join(errs...)
}

func decodeAll(source string, data []byte, lenient bool) (objects []Object, errs []error) {
	docs, err := split(data)
	if err != nil {
		err.File = source
		errs = append(errs, err)
	}
	for _, d := range docs {
		some, faults := d.decode(source, lenient)
		objects = append(objects, some...)
		for _, err := range faults {
			text, line := plainText(err) // the parser's line; without one, the document's first
			errs = append(errs, &Error{File: source, Line: d.line + max(line-1, 0), Err: fmt.Errorf("%w: %s", ErrManifest, text)})
		}
	}
	return objects, errs
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
	var text []byte
	first, n := 1, 0
	flush := func() {
		if d, ok := content(text, first); ok {
			docs = append(docs, d)
		}
	}
	for l := range bytes.Lines(data) {
		n++
		rest, separator := bytes.CutPrefix(l, []byte("---"))
		if !separator {
			text = append(text, l...)
			continue
		}
		if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
			return docs, &Error{Line: n, Err: fmt.Errorf("%w: a document separator with %q behind it", ErrManifest, rest)}
		}
		flush()
		text, first = nil, n+1
	}
	flush()
	return docs, nil
}

const maxExpanded = 16 << 20 // bytes that aliases may add to a YAML document

// CheckAliases returns an error for YAML that its aliases expand by more than 16 MiB. The parser limits the
// number of expanded values, but not their size: 3 MB of aliases of one long text are 300 GB of JSON.
func CheckAliases(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.Count(data, []byte("*"))*len(data) <= maxExpanded {
		return nil
	}
	var doc yamlv3.Node
	err := yamlv3.Unmarshal(data, &doc)
	if err == nil && expand(&doc, 0, len(data)+maxExpanded) < 0 {
		err = fmt.Errorf("its aliases expand it by more than %d MiB", maxExpanded>>20)
	}
	return err
}

// expand returns how many of left bytes remain beside a node with its aliases expanded, or less than 0.
func expand(n *yamlv3.Node, depth, left int) int {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if left -= len(n.Value) + 1; depth > 10_000 { // the parser's limit, and an alias of itself
		left = -1
	}
	for i := 0; i < len(n.Content) && left >= 0; i++ {
		left = expand(n.Content[i], depth+1, left)
	}
	return left
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

func (d document) decode(source string, lenient bool) (objects []Object, errs []error) {
	toJSON := yaml.YAMLToJSONStrict
	if lenient {
		toJSON = yaml.YAMLToJSON
	}
	if err := CheckAliases(d.data); err != nil {
		return nil, []error{err}
	}
	data, err := toJSON(d.data)
	switch {
	case err != nil:
		return nil, []error{err}
	case bytes.Equal(data, []byte("null")):
		return nil, nil
	case len(data) == 0 || data[0] != '{':
		return nil, []error{errors.New("it is not an object")}
	}
	items, err := flatten(data)
	if err != nil {
		return nil, []error{err}
	}
	for _, item := range items {
		o, err := typed(item, source, d.line, lenient)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		objects = append(objects, o)
	}
	return objects, errs
}

// flatten returns the object of a document, or the items of a list. Those of a list in a list come
// last, as with kubectl.
func flatten(data []byte) ([]runtime.Object, error) {
	first, _, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	// Unstructured objects have any metadata.
	if err := utiljson.Unmarshal(data, &metav1.PartialObjectMetadata{}); err != nil {
		return nil, err
	}
	var objects []runtime.Object
	rest := []runtime.Object{first}
	for len(rest) > 0 {
		o := rest[0]
		rest = rest[1:]
		if !meta.IsListType(o) {
			objects = append(objects, o)
			continue
		}
		items, err := meta.ExtractList(o)
		if err != nil {
			return nil, err
		}
		rest = append(rest, items...)
	}
	return objects, nil
}

// typed converts an object to its Go type if client-go has one. It rejects an object without a
// name, a kind or a version.
func typed(o runtime.Object, source string, line int, lenient bool) (Object, error) {
	kind := o.GetObjectKind().GroupVersionKind()
	switch {
	case kind.Kind == "":
		return Object{}, errors.New("Object 'Kind' is missing")
	case kind.Version == "":
		return Object{}, errors.New("Object 'apiVersion' is missing")
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return Object{}, err
	}
	if m.GetName() == "" && m.GetGenerateName() == "" {
		return Object{}, fmt.Errorf("%s: metadata.name is missing", kind.Kind)
	}
	if u, ok := o.(*unstructured.Unstructured); ok && scheme.Scheme.Recognizes(kind) {
		if o, err = scheme.Scheme.New(kind); err != nil {
			return Object{}, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, !lenient); err != nil {
			return Object{}, fmt.Errorf("%s %s: %w", kind.Kind, m.GetName(), err)
		}
		o.GetObjectKind().SetGroupVersionKind(kind)
	}
	return Object{Object: o, Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName(), Source: source, Line: line}, nil
}
