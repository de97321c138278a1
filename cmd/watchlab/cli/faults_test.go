package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const webPod = `# Mine.
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: "web:1"}
  - {name: b, image: "side:1"}
`

func TestRunWithFaults(t *testing.T) {
	code, out, errs := call(t, "run", "--ignore-host", "--storm", "nodeloss", "--nodes", "1", "--pipeline", "informer", "--source", "apiserver",
		"--impl", "cond", "--delivery", "in-order", "--rounds", "1", "--faults", "disconnect:frames=50,count=1")
	if code != exitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), "fault disconnect:frames=50,count=1") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestRunWithStaticPodsAndManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	noError(t, os.WriteFile(file, []byte(webPod), 0o600))
	code, out, errs := call(t, "run", "--ignore-host", "--storm", tiny, "--pipeline", "kubelet", "--impl", "cond",
		"--rounds", "1", "--events", "200", "--static", "3", "--manifest", file)
	if code != exitOK || !strings.Contains(out, "file and http with 3 pods each") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
