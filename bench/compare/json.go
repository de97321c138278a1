package compare

import (
	"encoding/json"
	"io"
	"math"
)

// The JSON form of the tables. Unknown values are omitted.
type (
	jsonTables struct {
		Tables   []jsonTable `json:"tables"`
		Refused  []string    `json:"refused,omitempty"`
		Warnings []string    `json:"warnings,omitempty"`
	}
	jsonTable struct {
		Unit    string     `json:"unit"`
		Keys    []KeyValue `json:"keys,omitempty"`
		Columns []string   `json:"columns"`
		Rows    []jsonRow  `json:"rows"`
		Geomean []jsonSum  `json:"geomean"`
	}
	jsonRow struct {
		Name string `json:"name"`
		// Cells has the order of Columns; null for a missing cell.
		Cells []*jsonCell `json:"cells"`
	}
	jsonCell struct {
		N        int       `json:"n"`
		Center   float64   `json:"center"`
		Lo       *float64  `json:"lo,omitempty"`
		Hi       *float64  `json:"hi,omitempty"`
		Values   []float64 `json:"values"`
		VsBase   *jsonTest `json:"vsBase,omitempty"`
		Warnings []string  `json:"warnings,omitempty"`
	}
	jsonTest struct {
		// Change is a share: 0.05 means 5 % more.
		Change        *float64 `json:"change,omitempty"`
		P             float64  `json:"p"`
		Significant   bool     `json:"significant"`
		MinDetectable float64  `json:"minDetectable,omitempty"`
	}
	jsonSum struct {
		Mean   *float64 `json:"mean,omitempty"`
		Change *float64 `json:"change,omitempty"`
	}
)

// JSON writes the tables with all their values.
func (t *Tables) JSON(w io.Writer) error {
	out := jsonTables{Tables: []jsonTable{}, Refused: t.Refused, Warnings: t.Warnings}
	for _, tab := range t.Tables {
		j := jsonTable{Unit: tab.Unit, Keys: tab.Keys}
		for _, col := range tab.Cols {
			j.Columns = append(j.Columns, col.StringValues())
		}
		for _, row := range tab.Rows {
			r := jsonRow{Name: row.StringValues()}
			for _, col := range tab.Cols {
				r.Cells = append(r.Cells, jsonOf(tab.Cells[Place{row, col}]))
			}
			j.Rows = append(j.Rows, r)
		}
		for _, s := range tab.Sums {
			j.Geomean = append(j.Geomean, jsonSum{Mean: finite(s.Mean), Change: finite(s.Ratio - 1)})
		}
		out.Tables = append(out.Tables, j)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

func jsonOf(c *Cell) *jsonCell {
	if c == nil {
		return nil
	}
	j := &jsonCell{
		N: len(c.Sample.Values), Center: c.Summary.Center,
		Lo: finite(c.Summary.Lo), Hi: finite(c.Summary.Hi), Values: c.Sample.Values,
	}
	for _, list := range [][]error{c.Sample.Warnings, c.Warnings, c.Summary.Warnings, c.Test.Warnings} {
		for _, err := range list {
			j.Warnings = append(j.Warnings, err.Error())
		}
	}
	if c.Base != nil {
		j.VsBase = &jsonTest{
			Change: finite(c.Summary.Center/c.Base.Summary.Center - 1), P: c.Test.P,
			// Exact units have an alpha of 0: every difference is significant.
			Significant:   c.Test.P < c.Test.Alpha || c.Test.Alpha == 0 && c.Summary.Center != c.Base.Summary.Center,
			MinDetectable: c.MinDetectable,
		}
	}
	return j
}

// finite returns nil for NaN and infinities, which JSON cannot represent.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
