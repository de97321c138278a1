package workload

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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

func parse(name, dir string, data []byte, seed int64) (*Workload, error) {
	var file struct {
		Objects []group `json:"objects"`
	}
	if err := manifest.Strict(name, data, &file); err != nil {
		return nil, err
	}
	if err := check(file.Objects, dir); err != nil {
		return nil, manifest.Locate(name, data, err)
	}
	return build(name, file.Objects, seed), nil
}

// check checks and completes the groups of a file. The error is a [*manifest.Error] of a field.
func check(groups []group, dir string) error {
	if len(groups) == 0 {
		return bad("objects", "it has none")
	}
	objects, requests := 0, 0.0
	for i := range groups {
		g, path := &groups[i], fmt.Sprintf("objects.%d", i)
		if err := g.complete(path, dir); err != nil {
			return err
		}
		objects += len(g.objects) * *g.Copies
		for _, c := range g.Change {
			requests += c.Rate * c.lasts().Seconds()
		}
		if objects > maxObjects || requests > maxRequests {
			return bad(path, "more than %d objects or %d changes", maxObjects, maxRequests)
		}
	}
	return nil
}

// bad returns the error of a field.
func bad(field, format string, args ...any) error {
	return manifest.BadField(field, fmt.Errorf(format, args...))
}

func (g *group) complete(path, dir string) (err error) {
	if g.Copies = cmp.Or(g.Copies, new(1)); *g.Copies < 1 || *g.Copies > maxObjects {
		return bad(path+".copies", "%d (allowed: 1 to %d)", *g.Copies, maxObjects)
	}
	if g.objects, err = g.read(path, dir); err != nil {
		return err
	}
	if g.Create != nil {
		if err := g.Create.check(path + ".create"); err != nil {
			return err
		}
	}
	for i := range g.Change {
		c, path := &g.Change[i], fmt.Sprintf("%s.change.%d", path, i)
		if err := c.complete(path); err != nil {
			return err
		}
		for _, o := range g.objects {
			for _, s := range c.settings {
				if _, err := inList(o.Object, s.path); err != nil {
					return bad(path+".set", "%w", err)
				}
			}
		}
	}
	if d := g.Delete; d != nil {
		d.Share = cmp.Or(d.Share, new(1.0))
		switch err := d.check(path + ".delete"); {
		case err != nil:
			return err
		case !(*d.Share > 0 && *d.Share <= 1):
			return bad(path+".delete.share", "%v (allowed: above 0, up to 1)", *d.Share)
		case !slices.Contains([]string{"", "Background", "Foreground", "Orphan"}, d.Propagation):
			return bad(path+".delete.propagation", "%q (allowed: Background, Foreground, Orphan)", d.Propagation)
		}
	}
	return nil
}

// read returns the objects of the manifest or of the file itself.
func (g *group) read(path, dir string) ([]*unstructured.Unstructured, error) {
	if (g.Manifest == "") == (g.Object == nil) {
		return nil, bad(path, "it needs manifest or object, one of them")
	}
	if g.Manifest == "" {
		var content map[string]any
		if err := json.Unmarshal(g.Object, &content); err != nil {
			return nil, bad(path+".object", "it has no fields with values")
		}
		o := &unstructured.Unstructured{Object: content}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return nil, bad(path+".object", "it needs apiVersion, kind and metadata.name")
		}
		return []*unstructured.Unstructured{o}, nil
	}
	file := g.Manifest
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

func (w *wave) check(path string) error {
	switch {
	case w.At.Duration < 0 || w.At.Duration > maxTime:
		return bad(path+".at", "%v (allowed: 0s to %v)", w.At.Duration, maxTime)
	case !(w.Rate > 0) || w.Rate > 1e6:
		return bad(path+".rate", "%v a second (allowed: above 0, up to 1e6)", w.Rate)
	}
	return nil
}

func (c *change) complete(path string) error {
	switch err := c.check(path); {
	case err != nil:
		return err
	case c.For != nil && (c.For.Duration <= 0 || c.For.Duration > maxTime):
		return bad(path+".for", "%v (allowed: above 0s, up to %v; without it until the play ends)", c.For.Duration, maxTime)
	case len(c.Set) == 0:
		return bad(path+".set", "it has no field")
	}
	for _, field := range slices.Sorted(maps.Keys(c.Set)) {
		s := setting{path: splitPath(field)}
		if len(s.path) == 0 || slices.Contains(s.path, "") {
			return bad(path+".set", "%q is no path such as spec.replicas", field)
		}
		var v any
		if err := json.Unmarshal(c.Set[field], &v); err != nil {
			return bad(path+".set", "%s: %w", field, err)
		}
		if list, ok := v.([]any); ok && len(list) > 0 {
			s.values = list
		} else {
			s.values = []any{v}
		}
		c.settings = append(c.settings, s)
	}
	slices.SortFunc(c.settings, func(a, b setting) int { return slices.Compare(a.path, b.path) })
	return nil
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
