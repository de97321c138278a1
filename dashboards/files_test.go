package dashboards

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// TestFiles compares the committed files with the generated ones. With -update it writes them.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run `make dashboards`", name, err)
		}
	}
	for _, pattern := range []string{"json/*", "rules/*.rules.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if files[filepath.ToSlash(name)] == nil {
				t.Errorf("no dashboard generates %s", name)
			}
		}
	}
}

// Files returns the generated files by their path below dashboards/. The tests of package dashboards_test use it, too.
func Files() (map[string][]byte, error) {
	pages, err := all()
	if err != nil {
		return nil, err
	}
	groups, err := rules()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, d := range pages {
		if files["json/"+d.UID+".json"], err = d.encode(); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
	}
	if files["rules/watchlab.rules.yaml"], err = encodeRules(groups); err != nil {
		return nil, err
	}
	files["RUNBOOKS.md"], err = render("runbooks", map[string]any{"Groups": groups, "Pages": pages})
	return files, err
}
