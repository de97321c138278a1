package workload

import (
	"context"
	"embed"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

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

// Names returns the built-in workloads.
func Names() []string { return manifest.BuiltIn(builtin, "builtin/*.yaml") }

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
// A change patches a random object, or its subresource, for a time; without one, as of heartbeats, it patches them in turn
// until the play ends. It takes the values of each field in turn; {n} in a
// value is the number of the change, and {now} the time of the request, as in a renewTime. A field may be in an item of a
// list of the object, as in spec.template.spec.containers[0].image. delete deletes a random share (default: all).
// Unknown fields are errors. An error is a [*manifest.Error].
func Read(name string, seed int64) (*Workload, error) {
	dir := ""
	data, err := builtin.ReadFile("builtin/" + name + ".yaml")
	if err != nil {
		dir = filepath.Dir(name)
		data, err = os.ReadFile(name)
	}
	if p, ok := errors.AsType[*os.PathError](err); ok { // The name precedes the message.
		return nil, &manifest.Error{File: name, Err: fmt.Errorf("%w (built in: %s)", p.Err, strings.Join(Names(), ", "))}
	}
	return parse(name, dir, data, seed)
}

// The form of a file.
type (
	fileForm struct {
		Objects []groupForm `json:"objects"`
	}
	groupForm struct {
		Manifest string             `json:"manifest"`
		Object   stdjson.RawMessage `json:"object"`
		Copies   *int               `json:"copies"`
		Create   *waveForm          `json:"create"`
		Change   []changeForm       `json:"change"`
		Delete   *deleteForm        `json:"delete"`
	}
	waveForm struct {
		At   metav1.Duration `json:"at"`
		Rate float64         `json:"rate"`
	}
	changeForm struct {
		waveForm
		For         *metav1.Duration              `json:"for"`
		Set         map[string]stdjson.RawMessage `json:"set"`
		Subresource string                        `json:"subresource"`
	}
	deleteForm struct {
		waveForm
		Share       *float64 `json:"share"`
		Propagation string   `json:"propagation"`
	}
)

func parse(name, dir string, data []byte, seed int64) (*Workload, error) {
	var file fileForm
	if err := manifest.Strict(name, data, &file); err != nil {
		return nil, err
	}
	groups, err := file.groups(dir)
	if err != nil {
		return nil, manifest.Locate(name, data, err)
	}
	return build(name, groups, seed), nil
}

// groups checks the form. The error is a [*manifest.Error] of a field.
func (f *fileForm) groups(dir string) (groups []group, err error) {
	if len(f.Objects) == 0 {
		return nil, manifest.BadField("objects", errors.New("it has none"))
	}
	objects, requests := 0, 0.0
	for i := range f.Objects {
		path := fmt.Sprintf("objects.%d", i)
		g, err := f.Objects[i].group(path, dir)
		if err != nil {
			return nil, err
		}
		objects += len(g.objects) * g.copies
		for _, c := range g.changes {
			requests += c.rate * c.lasts.Seconds()
		}
		if objects > maxObjects || requests > maxRequests {
			return nil, manifest.BadField(path, fmt.Errorf("more than %d objects or %d changes", maxObjects, maxRequests))
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// bad returns the error of a field.
func bad(field, format string, args ...any) error {
	return manifest.BadField(field, fmt.Errorf(format, args...))
}

func (f *groupForm) group(path, dir string) (g group, err error) {
	g.copies = 1
	if f.Copies != nil {
		if g.copies = *f.Copies; g.copies < 1 || g.copies > maxObjects {
			return g, bad(path+".copies", "%d (allowed: 1 to %d)", g.copies, maxObjects)
		}
	}
	if g.objects, err = f.objects(path, dir); err != nil {
		return g, err
	}
	if f.Create != nil {
		if g.create, err = f.Create.wave(path + ".create"); err != nil {
			return g, err
		}
	}
	for i := range f.Change {
		c, err := f.Change[i].change(fmt.Sprintf("%s.change.%d", path, i))
		if err != nil {
			return g, err
		}
		for _, o := range g.objects {
			for _, s := range c.set {
				if _, err := inList(o.Object, s.path); err != nil {
					return g, bad(fmt.Sprintf("%s.change.%d.set", path, i), "%w", err)
				}
			}
		}
		g.changes = append(g.changes, c)
	}
	if d := f.Delete; d != nil {
		w, err := d.wave(path + ".delete")
		if err != nil {
			return g, err
		}
		g.delete = &deletion{*w, 1, d.Propagation}
		if d.Share != nil {
			if g.delete.share = *d.Share; !(*d.Share > 0 && *d.Share <= 1) {
				return g, bad(path+".delete.share", "%v (allowed: above 0, up to 1)", *d.Share)
			}
		}
		if !slices.Contains([]string{"", "Background", "Foreground", "Orphan"}, d.Propagation) {
			return g, bad(path+".delete.propagation", "%q (allowed: Background, Foreground, Orphan)", d.Propagation)
		}
	}
	return g, nil
}

// objects are those of the manifest or of the file itself.
func (f *groupForm) objects(path, dir string) ([]*unstructured.Unstructured, error) {
	if (f.Manifest == "") == (f.Object == nil) {
		return nil, bad(path, "it needs manifest or object, one of them")
	}
	if f.Manifest == "" {
		var content map[string]any
		if err := json.Unmarshal(f.Object, &content); err != nil {
			return nil, bad(path+".object", "it has no fields with values")
		}
		o := &unstructured.Unstructured{Object: content}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return nil, bad(path+".object", "it needs apiVersion, kind and metadata.name")
		}
		return []*unstructured.Unstructured{o}, nil
	}
	file := f.Manifest
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	loaded, err := manifest.Load(context.Background(), manifest.Options{Filenames: []string{file}})
	if err != nil {
		return nil, bad(path+".manifest", "%v", err) // The file of err is another one.
	}
	var out []*unstructured.Unstructured
	for _, l := range loaded {
		o, err := l.Unstructured()
		if err != nil {
			return nil, bad(path+".manifest", "%s:%d: %w", l.Source, l.Line, err)
		}
		out = append(out, o)
	}
	return out, nil
}

func (f *waveForm) wave(path string) (*wave, error) {
	switch {
	case f.At.Duration < 0 || f.At.Duration > maxTime:
		return nil, bad(path+".at", "%v (allowed: 0s to %v)", f.At.Duration, maxTime)
	case !(f.Rate > 0) || f.Rate > 1e6:
		return nil, bad(path+".rate", "%v a second (allowed: above 0, up to 1e6)", f.Rate)
	}
	return &wave{f.At.Duration, f.Rate}, nil
}

func (f *changeForm) change(path string) (c change, err error) {
	w, err := f.wave(path)
	switch {
	case err != nil:
		return c, err
	case f.For != nil && (f.For.Duration <= 0 || f.For.Duration > maxTime):
		return c, bad(path+".for", "%v (allowed: above 0s, up to %v; without it until the play ends)", f.For.Duration, maxTime)
	case len(f.Set) == 0:
		return c, bad(path+".set", "it has no field")
	}
	c = change{wave: *w, subresource: f.Subresource}
	if f.For != nil {
		c.lasts = f.For.Duration
	}
	for _, field := range slices.Sorted(maps.Keys(f.Set)) {
		s := setting{path: splitPath(field)}
		if len(s.path) == 0 || slices.Contains(s.path, "") {
			return c, bad(path+".set", "%q is no path such as spec.replicas", field)
		}
		var v any
		if err := json.Unmarshal(f.Set[field], &v); err != nil {
			return c, bad(path+".set", "%s: %w", field, err)
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

// Fill replaces the strings of a value, in a copy.
func Fill(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = Fill(e, f)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Fill(e, f)
		}
		return out
	}
	return v
}

func replace(s, name string, n int) string {
	return strings.ReplaceAll(s, "{"+name+"}", strconv.Itoa(n))
}
