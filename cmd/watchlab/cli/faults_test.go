package cli

import (
	"strings"
	"testing"
)

func TestRunWithFaults(t *testing.T) {
	code, out, errs := call(t, "run", "--ignore-host", "--storm", "nodeloss", "--nodes", "1", "--pipeline", "informer", "--source", "apiserver",
		"--impl", "cond", "--delivery", "in-order", "--rounds", "1", "--faults", "disconnect:frames=50,count=1")
	if code != exitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), "fault disconnect:frames=50,count=1") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestRunWithStaticPods(t *testing.T) {
	code, out, errs := call(t, "run", "--ignore-host", "--storm", tiny, "--pipeline", "kubelet", "--impl", "cond",
		"--rounds", "1", "--events", "200", "--static", "3")
	if code != exitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), "file and http with 3 pods each") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
