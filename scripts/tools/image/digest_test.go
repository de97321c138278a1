package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeptDigest: scripts/digest.sh keeps one digest of the same platforms, commit and Go, and refuses another one.
func TestKeptDigest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image-digest.txt")
	a, b := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	var want []string
	for _, tc := range []struct {
		name  string
		args  []string
		kept  bool // a new line
		fails bool
	}{
		{"first", []string{a, "amd64", "c1", "go1.26.1"}, true, false},
		{"again", []string{a, "amd64", "c1", "go1.26.1"}, false, false},
		{"another digest", []string{b, "amd64", "c1", "go1.26.1"}, false, true},
		{"another Go", []string{b, "amd64", "c1", "go1.26"}, true, false},
		{"another commit", []string{b, "amd64", "c", "go1.26.1"}, true, false},
		{"other platforms", []string{b, "amd64 arm64", "c1", "go1.26.1"}, true, false},
		{"still another digest", []string{b, "amd64", "c1", "go1.26.1"}, false, true},
		{"other platforms again", []string{b, "amd64 arm64", "c1", "go1.26.1"}, false, false},
		{"no digest", []string{"", "amd64", "c2", "go1.26.1"}, false, true},
	} {
		out, err := exec.CommandContext(t.Context(), "../../digest.sh", append([]string{file}, tc.args...)...).CombinedOutput()
		line := tc.args[0] + " platforms=" + strings.ReplaceAll(tc.args[1], " ", ",") + " commit=" + tc.args[2] + " go=" + tc.args[3]
		if tc.kept {
			want = append(want, line)
		}
		if (err != nil) != tc.fails || !tc.fails && string(out) != line+"\n" {
			t.Errorf("%s: %v, %q", tc.name, err, out)
		}
		if data, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(data)) != strings.Join(want, "\n") {
			t.Errorf("%s: the file has %q, %v", tc.name, data, err)
		}
	}
}
