package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

const nasty = `<script>alert("x")</script> & 'y'`

// charts returns one chart of each kind with all options, and names that contain markup.
func charts() map[string]chart {
	a := axis{label: nasty, format: plain}
	named, logs := chartRow{name: nasty, note: nasty}, axis{label: nasty, log: true, format: plain}
	quantiles := []string{"p50", "p99", "max"}
	return map[string]chart{
		"lines": lineChart{x: a, y: axis{label: "y", log: true, format: plain}, curves: []curve{
			{name: nasty, path: true, area: true, points: []point{{x: 1, y: 10, mark: true, tip: nasty, lo: 5, hi: 20}, {x: 2, y: 0}, {x: 3, y: 1000, mark: true}}},
			{name: "b", style: style{slot: 13, dashed: true}, path: true, step: true, points: []point{{x: 1, y: math.NaN()}, {x: 2, y: 7, mark: true}}},
			{name: "backdrop", background: true, area: true, points: []point{{x: 1, y: 1}, {x: 2, y: 2}}},
		}, rules: []rule{{at: 100, label: nasty}, {vertical: true, at: 2, series: nasty}}},
		"bars": rowChart{axis: a, columns: barColumns(a), rows: []chartRow{
			barRow(named, a, []float64{8, 9, 10, 10, 11, 12}, nasty),
			barRow(chartRow{name: "without", note: "invalid: lost"}, a, nil, ""),
		}},
		"ranges": rowChart{axis: logs, columns: quantiles, rows: []chartRow{
			quantileRow(named, logs, quantiles, []float64{1, math.NaN(), 1000}), quantileRow(chartRow{name: "b"}, logs, quantiles, nil),
		}},
		"shares": rowChart{columns: []string{nasty, "b", "sum"}, rows: []chartRow{
			shareRow(named, []string{nasty, "b"}, []float64{3, 1}, plain), shareRow(chartRow{name: "none"}, []string{nasty, "b"}, []float64{0, 0}, plain),
		}},
	}
}

// TestSVG checks that each picture is well-formed XML, has a name, and escapes its texts.
func TestSVG(t *testing.T) {
	for name, c := range charts() {
		t.Run(name, func(t *testing.T) {
			text, ok := drawSVG(c, "an-id", nasty, nasty)
			svg := string(text)
			d := xml.NewDecoder(strings.NewReader(svg))
			elements := map[string]int{}
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%v in %s", err, svg)
				}
				if start, ok := token.(xml.StartElement); ok {
					elements[start.Name.Local]++
				}
			}
			if elements["svg"] != 1 || elements["script"] > 0 {
				t.Errorf("elements %v", elements)
			}
			for _, want := range []string{`role="img"`, `aria-labelledby="an-id-t an-id-d"`, `<title id="an-id-t">`, `class="pt"`} {
				if !strings.Contains(svg, want) && (want != `class="pt"` || !strings.Contains(svg, ` pt"`)) {
					t.Errorf("%s is not in %s", want, svg)
				}
			}
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("a coordinate that is not a number in %s", svg)
			}
			if !ok {
				t.Error("has no figure")
			}
			table := c.table()
			for _, row := range table.Rows {
				if len(row) != len(table.Columns) {
					t.Errorf("%q has %d cells below %v", row, len(row), table.Columns)
				}
			}
		})
	}
}

// TestEmptyChart checks that a chart without figures reports it and draws no invalid numbers.
func TestEmptyChart(t *testing.T) {
	logs := axis{log: true}
	for name, c := range map[string]chart{
		"lines":  lineChart{y: axis{log: true}, curves: []curve{{points: []point{{x: 1, y: 0, mark: true}}}}},
		"bars":   rowChart{rows: []chartRow{barRow(chartRow{name: "a"}, axis{}, nil, "")}},
		"ranges": rowChart{rows: []chartRow{quantileRow(chartRow{}, logs, []string{"p50"}, []float64{0}), quantileRow(chartRow{}, logs, []string{"p50"}, nil)}},
		"shares": rowChart{rows: []chartRow{shareRow(chartRow{}, []string{"a"}, []float64{0}, plain)}},
	} {
		svg, ok := drawSVG(c, "x", "", "")
		if ok {
			t.Errorf("%s has figures", name)
		}
		if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

var place = regexp.MustCompile(`class="bar pt" d="M4 [0-9.]+H([0-9.]+)V`)

// TestBarsStartAtZero checks that a bar of twice the value is twice as long.
func TestBarsStartAtZero(t *testing.T) {
	svg, _ := drawSVG(rowChart{axis: axis{zero: true}, rows: []chartRow{
		barRow(chartRow{}, axis{}, []float64{1000}, ""), barRow(chartRow{}, axis{}, []float64{2000}, ""),
	}}, "x", "", "")
	var ends []float64
	for _, m := range place.FindAllStringSubmatch(string(svg), -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, v-4)
	}
	if len(ends) != 2 || math.Abs(ends[1]/ends[0]-2) > 0.01 {
		t.Errorf("bars of 1000 and 2000 are %v long", ends)
	}
}

// TestTable checks that the figures are the given ones, in order.
func TestTable(t *testing.T) {
	all := charts()
	for name, want := range map[string][]string{
		"bars":   {nasty, "10", "8", "12", "6", nasty},
		"ranges": {nasty, "1", "-", "1000"},
		"shares": {nasty, "3 (75.0 %)", "1 (25.0 %)", "4"},
		"lines":  {nasty, "1", "10", "5", "20"},
	} {
		if got := all[name].table().Rows[0]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
