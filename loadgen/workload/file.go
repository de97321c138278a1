package workload

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	kyaml "sigs.k8s.io/yaml"

	"watchlab/loadgen/manifest"
)

//go:embed builtin
var builtin embed.FS

// Limits of a file, so that a typing error does not fill the memory.
const (
	maxObjects  = 1_000_000
	maxRequests = 10_000_000
	maxTime     = 365 * 24 * time.Hour // so that sums do not overflow
)

// ErrFile is wrapped by the errors for a file that is not a workload.
var ErrFile = errors.New("invalid workload")

// FileError is the error of a file, with its line.
type FileError struct {
	File string
	Line int // from 1; 0 means the whole file
	Err  error
}

func (e *FileError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Names returns the built-in workloads.
func Names() []string {
	files, err := builtin.ReadDir("builtin")
	if err != nil {
		panic(err) // The folder is embedded.
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Read reads a built-in workload or a YAML file:
//
//	objects:
//	- manifest: widget.yaml  # relative to this file; or object: with the object itself
//	  copies: 200            # numbered from 0 in their names; {i} in a string is the number
//	  create: {at: 0s, rate: 50}  # per second; without it they exist before the storm
//	  change:
//	  - {at: 5s, for: 20s, rate: 100, set: {spec.replicas: [1, 3, 5]}, subresource: status}
//	  delete: {at: 30s, rate: 20, share: 0.5, propagation: Foreground}
//
// A change patches a random object, or its subresource, and takes the values of each field in turn; {n} in a
// value is the number of the change, and {now} the time of the request, as in a renewTime. delete deletes a
// random share (default: all). Unknown fields are errors. An error is a [*FileError].
func Read(name string, seed int64) (*Workload, error) {
	if slices.Contains(Names(), name) {
		data, err := builtin.ReadFile("builtin/" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		return parse(name, "", data, seed)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err // The name precedes the message.
		}
		return nil, &FileError{File: name, Err: fmt.Errorf("%w (built in: %s)", err, strings.Join(Names(), ", "))}
	}
	return parse(name, filepath.Dir(name), data, seed)
}

// The form of a file. A node keeps the line of what is checked later.
type (
	fileForm struct {
		Objects []yaml.Node `yaml:"objects"`
	}
	groupForm struct {
		Manifest string      `yaml:"manifest"`
		Object   yaml.Node   `yaml:"object"`
		Copies   *int        `yaml:"copies"`
		Create   *waveForm   `yaml:"create"`
		Change   []yaml.Node `yaml:"change"`
		Delete   *deleteForm `yaml:"delete"`
	}
	waveForm struct {
		At   time.Duration `yaml:"at"`
		Rate float64       `yaml:"rate"`
	}
	changeForm struct {
		waveForm    `yaml:",inline"`
		For         time.Duration        `yaml:"for"`
		Set         map[string]yaml.Node `yaml:"set"`
		Subresource string               `yaml:"subresource"`
	}
	deleteForm struct {
		waveForm    `yaml:",inline"`
		Share       *float64 `yaml:"share"`
		Propagation string   `yaml:"propagation"`
	}
)

func parse(name, dir string, data []byte, seed int64) (*Workload, error) {
	var file fileForm
	err := manifest.CheckAliases(data)
	if err == nil {
		err = strict(data, &file)
	}
	if err != nil {
		return nil, located(name, 0, err)
	}
	if len(file.Objects) == 0 {
		return nil, &FileError{name, 0, fmt.Errorf("%w: objects: it has none", ErrFile)}
	}
	var groups []group
	objects, requests := 0, 0.0
	for i := range file.Objects {
		node := &file.Objects[i]
		g, err := parseGroup(node, dir)
		if err != nil {
			return nil, located(name, node.Line, err)
		}
		objects += len(g.objects) * g.copies
		for _, c := range g.changes {
			requests += c.rate * c.lasts.Seconds()
		}
		if objects > maxObjects || requests > maxRequests {
			return nil, located(name, node.Line, fmt.Errorf("%w: more than %d objects or %d changes", ErrFile, maxObjects, maxRequests))
		}
		groups = append(groups, g)
	}
	return build(name, groups, seed), nil
}

// strict decodes one document, without unknown fields.
func strict(data []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

// node decodes a part of a file. A line in the error counts within the part.
func node(n *yaml.Node, into any) error {
	data, err := yaml.Marshal(n)
	if err == nil {
		err = strict(data, into)
	}
	if err != nil {
		// Lines of the part are not those of the file.
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if _, rest, ok := strings.Cut(text, "line "); ok {
			_, text, _ = strings.Cut(rest, ": ")
		}
		return located("", n.Line, errors.New(strings.TrimSpace(text)))
	}
	return nil
}

// located adds file and line to an error. A line that it has already wins.
func located(file string, line int, err error) error {
	var at *FileError
	if errors.As(err, &at) {
		return &FileError{file, at.Line, at.Err}
	}
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, "yaml: "); ok {
		rest = strings.TrimSpace(strings.TrimPrefix(rest, "unmarshal errors:"))
		var n int
		if _, scan := fmt.Sscanf(rest, "line %d:", &n); scan == nil {
			_, rest, _ = strings.Cut(rest, ": ")
			line = n
		}
		err = errors.New(rest)
	}
	if !errors.Is(err, ErrFile) {
		err = fmt.Errorf("%w: %w", ErrFile, err)
	}
	return &FileError{file, line, err}
}

func parseGroup(n *yaml.Node, dir string) (g group, err error) {
	var f groupForm
	if err := node(n, &f); err != nil {
		return g, err
	}
	bad := func(format string, args ...any) (group, error) { return g, fmt.Errorf(format, args...) }
	g.copies = 1
	if f.Copies != nil {
		if g.copies = *f.Copies; g.copies < 1 || g.copies > maxObjects {
			return bad("copies: %d (allowed: 1 to %d)", g.copies, maxObjects)
		}
	}
	if g.objects, err = f.objects(dir); err != nil {
		return g, err
	}
	if f.Create != nil {
		if g.create, err = f.Create.wave("create"); err != nil {
			return g, err
		}
	}
	for i := range f.Change {
		at := cmp.Or(element(n, "change", i), &f.Change[i]) // the latter has no line of the file
		c, err := parseChange(at)
		if err != nil {
			return g, located("", at.Line, err)
		}
		g.changes = append(g.changes, c)
	}
	if d := f.Delete; d != nil {
		w, err := d.wave("delete")
		if err != nil {
			return g, err
		}
		g.delete = &deletion{*w, 1, d.Propagation}
		if d.Share != nil {
			if g.delete.share = *d.Share; !(*d.Share > 0 && *d.Share <= 1) {
				return bad("delete: share: %v (allowed: above 0, up to 1)", *d.Share)
			}
		}
		if !slices.Contains([]string{"", "Background", "Foreground", "Orphan"}, d.Propagation) {
			return bad("delete: propagation: %q (allowed: Background, Foreground, Orphan)", d.Propagation)
		}
	}
	return g, nil
}

// element is an element of a field's list, or nil if the list is elsewhere.
func element(n *yaml.Node, field string, i int) *yaml.Node {
	for k := 0; k+1 < len(n.Content); k += 2 {
		if list := n.Content[k+1]; n.Content[k].Value == field && i < len(list.Content) {
			return list.Content[i]
		}
	}
	return nil
}

// objects are those of the manifest or of the file itself.
func (f *groupForm) objects(dir string) ([]*unstructured.Unstructured, error) {
	if (f.Manifest == "") == f.Object.IsZero() {
		return nil, errors.New("it needs manifest or object, one of them")
	}
	if f.Manifest == "" {
		var content map[string]any
		if err := decode(&f.Object, &content); err != nil {
			return nil, fmt.Errorf("object: %w", err)
		}
		o := &unstructured.Unstructured{Object: content}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return nil, errors.New("object: it needs apiVersion, kind and metadata.name")
		}
		return []*unstructured.Unstructured{o}, nil
	}
	path := f.Manifest
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	loaded, err := manifest.Load(context.Background(), manifest.Options{Filenames: []string{path}})
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var out []*unstructured.Unstructured
	for _, l := range loaded {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(l.Object)
		if err != nil {
			return nil, fmt.Errorf("manifest: %s:%d: %w", l.Source, l.Line, err)
		}
		o := &unstructured.Unstructured{Object: content}
		o.SetGroupVersionKind(l.Kind)
		out = append(out, o)
	}
	return out, nil
}

func (f *waveForm) wave(field string) (*wave, error) {
	switch {
	case f.At < 0 || f.At > maxTime:
		return nil, fmt.Errorf("%s: at: %v (allowed: 0s to %v)", field, f.At, maxTime)
	case !(f.Rate > 0) || f.Rate > 1e6:
		return nil, fmt.Errorf("%s: rate: %v a second (allowed: above 0, up to 1e6)", field, f.Rate)
	}
	return &wave{f.At, f.Rate}, nil
}

func parseChange(n *yaml.Node) (c change, err error) {
	var f changeForm
	if err := node(n, &f); err != nil {
		return c, err
	}
	w, err := f.wave("change")
	switch {
	case err != nil:
		return c, err
	case f.For <= 0 || f.For > maxTime:
		return c, fmt.Errorf("change: for: %v (allowed: above 0s, up to %v)", f.For, maxTime)
	case len(f.Set) == 0:
		return c, errors.New("change: set: it has no field")
	}
	c = change{wave: *w, lasts: f.For, subresource: f.Subresource}
	for path, value := range f.Set {
		s := setting{path: splitPath(path)}
		if len(s.path) == 0 || slices.Contains(s.path, "") {
			return c, fmt.Errorf("change: set: %q is no path such as spec.replicas", path)
		}
		var v any
		if err := decode(&value, &v); err != nil {
			return c, fmt.Errorf("change: set: %s: %w", path, err)
		}
		if list, ok := v.([]any); ok && len(list) > 0 {
			s.values = list
		} else {
			s.values = []any{v}
		}
		c.set = append(c.set, s)
	}
	slices.SortFunc(c.set, func(a, b setting) int { return slices.Compare(a.path, b.path) })
	return c, nil
}

// splitPath splits a path at its dots. A part in brackets may have dots: metadata.annotations[a.b/c].
func splitPath(path string) (parts []string) {
	path = strings.TrimPrefix(path, ".")
	for path != "" {
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(parts, path)
		}
		if end > 0 {
			parts = append(parts, path[:end])
		}
		if path[end] == '[' {
			inside, rest, ok := strings.Cut(path[end+1:], "]")
			if !ok {
				return append(parts, "")
			}
			parts, path = append(parts, inside), strings.TrimPrefix(rest, ".")
			continue
		}
		if path = path[end+1:]; path == "" || end == 0 {
			return append(parts, "")
		}
	}
	return parts
}

// decode decodes a part of an object as the manifests of a cluster are decoded.
func decode(n *yaml.Node, into any) error {
	data, err := yaml.Marshal(n)
	if err == nil {
		data, err = kyaml.YAMLToJSON(data)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// fill replaces the strings of a value, in a copy.
func fill(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = fill(e, f)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = fill(e, f)
		}
		return out
	}
	return v
}

func replace(s, name string, n int) string {
	return strings.ReplaceAll(s, "{"+name+"}", strconv.Itoa(n))
}
