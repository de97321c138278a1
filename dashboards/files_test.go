package dashboards

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"watchlab/bench/lab"
)

func TestLateShare(t *testing.T) {
	if lateShare != lab.MaxLateShare {
		t.Errorf("lateShare = %v, the lab has %v", lateShare, lab.MaxLateShare)
	}
}

// TestFiles compares the committed files with the generated ones. With -update it writes
// them.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run `make dashboards`", name, err)
		}
	}
	for _, pattern := range []string{"json/*", "rules/*.rules.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if files[filepath.ToSlash(name)] == nil {
				t.Errorf("no dashboard generates %s", name)
			}
		}
	}
}
