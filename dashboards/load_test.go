package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestLoad: a file replaces what common.yaml has, and mistakes are errors with the name of the file.
func TestLoad(t *testing.T) {
	const common = `
from: now-15m
refresh: 5s
fragments:
  run: run=~"$run"
  picked: <<run>>,family=~"$family"
offered:
- {name: run, query: 'label_values(x{<<run>>}, run)'}
annotations:
- {name: Marks, expr: 'x{<<picked>>}'}
`
	const own = `
title: A page
refresh: 1m
fragments:
  picked: <<run>>,storm=~"$storm"
  rate: rate(%s[1m])
pickers: [run]
variables:
- name: storm
rows:
- title: row
  panels:
  - title: panel
    queries:
    - expr: <<mean rate "m" picked "storm">>
`
	fsys := func(own string) fstest.MapFS {
		return fstest.MapFS{"common.yaml": {Data: []byte(common)}, "own.yaml": {Data: []byte(own)}}
	}
	d, err := load(fsys(own), "own.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := d.Rows[0].Panels[0]
	for _, tt := range []struct{ name, got, want string }{
		{"from", d.From, "now-15m"},
		{"refresh", d.Refresh, "1m"},
		{"annotation", d.Annotations[0].Expr, `x{run=~"$run",storm=~"$storm"}`},
		{"variables", d.Variables[0].Query + " " + d.Variables[1].Name, `label_values(x{run=~"$run"}, run) storm`},
		{"kind", string(p.Kind), "timeseries"},
		{"expr", p.Queries[0].Expr, `(histogram_sum(sum by (storm) (rate(m{run=~"$run",storm=~"$storm"}[1m]))) / histogram_count(sum by (storm) (rate(m{run=~"$run",storm=~"$storm"}[1m]))) or sum by (storm) (rate(m_sum{run=~"$run",storm=~"$storm"}[1m])) / sum by (storm) (rate(m_count{run=~"$run",storm=~"$storm"}[1m]))) >= 0`},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
	for _, tt := range []struct{ old, new, want string }{
		{"refresh:", "refreshes:", "field refreshes not found"},
		{"expr:", "promql:", "field promql not found"},
		{"<<mean", "<<quentile", `own.yaml:15: function "quentile" not defined`},
		{`"m" picked`, `"m" pickled`, `own.yaml:15: function "pickled" not defined`},
		{"pickers: [run]", "pickers: [ruin]", `no picker "ruin"`},
	} {
		_, err := load(fsys(strings.Replace(own, tt.old, tt.new, 1)), "own.yaml")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "own.yaml") {
			t.Errorf("%s: got %v, want %s", tt.new, err, tt.want)
		}
	}
}
