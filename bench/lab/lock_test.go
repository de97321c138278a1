package lab

import (
	"syscall"
	"testing"
)

// TestUnlock: a folder is free after unlockFolder, even while a process that is being
// started holds a copy of the descriptor.
func TestUnlock(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		f, err := lockFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Close(copied) }()
		if err := unlockFolder(f); err != nil {
			t.Fatal(err)
		}
	}
}
