package main

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sources are the files that the dashboards and rules are generated from.
//
//go:embed common.yaml rules.yaml panels
var sources embed.FS

// decode reads sources, with fragments in all. Later fields and fragments replace earlier ones.
// Unknown ones are errors.
func decode(fsys fs.FS, into any, names ...string) error {
	parts := fragments{}
	texts := make([][]byte, len(names))
	for i, name := range names {
		var err error
		if texts[i], err = fs.ReadFile(fsys, name); err != nil {
			return err
		}
		if err := yaml.Unmarshal(texts[i], &struct{ Fragments fragments }{parts}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for i, name := range names {
		text, err := parts.expand(name, string(texts[i]))
		if err != nil {
			return err
		}
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(into); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// load returns the dashboard of a file. common.yaml has its defaults.
func load(fsys fs.FS, name string) (dashboard, error) {
	var source struct {
		dashboard `yaml:",inline"`
		Fragments fragments
		Offered   []variable // in common.yaml
		Pickers   []string   // the names of the first variables, which are offered
	}
	if err := decode(fsys, &source, "common.yaml", name); err != nil {
		return dashboard{}, err
	}
	var pickers []variable
	for _, picker := range source.Pickers {
		i := slices.IndexFunc(source.Offered, func(v variable) bool { return v.Name == picker })
		if i < 0 {
			return dashboard{}, fmt.Errorf("%s: no picker %q in common.yaml", name, picker)
		}
		pickers = append(pickers, source.Offered[i])
	}
	source.Variables = append(pickers, source.Variables...)
	for _, p := range source.panels() {
		p.setDefaults()
	}
	return source.dashboard, nil
}

// allPages returns the dashboards of panels/.
func allPages() ([]dashboard, error) {
	names, err := fs.Glob(sources, "panels/*.yaml")
	if err != nil {
		return nil, err
	}
	pages := make([]dashboard, len(names))
	for i, name := range names {
		if pages[i], err = load(sources, name); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// panels returns the panels of all rows.
func (d dashboard) panels() (all []*panel) {
	for _, r := range d.Rows {
		for i := range r.Panels {
			all = append(all, &r.Panels[i])
		}
	}
	return all
}

// setDefaults sets the kind and the size.
func (p *panel) setDefaults() {
	p.Kind = cmp.Or(p.Kind, timeSeries)
	width, height := pageColumns/2, 8
	switch {
	case p.Kind == stat:
		width, height = 4, 4
	case p.Kind == heatmap, p.ByVariant(): // a legend of ten lines
		height = 10
	}
	p.Width, p.Height = cmp.Or(p.Width, width), cmp.Or(p.Height, height)
}
