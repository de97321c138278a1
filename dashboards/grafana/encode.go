package grafana

import (
	"strconv"
)

// object is a JSON object; encoding/json sorts its keys.
type object map[string]any

// pluginVersion says by which Grafana's panels the options were written, so that
// no migration from an older form is tried.
const pluginVersion = "9.3.0"

// source is the data source that the variable picks.
func source() object { return object{"type": "prometheus", "uid": "${" + DatasourceName + "}"} }

func (d Dashboard) encode() object {
	variables, annotations, links := []object{}, []object{builtin()}, []object{}
	for _, v := range d.Variables {
		variables = append(variables, v.encode())
	}
	for _, a := range d.Annotations {
		annotations = append(annotations, a.encode())
	}
	for _, l := range d.Links {
		links = append(links, l.encode())
	}
	return object{
		"annotations":          object{"list": annotations},
		"description":          d.Description,
		"editable":             false,
		"fiscalYearStartMonth": 0,
		"graphTooltip":         1,
		"links":                links,
		"liveNow":              false,
		"panels":               d.place(),
		"refresh":              d.Refresh,
		"schemaVersion":        SchemaVersion,
		"style":                "dark",
		"tags":                 d.Tags,
		"templating":           object{"list": variables},
		"time":                 object{"from": d.From, "to": "now"},
		"timepicker":           timepicker(),
		"timezone":             "browser",
		"title":                d.Title,
		"uid":                  d.UID,
		"version":              1,
		"weekStart":            "",
	}
}

func timepicker() object {
	return object{
		"collapse":          false,
		"enable":            true,
		"hidden":            false,
		"refresh_intervals": []string{"5s", "10s", "30s", "1m", "5m"},
		"time_options":      []string{"5m", "15m", "1h", "6h", "24h", "7d", "30d"},
	}
}

// place lays rows out below each other, and the panels of a row from the left, a
// new line where the next doesn't fit.
func (d Dashboard) place() []object {
	panels := []object{}
	id, y := 1, 0
	for _, r := range d.Rows {
		panels = append(panels, object{
			"collapsed": false,
			"gridPos":   position(0, y, Columns, 1),
			"id":        id,
			"panels":    []object{},
			"title":     r.Title,
			"type":      "row",
		})
		id, y = id+1, y+1
		x, tallest := 0, 0
		for _, p := range r.Panels {
			if x+p.Width > Columns {
				x, y, tallest = 0, y+tallest, 0
			}
			o := p.encode()
			o["id"], o["gridPos"] = id, position(x, y, p.Width, p.Height)
			panels = append(panels, o)
			id, x, tallest = id+1, x+p.Width, max(tallest, p.Height)
		}
		y += tallest
	}
	return panels
}

func position(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

// builtin is the annotation of Grafana's own alerts, which every dashboard has.
func builtin() object {
	return object{
		"builtIn":    1,
		"datasource": object{"type": "grafana", "uid": "-- Grafana --"},
		"enable":     true,
		"hide":       true,
		"iconColor":  "rgba(0, 211, 255, 1)",
		"name":       "Annotations & Alerts",
		"showIn":     0,
		"type":       "dashboard",
	}
}

func (a Annotation) encode() object {
	return object{
		"builtIn":         0,
		"datasource":      source(),
		"enable":          !a.Off,
		"expr":            a.Expr,
		"hide":            false,
		"iconColor":       a.Color,
		"name":            a.Name,
		"showIn":          0,
		"step":            a.Step,
		"tagKeys":         "variant,storm",
		"textFormat":      a.Text,
		"titleFormat":     a.Title,
		"type":            "tags",
		"useValueForTime": false,
	}
}

func (l Link) encode() object {
	return object{
		"asDropdown":  true,
		"icon":        "external link",
		"includeVars": true,
		"keepTime":    true,
		"tags":        []string{l.Tag},
		"targetBlank": false,
		"title":       l.Title,
		"tooltip":     "",
		"type":        "dashboards",
		"url":         "",
	}
}

func (v Variable) encode() object {
	if v.Query == "" {
		return object{
			"current":     object{},
			"hide":        0,
			"includeAll":  false,
			"label":       v.Label,
			"multi":       false,
			"name":        v.Name,
			"options":     []object{},
			"query":       "prometheus",
			"refresh":     1,
			"regex":       "",
			"skipUrlSync": false,
			"type":        "datasource",
		}
	}
	sort := 1 // alphabetical
	if v.Descending {
		sort = 2
	}
	o := object{
		"current":     object{},
		"datasource":  source(),
		"definition":  v.Query,
		"description": v.Description,
		"hide":        0,
		"includeAll":  v.Multi,
		"label":       v.Label,
		"multi":       v.Multi,
		"name":        v.Name,
		"options":     []object{},
		"query":       object{"query": v.Query, "refId": "StandardVariableQuery"},
		"refresh":     2,
		"regex":       v.Regex,
		"skipUrlSync": false,
		"sort":        sort,
		"type":        "query",
	}
	if v.Multi {
		o["allValue"] = v.AllValue
		o["current"] = object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
	}
	return o
}

func (q Query) encode(i int, kind Kind) object {
	format := "time_series"
	switch {
	case kind == Table:
		format = "table"
	case q.Rows:
		// Grafana takes the cumulative buckets apart. It would do so with native
		// histograms, too, and fail, before 10.3 (github.com/grafana/grafana/pull/77289).
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

func (p Panel) encode() object {
	targets := []object{}
	for i, q := range p.Queries {
		targets = append(targets, q.encode(i, p.Kind))
	}
	o := object{
		"datasource":      source(),
		"description":     p.Description,
		"fieldConfig":     object{"defaults": p.defaults(), "overrides": p.overrides()},
		"options":         p.options(),
		"pluginVersion":   pluginVersion,
		"repeatDirection": "h",
		"targets":         targets,
		"title":           p.Title,
		"transformations": p.transformations(),
		"transparent":     false,
		"type":            p.Kind,
	}
	if p.Link != "" {
		o["links"] = []object{{
			"targetBlank": false,
			"title":       p.LinkTitle,
			"url":         "/d/" + p.Link + "?${__url_time_range}&${__all_variables}",
		}}
	}
	return o
}

// defaults are the options of all fields of a panel.
func (p Panel) defaults() object {
	o := object{"unit": p.Unit, "mappings": p.mappings(), "thresholds": p.thresholds()}
	if p.Decimals >= 0 {
		o["decimals"] = p.Decimals
	}
	if p.FromZero && !p.Log {
		o["min"] = 0
	}
	hide := object{"legend": false, "tooltip": false, "viz": false}
	switch p.Kind {
	case TimeSeries:
		o["color"] = object{"mode": "palette-classic"}
		o["custom"] = p.lines(hide)
	case StateTimeline:
		o["color"] = object{"mode": "thresholds"}
		o["custom"] = object{"fillOpacity": 70, "hideFrom": hide, "lineWidth": 0}
	case Heatmap:
		o["custom"] = object{"hideFrom": hide, "scaleDistribution": object{"type": "linear"}}
	case Table:
		o["color"] = object{"mode": "thresholds"}
		o["custom"] = object{"align": "auto", "displayMode": "auto", "filterable": true, "inspect": false}
	default:
		o["color"] = object{"mode": "thresholds"}
	}
	return o
}

// lines are the options of a time series.
func (p Panel) lines(hide object) object {
	draw, points, fill := "line", "auto", 10
	if p.Points {
		draw, points, fill = "points", "always", 0
	}
	stacking, thresholds, scale := "none", "off", object{"type": "linear"}
	if p.Stacked {
		stacking, fill = "normal", 40
	}
	if len(p.Thresholds) > 0 {
		thresholds = "dashed"
	}
	if p.Log {
		scale = object{"type": "log", "log": 10}
	}
	return object{
		"axisCenteredZero":  false,
		"axisColorMode":     "text",
		"axisLabel":         "",
		"axisPlacement":     "auto",
		"barAlignment":      0,
		"drawStyle":         draw,
		"fillOpacity":       fill,
		"gradientMode":      "none",
		"hideFrom":          hide,
		"lineInterpolation": "linear",
		"lineWidth":         1,
		"pointSize":         6,
		"scaleDistribution": scale,
		"showPoints":        points,
		"spanNulls":         false,
		"stacking":          object{"group": "A", "mode": stacking},
		"thresholdsStyle":   object{"mode": thresholds},
	}
}

func (p Panel) thresholds() object {
	base := "green"
	if len(p.Thresholds) == 0 && p.Kind != TimeSeries {
		base = "blue" // where nothing is good or bad
	}
	steps := []object{{"color": base, "value": nil}}
	for _, t := range p.Thresholds {
		steps = append(steps, object{"color": t.Color, "value": t.From})
	}
	return object{"mode": "absolute", "steps": steps}
}

func (p Panel) mappings() []object {
	if len(p.Values) == 0 {
		return []object{}
	}
	options := object{}
	for i, v := range p.Values {
		options[strconv.Itoa(v.Number)] = object{"color": v.Color, "index": i, "text": v.Text}
	}
	return []object{{"type": "value", "options": options}}
}

// overrides are the units of a table's columns.
func (p Panel) overrides() []object {
	overrides := []object{}
	for _, c := range p.Columns {
		if c.Unit == "" {
			continue
		}
		overrides = append(overrides, object{
			"matcher":    object{"id": "byName", "options": c.Name},
			"properties": []object{{"id": "unit", "value": c.Unit}, {"id": "decimals", "value": c.Decimals}},
		})
	}
	return overrides
}

// options are those of the panel's kind.
func (p Panel) options() object {
	last := object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}
	switch p.Kind {
	case TimeSeries:
		calcs := p.Calcs
		if calcs == nil {
			calcs = []string{}
		}
		mode := "list"
		if len(calcs) > 0 {
			mode = "table"
		}
		return object{
			"legend":  object{"calcs": calcs, "displayMode": mode, "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	case Stat:
		return object{
			"colorMode":     "value",
			"graphMode":     "area",
			"justifyMode":   "auto",
			"orientation":   "auto",
			"reduceOptions": last,
			"textMode":      "auto",
		}
	case BarGauge:
		return object{
			"displayMode":   "gradient",
			"minVizHeight":  10,
			"minVizWidth":   0,
			"orientation":   "horizontal",
			"reduceOptions": last,
			"showUnfilled":  true,
		}
	case StateTimeline:
		return object{
			"alignValue":  "left",
			"legend":      object{"calcs": []string{}, "displayMode": "list", "placement": "bottom", "showLegend": true},
			"mergeValues": true,
			"rowHeight":   0.85,
			"showValue":   "never",
			"tooltip":     object{"mode": "single", "sort": "none"},
		}
	case Heatmap:
		return object{
			"calculate":  false,
			"cellGap":    1,
			"cellValues": object{"unit": "short"},
			"color": object{
				"exponent": 0.5,
				"fill":     "dark-orange",
				"mode":     "scheme",
				"reverse":  false,
				"scale":    "exponential",
				"scheme":   "Turbo",
				"steps":    64,
			},
			"exemplars":    object{"color": "rgba(255,255,255,0.9)"},
			"filterValues": object{"le": 1e-9},
			"legend":       object{"show": true},
			"rowsFrame":    object{"layout": "auto"},
			"showValue":    "never",
			"tooltip":      object{"show": true, "yHistogram": true},
			"yAxis":        object{"axisPlacement": "left", "reverse": false, "unit": p.Unit},
		}
	default:
		return object{
			"footer":     object{"fields": "", "reducer": []string{"sum"}, "show": false},
			"showHeader": true,
		}
	}
}

// transformations make one table of all queries, with the columns in order and
// nothing else. Other panels have none.
func (p Panel) transformations() []object {
	if p.Kind != Table {
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
