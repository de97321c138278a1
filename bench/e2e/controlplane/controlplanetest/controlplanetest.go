// Package controlplanetest starts control planes for tests.
package controlplanetest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"watchlab/bench/e2e/controlplane"
)

// patience is how long something of a real cluster may take.
const patience = time.Minute

// Programs is the folder that programs for tests are built into and kept in:
// $WATCHLAB_PROGRAMS, or one in the user's cache folder.
func Programs(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("WATCHLAB_PROGRAMS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "watchlab")
	}
	return dir
}

// Start starts a control plane that ends with the test. Its programs are built
// into the folder of [Programs].
func Start(t testing.TB, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	programs, err := controlplane.Build(t.Context(), Programs(t))
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(t.Context(), programs, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	return cp
}

// Eventually calls check until it returns nil, and fails the test with its last
// error where that takes too long. A real cluster tells nobody when it is done.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v: %v", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
