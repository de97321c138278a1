package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

const nasty = `<script>alert("x")</script> & 'y'`

// charts returns one chart of each kind with all options, and names that contain markup.
func charts() map[string]Chart {
	a := Axis{Label: nasty, Format: plain}
	named, logs := Row{Name: nasty, Note: nasty}, Axis{Label: nasty, Log: true, Format: plain}
	return map[string]Chart{
		"lines": Lines{X: a, Y: Axis{Label: "y", Log: true, Format: plain}, Curves: []Curve{
			{Name: nasty, Path: true, Points: []Point{{X: 1, Y: 10, Mark: true, Tip: nasty, Lo: 5, Hi: 20}, {X: 2, Y: 0}, {X: 3, Y: 1000, Mark: true}}},
			{Name: "b", Style: Style{Colour: 13, Form: 3, Dashed: true}, Path: true, Points: []Point{{X: 1, Y: math.NaN()}, {X: 2, Y: 7, Mark: true}}},
		}},
		"intervals": Rows{Axis: logs, Rule: 1, Columns: IntervalColumns(logs), Rows: []Row{
			Interval(named, logs, Point{Y: 2, Lo: 1.5, Hi: 3, Tip: nasty}, true), Interval(Row{Name: "none", Note: "invalid"}, logs, Point{}, false),
		}},
		"shares": Rows{Axis: a, Columns: []string{nasty, "b", "sum"}, Rows: []Row{
			Shares(named, []string{nasty, "b"}, []float64{3, 1}, plain), Shares(Row{Name: "none"}, []string{nasty, "b"}, []float64{0, 0}, plain),
		}},
	}
}

// TestSVG checks that each picture is well-formed XML, has a name, and escapes its texts.
func TestSVG(t *testing.T) {
	for name, c := range charts() {
		t.Run(name, func(t *testing.T) {
			text, ok := Draw(c, "an-id", nasty, nasty)
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
			table := c.Table()
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
	for name, c := range map[string]Chart{
		"lines":  Lines{X: Axis{Format: plain}, Y: Axis{Log: true, Format: plain}, Curves: []Curve{{Points: []Point{{X: 1, Y: 0, Mark: true}}}}},
		"shares": Rows{Axis: Axis{Format: plain}, Rows: []Row{Shares(Row{}, []string{"a"}, []float64{0}, plain)}},
	} {
		svg, ok := Draw(c, "x", "", "")
		if ok {
			t.Errorf("%s has figures", name)
		}
		if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

// TestTable checks that the figures are the given ones, in order.
func TestTable(t *testing.T) {
	all := charts()
	for name, want := range map[string][]string{
		"intervals": {nasty, "2", "1.5", "3", nasty},
		"shares":    {nasty, "3 (75.0 %)", "1 (25.0 %)", "4"},
		"lines":     {nasty, "1", "10", "5", "20"},
	} {
		if got := all[name].Table().Rows[0]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
