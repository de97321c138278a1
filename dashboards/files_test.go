package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/lab"
)

// TestLateShare: an alert and the colours of a panel have the share of late releases that makes a
// cell invalid.
func TestLateShare(t *testing.T) {
	groups, err := rules()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := all()
	if err != nil {
		t.Fatal(err)
	}
	alerts, panels := 0, 0
	for _, g := range groups {
		for _, r := range g.Rules {
			if r.Alert == "WatchlabGeneratorLate" && r.Expr == fmt.Sprintf("watchlab:generator_late:ratio1m > %g", lab.MaxLateShare) {
				alerts++
			}
		}
	}
	want := []threshold{{lab.MaxLateShare / 2, "orange"}, {lab.MaxLateShare, "red"}}
	for _, d := range pages {
		for _, p := range d.panels() {
			if p.Title == "Late share" && slices.Equal(p.Thresholds, want) {
				panels++
			}
		}
	}
	if alerts != 1 || panels != 1 {
		t.Errorf("%d alerts and %d panels have the lab's %v", alerts, panels, lab.MaxLateShare)
	}
}

// TestFiles compares the committed files with the generated ones.
func TestFiles(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile("../" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run `make dashboards`", name, err)
		}
	}
	for _, pattern := range []string{"json/*", "rules/*.rules.yaml"} {
		found, err := filepath.Glob("../" + deployed + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if files[strings.TrimPrefix(filepath.ToSlash(name), "../")] == nil {
				t.Errorf("no dashboard generates %s", name)
			}
		}
	}
}

// units are the value formats of Grafana that panels use
// (packages/grafana-data/src/valueFormats/categories.ts). Grafana builds those with a prefix.
var units = regexp.MustCompile(`^(none|short|percentunit|s|bytes|Bps|(suffix:|si: ).+)$`)

// TestPanels finds what Grafana accepts but does not show as intended: unknown units, thresholds out of order,
// a sort by no column, and two panels beside each other with one unit but two axes.
func TestPanels(t *testing.T) {
	pages, err := all()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range pages {
		placed := d.Place()
		for i, a := range placed {
			bad := func(what string) { t.Errorf("%s: panel %q: %s", d.UID, a.Title, what) }
			if a.Kind == "" {
				continue // a row
			}
			if !units.MatchString(a.Unit) {
				bad("unit " + a.Unit)
			}
			sorted := a.Sort == ""
			for _, c := range a.Columns {
				sorted = sorted || c.Name == a.Sort
				if c.Unit != "" && !units.MatchString(c.Unit) {
					bad("unit " + c.Unit)
				}
			}
			if !sorted {
				bad("no column " + a.Sort)
			}
			if !slices.IsSortedFunc(a.Thresholds, func(x, y threshold) int { return cmp.Compare(x.From, y.From) }) {
				bad("thresholds out of order")
			}
			for _, b := range placed[i+1:] {
				shared := a.Min != nil && a.Max != nil && b.Min != nil && b.Max != nil && *a.Min == *b.Min && *a.Max == *b.Max && a.Log == b.Log
				if a.Kind == b.Kind && (a.Kind == timeSeries || a.Kind == heatmap) && a.Y == b.Y && a.Unit == b.Unit && !shared {
					bad(fmt.Sprintf("has the unit of %q, and another axis", b.Title))
				}
			}
		}
	}
}
