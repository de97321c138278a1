package manifest_test

import (
	"runtime"
	"strings"
	"testing"

	"watchlab/loadgen/manifest"
)

// TestHostile: a file that its aliases expand is refused before it is expanded; a small one, and one with signs
// that are no aliases, is read.
func TestHostile(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	head := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct{ file, want string }{
		"text":            {head + "data: {a: &a " + text + "}\nb: [" + strings.Repeat("*a,", 300_000) + "]", "aliases expand it"},
		"list of text":    {head + "b: &b [&a " + text + "," + strings.Repeat("*a,", 10) + "]\nc: [" + strings.Repeat("*b,", 1000) + "]", "aliases expand it"},
		"of itself":       {head + "b: &b [" + text + "," + strings.Repeat("*b,", 1000) + "]", "aliases expand it"},
		"small":           {head + "data: {a: &a x, b: *a}\n", ""},
		"no aliases":      {head + "data: {a: '& " + strings.Repeat(" *b,", 100_000) + "'}\n", ""},
		"not YAML either": {head + "& " + strings.Repeat(" *b,", 100_000), "did not find"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := manifest.Decode("f", []byte(tc.file), true)
			runtime.ReadMemStats(&after)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%.200v; want %q", err, tc.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 600<<20 {
				t.Errorf("%d bytes allocated for %d", n, len(tc.file))
			}
		})
	}
}
