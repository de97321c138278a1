// Package grafana is as much of Grafana's dashboard JSON as our dashboards need:
// a typed model that encodes to what Grafana 9.3 (schemaVersion 37) and later
// read.
//
// The names and values follow Grafana's schema of a dashboard
// (kinds/structured/dashboard/dashboard_kind.cue of github.com/grafana/grafana,
// 9.3) and of the panels timeseries, stat, bargauge, heatmap, state-timeline and
// table (panelcfg.cue of each). Grafana's own Go model of it, the foundation SDK, is
// no module of a registry. Its TypeScript types are: bench/e2e/dashboards compiles against
// them what this package encodes.
//
//  1. A [Dashboard] has rows of panels. Where a panel stands follows from its
//     width: a row is filled from the left, 24 columns wide.
//  2. A [Panel] is of a [Kind] and has queries. All of them ask the data source
//     that the variable [DatasourceName] picks.
//  3. [Dashboard.Encode] makes the JSON. The same dashboard always gives the
//     same bytes, so that what is generated can be committed and compared.
//
// [Dashboard.Check] finds what would encode but not work: a query without an
// expression, a panel that is wider than the page, two queries of one name.
package grafana

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// SchemaVersion is that of Grafana 9.3. Later ones migrate it when they load it.
const SchemaVersion = 37

// DatasourceName is the name of the variable that picks the data source.
const DatasourceName = "datasource"

// Columns is how wide a page is.
const Columns = 24

// ErrInvalid is wrapped by what [Dashboard.Check] finds.
var ErrInvalid = errors.New("not a dashboard that Grafana could show")

// Dashboard is a page.
type Dashboard struct {
	UID         string
	Title       string
	Description string
	Tags        []string

	From string

	Refresh     string
	Variables   []Variable
	Annotations []Annotation
	Links       []Link
	Rows        []Row
}

// Row is a heading with panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

// Link leads to other dashboards, with the time range and the variables.
type Link struct {
	Title string

	Tag string
}

// Annotation marks times in all time series of a dashboard.
type Annotation struct {
	Name  string
	Color string

	Expr string

	Title, Text string

	Step string

	Off bool
}

// Variable is a picker at the top of a dashboard.
type Variable struct {
	Name, Label, Description string

	Query string

	Multi bool

	AllValue string

	Regex string

	Descending bool
}

// Panels are all panels of the rows, in order.
func (d Dashboard) Panels() []Panel {
	var panels []Panel
	for _, r := range d.Rows {
		panels = append(panels, r.Panels...)
	}
	return panels
}

// Check returns all that Grafana would take but not show, or not as meant. The
// errors wrap [ErrInvalid].
func (d Dashboard) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: %s", ErrInvalid, d.UID, fmt.Sprintf(format, args...)))
	}
	if n := len(d.UID); n < 8 || n > 40 {
		bad("a uid of %d letters", n)
	}
	if d.Title == "" || d.Description == "" {
		bad("no title, or no description")
	}
	names := map[string]bool{}
	for _, v := range d.Variables {
		if v.Name == "" || names[v.Name] {
			bad("variable %q: no name of its own", v.Name)
		}
		names[v.Name] = true
		if v.Multi && v.AllValue == "" {
			bad("variable %s: All matches nothing", v.Name)
		}
	}
	for _, a := range d.Annotations {
		if a.Name == "" || a.Expr == "" || a.Step == "" {
			bad("annotation %q: no name, expression or step", a.Name)
		}
	}
	titles := map[string]bool{}
	for _, r := range d.Rows {
		if r.Title == "" || len(r.Panels) == 0 {
			bad("row %q: no title, or no panels", r.Title)
		}
		for _, p := range r.Panels {
			for _, why := range p.check() {
				bad("panel %q: %s", p.Title, why)
			}
			if titles[p.Title] {
				bad("panel %q: a second one of that title", p.Title)
			}
			titles[p.Title] = true
		}
	}
	return errors.Join(errs...)
}

// Encode returns the dashboard as Grafana reads it, indented. It fails where Check
// does.
func (d Dashboard) Encode() ([]byte, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // < and > of PromQL stay readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(d.encode()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
