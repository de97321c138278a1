package workload

import (
	"context"
	"embed"
	"errors"
	"fmt"
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
// random share (default: all). Unknown fields are errors. An error is a [*manifest.Error].
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
		return nil, &manifest.Error{Source: name, Err: fmt.Errorf("%w (built in: %s)", err, strings.Join(Names(), ", "))}
	}
	return parse(name, filepath.Dir(name), data, seed)
}

// The form of a file. Nodes are decoded as the manifests of a cluster are.
type (
	fileForm struct {
		Objects []groupForm `yaml:"objects"`
	}
	groupForm struct {
		Manifest string       `yaml:"manifest"`
		Object   yaml.Node    `yaml:"object"`
		Copies   *int         `yaml:"copies"`
		Create   *waveForm    `yaml:"create"`
		Change   []changeForm `yaml:"change"`
		Delete   *deleteForm  `yaml:"delete"`
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
	files, err := manifest.Documents[fileForm](name, ErrFile, data)
	if err != nil {
		return nil, err
	}
	var file yaml.Node // for the lines of what is checked here
	_ = yaml.Unmarshal(data, &file)
	fail := func(err error, path ...any) (*Workload, error) {
		line := 0
		if len(path) > 0 {
			line = find(&file, path...).Line
		}
		return nil, &manifest.Error{Source: name, Line: line, Err: fmt.Errorf("%w: %w", ErrFile, err)}
	}
	switch {
	case len(files) == 0:
		return fail(errors.New("the file is empty"))
	case len(files) > 1:
		return fail(errors.New("more than one document"))
	case len(files[0].Objects) == 0:
		return fail(errors.New("objects: it has none"))
	}
	var groups []group
	objects, requests := 0, 0.0
	for i := range files[0].Objects {
		form := &files[0].Objects[i]
		g, err := form.group(dir)
		if err != nil {
			return fail(err, "objects", i)
		}
		objects += len(g.objects) * g.copies
		for j := range form.Change {
			c, err := form.Change[j].change()
			if err != nil {
				return fail(err, "objects", i, "change", j)
			}
			g.changes = append(g.changes, c)
			requests += c.rate * c.lasts.Seconds()
		}
		if objects > maxObjects || requests > maxRequests {
			return fail(fmt.Errorf("more than %d objects or %d changes", maxObjects, maxRequests), "objects", i)
		}
		groups = append(groups, g)
	}
	return build(name, groups, seed), nil
}

// find returns the node at a path of fields and indexes, or the last node before a missing one.
func find(n *yaml.Node, path ...any) *yaml.Node {
	for n.Kind == yaml.DocumentNode || n.Kind == yaml.AliasNode {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		} else {
			n = n.Content[0]
		}
	}
	if len(path) == 0 {
		return n
	}
	at := -1
	switch key := path[0].(type) {
	case int:
		at = key
	case string:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				at = i + 1
			}
		}
	}
	if at < 0 || at >= len(n.Content) {
		return n
	}
	return find(n.Content[at], path[1:]...)
}

// group returns the group without its changes.
func (f *groupForm) group(dir string) (g group, err error) {
	g.copies = 1
	if f.Copies != nil {
		if g.copies = *f.Copies; g.copies < 1 || g.copies > maxObjects {
			return g, fmt.Errorf("copies: %d (allowed: 1 to %d)", g.copies, maxObjects)
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
	if d := f.Delete; d != nil {
		w, err := d.wave("delete")
		if err != nil {
			return g, err
		}
		g.delete = &deletion{*w, 1, d.Propagation}
		if d.Share != nil {
			if g.delete.share = *d.Share; !(*d.Share > 0 && *d.Share <= 1) {
				return g, fmt.Errorf("delete: share: %v (allowed: above 0, up to 1)", *d.Share)
			}
		}
		if !slices.Contains([]string{"", "Background", "Foreground", "Orphan"}, d.Propagation) {
			return g, fmt.Errorf("delete: propagation: %q (allowed: Background, Foreground, Orphan)", d.Propagation)
		}
	}
	return g, nil
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

func (f *changeForm) change() (c change, err error) {
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
	data, err := yaml.Marshal(find(n))
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
