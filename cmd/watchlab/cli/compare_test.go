package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// old and faster are benchmark files that differ in speed.
const (
	oldFile    = "testdata/old.txt"
	fasterFile = "testdata/faster.txt"
)

func TestCompare(t *testing.T) {
	code, out, errs := call(t, "compare", "before="+oldFile, fasterFile)
	if code != exitOK || errs != "" || !strings.Contains(out, "-20.00% (p=0.002 n=6)") || !strings.HasPrefix(out, "unit") || !strings.Contains(out, "before") {
		t.Errorf("exit code %d, stderr %q:\n%s", code, errs, out)
	}
}

func TestCompareRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nothing":       {nil, "results folder"},
		"no file":       {[]string{"missing.txt"}, "missing.txt"},
		"no folder":     {[]string{"testdata"}, filepath.Join("testdata", "run.json")},
		"not a number":  {[]string{oldFile, hostile(t, "NaN ns/op")}, "bench.txt:7: NaN"},
		"infinite":      {[]string{hostile(t, "-Inf ns/op"), oldFile}, "bench.txt:7: -Inf"},
		"a broken file": {[]string{oldFile, "testdata/broken.txt"}, "broken.txt:3"},
	} {
		code, out, errs := call(t, append([]string{"compare"}, tc.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
}
