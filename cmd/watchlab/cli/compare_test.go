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
	for output, want := range map[string]string{
		"text":     "-20.00% (p=0.002 n=6)",
		"csv":      "-20.00%,p=0.002 n=6",
		"markdown": "| -20.00% (p=0.002 n=6) |",
		"json":     `"significant": true`,
	} {
		code, out, errs := call(t, "compare", "before="+oldFile, fasterFile, "-o", output)
		if code != exitOK || !strings.Contains(out, want) || !strings.Contains(out, "before") {
			t.Errorf("%s: exit code %d, stderr %q:\n%s", output, code, errs, out)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nothing":      {nil, "results folder"},
		"no file":      {[]string{"missing.txt"}, "missing.txt"},
		"no folder":    {[]string{"testdata"}, filepath.Join("testdata", "run.json")},
		"no rows":      {[]string{oldFile, "--row", "x@"}, "--row"},
		"no filter":    {[]string{oldFile, "--filter", "/impl:"}, "--filter"},
		"nothing left": {[]string{oldFile, "--filter", "/impl:nobody"}, "/impl:nobody"},
		"no output":    {[]string{oldFile, "-o", "xml"}, "--output"},
		"not a number": {[]string{oldFile, hostile(t, "NaN ns/op")}, "bench.txt:7: NaN"},
		"infinite":     {[]string{hostile(t, "-Inf ns/op"), oldFile}, "bench.txt:7: -Inf"},
		"no alpha":     {[]string{oldFile, "--alpha", "2"}, "--alpha"},
	} {
		code, out, errs := call(t, append([]string{"compare"}, tc.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
}

// TestCompareUnreadableLine: an unreadable line is reported, and the other lines are compared.
func TestCompareUnreadableLine(t *testing.T) {
	code, out, errs := call(t, "compare", oldFile, "testdata/broken.txt")
	if code != exitOK || !strings.Contains(errs, "broken.txt:3") || !strings.Contains(out, "n=6") {
		t.Errorf("exit code %d, stderr %q:\n%s", code, errs, out)
	}
}
