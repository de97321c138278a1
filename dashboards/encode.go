package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// templates make Grafana's JSON of a dashboard, and the runbooks of the rules.
//
//go:embed *.tmpl
var templates embed.FS

// render executes a template.
func render(name string, data any) ([]byte, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
		"refID":   func(i int) string { return string(rune('A' + i)) }, // name of a panel's i-th query
		"number":  func(i int) int { return i + 1 },
		"colours": colours,
	}).ParseFS(templates, "*.tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// encode returns the JSON that Grafana reads, with sorted keys. Equal dashboards give equal bytes.
func (d dashboard) encode() ([]byte, error) {
	text, err := render("dashboard", d)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // < and > of PromQL stay readable
	enc.SetIndent("", "  ")
	err = enc.Encode(object)
	return b.Bytes(), err
}

// placed is a panel, or the heading of a row, with its place in the grid.
type placed struct {
	panel
	ID, X, Y int
}

// Place arranges rows below each other, and fills lines of panels from the left.
func (d dashboard) Place() []placed {
	var all []placed
	x, y, tallest := 0, 0, 0
	add := func(p panel) {
		if x+p.Width > pageColumns {
			x, y, tallest = 0, y+tallest, 0
		}
		all = append(all, placed{p, len(all) + 1, x, y})
		x, tallest = x+p.Width, max(tallest, p.Height)
	}
	for _, r := range d.Rows {
		x, y, tallest = 0, y+tallest, 0
		add(panel{Title: r.Title, Width: pageColumns, Height: 1})
		for _, p := range r.Panels {
			add(p)
		}
	}
	return all
}
