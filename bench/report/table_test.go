package report

import (
	"reflect"
	"testing"
)

// TestPages: a page has at most eight columns of a table, with one unit in each column, and each page
// repeats what names a row.
func TestPages(t *testing.T) {
	wide := newTable("wide", []string{"variant", "storm", "delivery"}, "p50", "p99", "bytes", "events/s", "ratio", "a", "b", "c")
	wide.labels = 2
	wide.add("cond", "gang", "-", "54.1µs", "9.28ms", "62.7", "266.5k", "1.50×", "1", "2", "3")
	wide.add("ring", "gang", "per-key", "999ns", "-", "1.500Ki", "1.5M", "-", "1", "2", "3")
	pages := wide.Pages()
	if len(pages) != 2 || pages[1].Title != "wide, continued" {
		t.Fatalf("%d pages", len(pages))
	}
	for i, want := range [][][]string{
		{{"variant", "setting", "p50, ns", "p99, ms", "bytes", "events/s"}, {"cond", "gang", "54100", "9.28", "62.7", "266.5k"}, {"ring", "gang, per-key", "999", "-", "1536", "1.5M"}},
		{{"variant", "setting", "ratio", "a", "b", "c"}, {"cond", "gang", "1.50×", "1", "2", "3"}, {"ring", "gang, per-key", "-", "1", "2", "3"}},
	} {
		if got := pages[i].all(); !reflect.DeepEqual(got, want) {
			t.Errorf("page %d: %q, want %q", i, got, want)
		}
	}
	if wide.Columns[3].Name != "p50" || wide.Rows[0][3] != "54.1µs" {
		t.Error("the table itself changed")
	}
}
