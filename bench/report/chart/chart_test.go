package chart_test

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

	"watchlab/bench/report/chart"
)

func ptr(v float64) *float64 { return &v }

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

const nasty = `<script>alert("x")</script> & 'y'`

// charts returns one chart of each kind with all options, and names that contain
// markup.
func charts() map[string]chart.Chart {
	axis := chart.Axis{Label: nasty, Format: plain}
	return map[string]chart.Chart{
		"lines": chart.Lines{Name: nasty, Description: nasty, X: axis, Y: chart.Axis{Label: "y", Log: true, Format: plain}, Series: []chart.Curve{
			{Name: nasty, Path: true, Area: true, Points: []chart.Point{{X: 1, Y: 10, Mark: true, Tip: nasty, Lo: 5, Hi: 20}, {X: 2, Y: 0}, {X: 3, Y: 1000, Mark: true}}},
			{Name: "b", Style: chart.Style{Slot: 13, Dashed: true}, Path: true, Step: true, Points: []chart.Point{{X: 1, Y: math.NaN()}, {X: 2, Y: 7, Mark: true}}},
			{Name: "backdrop", Background: true, Area: true, Points: []chart.Point{{X: 1, Y: 1}, {X: 2, Y: 2}}},
		}, Rules: []chart.Rule{{At: 100, Label: nasty}, {Vertical: true, At: 2, Label: "knee", Series: nasty}}},
		"bars": chart.Bars{Name: nasty, Axis: axis, Rows: []chart.Bar{
			{Name: nasty, Value: ptr(10), Lo: ptr(9), Hi: ptr(12), Rounds: []float64{9, 10, 12}, Note: nasty, Tip: nasty},
			{Name: "without", Note: "invalid: lost"},
		}},
		"ranges": chart.Ranges{Name: nasty, Axis: chart.Axis{Label: nasty, Log: true, Format: plain}, Marks: []string{"p50", "p99", "max"}, Rows: []chart.Range{
			{Name: nasty, Values: []float64{1, math.NaN(), 1000}, Note: nasty}, {Name: "b"},
		}},
		"shares": chart.Shares{Name: nasty, Unit: nasty, Format: plain, Parts: []string{nasty, "b"}, Rows: []chart.Share{
			{Name: nasty, Values: []float64{3, 1}, Note: nasty}, {Name: "none", Values: []float64{0, 0}},
		}},
		"heat": chart.Heat{Name: nasty, X: nasty, Y: "y", Xs: []string{nasty, "2"}, Ys: []string{"1"}, Unit: nasty, Format: plain, Missing: nasty,
			Values: [][]float64{{5, math.NaN()}}, Low: 1, High: 50},
	}
}

// TestSVG checks that each picture is well-formed XML, has a name, and escapes its
// texts.
func TestSVG(t *testing.T) {
	for name, c := range charts() {
		t.Run(name, func(t *testing.T) {
			svg := string(c.SVG("an-id"))
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
				t.Errorf("a place that is none in %s", svg)
			}
			if c.Empty() {
				t.Error("is said to be empty")
			}
			table := c.Table()
			for _, row := range table.Rows {
				if len(row) != len(table.Header) {
					t.Errorf("%q has %d cells below %q", row, len(row), table.Header)
				}
			}
		})
	}
}

// TestNothingToDraw checks that a chart without figures reports it and draws no invalid
// numbers.
func TestNothingToDraw(t *testing.T) {
	for name, c := range map[string]chart.Chart{
		"lines":  chart.Lines{Y: chart.Axis{Log: true}, Series: []chart.Curve{{Points: []chart.Point{{X: 1, Y: 0, Mark: true}}}}},
		"bars":   chart.Bars{Rows: []chart.Bar{{Name: "a"}}},
		"ranges": chart.Ranges{Axis: chart.Axis{Log: true}, Marks: []string{"p50"}, Rows: []chart.Range{{Values: []float64{0}}, {}}},
		"shares": chart.Shares{Parts: []string{"a"}, Rows: []chart.Share{{Values: []float64{0}}}},
		"heat":   chart.Heat{Xs: []string{"1"}, Ys: []string{"1"}, Values: [][]float64{{math.NaN()}}},
	} {
		if !c.Empty() {
			t.Errorf("%s is not empty", name)
		}
		if svg := string(c.SVG("x")); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

var place = regexp.MustCompile(`class="bar pt" d="M4 [0-9.]+H([0-9.]+)V`)

// TestBarsBeginAtZero checks that a bar of twice the value is twice as long.
func TestBarsBeginAtZero(t *testing.T) {
	c := chart.Bars{Rows: []chart.Bar{{Name: "a", Value: ptr(1000)}, {Name: "b", Value: ptr(2000)}}}
	var ends []float64
	for _, m := range place.FindAllStringSubmatch(string(c.SVG("x")), -1) {
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
		"bars":   {nasty, "10", "9", "12", "3", nasty},
		"ranges": {nasty, "1", "-", "1000"},
		"shares": {nasty, "3 (75.0 %)", "1 (25.0 %)", "4"},
		"heat":   {"1", "5", nasty},
		"lines":  {nasty, "1", "10", "5", "20"},
	} {
		if got := all[name].Table().Rows[0]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
