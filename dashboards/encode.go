package dashboards

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"maps"
	"strconv"
)

// object is a JSON object; encoding/json sorts its keys.
type object = map[string]any

// grafanaJSON has the parts of the JSON that are equal in all dashboards, by kind of
// object.
//
//go:embed grafana.json
var grafanaJSON []byte

// constants returns a copy of the constant part of a kind of object, with more fields.
func constants(of string, more object) object {
	var all map[string]object
	if err := json.Unmarshal(grafanaJSON, &all); err != nil {
		panic(err) // the file is embedded, and tested
	}
	o := all[of]
	maps.Copy(o, more)
	return o
}

// each encodes the elements of a list.
func each[T any](list []T, encode func(T) object) []object {
	out := []object{}
	for _, e := range list {
		out = append(out, encode(e))
	}
	return out
}

// source is the data source that the variable picks.
func source() object { return object{"type": "prometheus", "uid": "${" + datasourceName + "}"} }

// encode returns the JSON that Grafana reads. Equal dashboards give equal bytes.
func (d dashboard) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // < and > of PromQL stay readable
	enc.SetIndent("", "  ")
	err := enc.Encode(constants("dashboard", object{
		"annotations": object{"list": append([]object{constants("alerts", nil)}, each(d.Annotations, annotation.encode)...)},
		"description": d.Description,
		"links":       []object{constants("link", object{"tags": []string{tag}, "title": tag})},
		"panels":      d.place(),
		"refresh":     d.Refresh,
		"tags":        []string{tag},
		"templating":  object{"list": each(d.Variables, variable.encode)},
		"time":        object{"from": d.From, "to": "now"},
		"title":       d.Title,
		"uid":         d.UID,
	}))
	return b.Bytes(), err
}

// place arranges rows below each other, and fills lines of panels from the left.
func (d dashboard) place() []object {
	panels := []object{}
	x, y, tallest := 0, 0, 0
	add := func(o object, width, height int) {
		if x+width > pageColumns {
			x, y, tallest = 0, y+tallest, 0
		}
		o["id"], o["gridPos"] = len(panels)+1, object{"x": x, "y": y, "w": width, "h": height}
		panels = append(panels, o)
		x, tallest = x+width, max(tallest, height)
	}
	for _, r := range d.Rows {
		x, y, tallest = 0, y+tallest, 0
		add(constants("row", object{"title": r.Title}), pageColumns, 1)
		for _, p := range r.Panels {
			add(p.encode(), p.Width, p.Height)
		}
	}
	return panels
}

func (a annotation) encode() object {
	return constants("annotation", object{
		"datasource":  source(),
		"enable":      !a.Off,
		"expr":        a.Expr,
		"iconColor":   a.Color,
		"name":        a.Name,
		"step":        a.Step,
		"textFormat":  a.Text,
		"titleFormat": a.Title,
	})
}

func (v variable) encode() object {
	if v.Query == "" {
		return constants("datasource variable", object{"label": v.Label, "name": v.Name})
	}
	sort := 1 // alphabetical
	if v.Descending {
		sort = 2
	}
	o := constants("query variable", object{
		"datasource":  source(),
		"definition":  v.Query,
		"description": v.Description,
		"includeAll":  v.Multi,
		"label":       v.Label,
		"multi":       v.Multi,
		"name":        v.Name,
		"query":       object{"query": v.Query, "refId": "StandardVariableQuery"},
		"sort":        sort,
	})
	if v.Multi {
		o["allValue"] = ".+" // requires the label
		o["current"] = object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
	}
	return o
}

// refID is the name of a panel's i-th query.
func refID(i int) string { return string(rune('A' + i)) }

func (q query) encode(i int, k kind) object {
	format := "time_series"
	switch {
	case k == table:
		format = "table"
	case q.Rows:
		// Grafana subtracts the cumulative buckets. Before 10.3 it also does so with
		// native histograms, and fails (github.com/grafana/grafana/pull/77289).
		format = "heatmap"
	}
	return object{
		"datasource":   source(),
		"editorMode":   "code",
		"exemplar":     q.Exemplars,
		"expr":         q.Expr,
		"format":       format,
		"instant":      q.Instant,
		"legendFormat": q.Legend,
		"range":        !q.Instant,
		"refId":        refID(i),
	}
}

func (p panel) encode() object {
	targets := []object{}
	for i, q := range p.Queries {
		targets = append(targets, q.encode(i, p.Kind))
	}
	o := constants("panel", object{
		"datasource":      source(),
		"description":     p.Description,
		"fieldConfig":     object{"defaults": p.fields(), "overrides": p.overrides()},
		"options":         p.options(),
		"targets":         targets,
		"title":           p.Title,
		"transformations": p.transformations(),
		"type":            p.Kind,
	})
	if p.Link != "" {
		o["links"] = []object{{
			"targetBlank": false,
			"title":       p.LinkTitle,
			"url":         "/d/" + p.Link + "?${__url_time_range}&${__all_variables}",
		}}
	}
	return o
}

// fields returns the options of all fields of a panel.
func (p panel) fields() object {
	base := "green"
	if len(p.Thresholds) == 0 && p.Kind != timeSeries {
		base = "blue" // without thresholds no value is good or bad
	}
	steps := []object{{"color": base, "value": nil}}
	for _, t := range p.Thresholds {
		steps = append(steps, object{"color": t.Color, "value": t.From})
	}
	mappings, options := []object{}, object{}
	for i, v := range p.Values {
		options[strconv.Itoa(v.Number)] = object{"color": v.Color, "index": i, "text": v.Text}
		mappings = []object{{"type": "value", "options": options}}
	}
	o := constants("fields "+string(p.Kind), object{
		"unit": p.Unit, "mappings": mappings, "thresholds": object{"mode": "absolute", "steps": steps},
	})
	if p.FromZero && !p.Log {
		o["min"] = 0
	}
	if p.Kind != timeSeries {
		return o
	}
	lines := o["custom"].(object)
	if p.Points {
		lines["drawStyle"], lines["showPoints"], lines["fillOpacity"] = "points", "always", 0
	}
	if p.Stacked {
		lines["stacking"].(object)["mode"], lines["fillOpacity"] = "normal", 40
	}
	if len(p.Thresholds) > 0 {
		lines["thresholdsStyle"].(object)["mode"] = "dashed"
	}
	if p.Log {
		lines["scaleDistribution"] = object{"type": "log", "log": 10}
	}
	return o
}

// overrides returns the units of a table's columns.
func (p panel) overrides() []object {
	overrides := []object{}
	for _, c := range p.Columns {
		if c.Unit != "" {
			overrides = append(overrides, object{
				"matcher":    object{"id": "byName", "options": c.Name},
				"properties": []object{{"id": "unit", "value": c.Unit}, {"id": "decimals", "value": c.Decimals}},
			})
		}
	}
	return overrides
}

func (p panel) options() object {
	o := constants("options "+string(p.Kind), nil)
	switch {
	case p.Kind == heatmap:
		o["yAxis"].(object)["unit"] = p.Unit
	case p.Kind == timeSeries && len(p.Calcs) > 0:
		legend := o["legend"].(object)
		legend["calcs"], legend["displayMode"] = p.Calcs, "table"
	}
	return o
}

// transformations merge the queries of a table, and select and order its columns. Other
// panels have none.
func (p panel) transformations() []object {
	if p.Kind != table {
		return []object{}
	}
	index, rename := object{}, object{}
	var names []string
	for i, c := range p.Columns {
		index[c.Field], rename[c.Field] = i, c.Name
		names = append(names, c.Field)
	}
	return []object{
		{"id": "merge", "options": object{}},
		{"id": "filterFieldsByName", "options": object{"include": object{"names": names}}},
		{"id": "organize", "options": object{"excludeByName": object{}, "indexByName": index, "renameByName": rename}},
	}
}
