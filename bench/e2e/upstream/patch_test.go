package upstream

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPatch runs client-go's own tests of its package cache, unchanged, on client-go under the patch
// of docs/found/realfifo-popbatch.md.
func TestPatch(t *testing.T) {
	t.Parallel()
	root, copied := copyModule(t, clientGo)
	patch, err := filepath.Abs("../../../docs/found/realfifo-popbatch.patch")
	if err != nil {
		t.Fatal(err)
	}
	command(t, "patch", "-s", "-d", copied, "-p1", "-i", patch)
	s := &suite{binary: filepath.Join(root, "cache.test"), dir: filepath.Join(copied, "tools", "cache")}
	s.compile(t, root, copied, clientGo)
	names := strings.Fields(command(t, s.binary, "-test.list=^Test"))
	s.play(t, run{name: "patch", tests: names, skipped: map[string]string{}})
}
