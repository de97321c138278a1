package chart

import (
	"slices"
	"testing"
)

// TestBlocks: a table that is too wide continues in further blocks, which repeat what names a row.
func TestBlocks(t *testing.T) {
	wide := NewTable("wide", []string{"variant", "storm"}, "p50", "events/s")
	wide.Labels = 1
	wide.Add("cond", "gang", "54.1µs", "266.5k")
	wide.Add("ring", "-", "-", "1.5M")
	want := []string{
		"variant  storm     p50", "cond     gang   54.1µs", "ring     -           -",
		"variant  storm  events/s", "cond     gang     266.5k", "ring     -          1.5M",
	}
	var got []string
	for _, b := range wide.Blocks(24) {
		got = append(got, b.Lines()...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(wide.Blocks(100)); n != 1 {
		t.Errorf("%d blocks of a table that fits", n)
	}
}
