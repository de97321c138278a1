package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/trace"
)

// TestRecordCluster records from a server named by a kubeconfig.
func TestRecordCluster(t *testing.T) {
	s := must(trace.Load(tiny))(t)
	srv := must(apiserver.New(s, apiserver.Options{}))(t)
	url := must(srv.Start())(t)
	defer http.DefaultClient.CloseIdleConnections()
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	srv.Release(uint64(len(s.Events)))
	dir := t.TempDir()
	kubeconfig, out := filepath.Join(dir, "kc"), filepath.Join(dir, "x.jsonl.zst")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":""}}],"clusters":[{"name":"c","cluster":{"server":"` + url + `"}}]}`
	noError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	code, _, errs := call(t, "record", "--kubeconfig", kubeconfig, "--resource", "pods", "--for", "500ms", "-o", out, "--keep")
	if code != exitOK || !strings.Contains(errs, "v1/pods: ") || !strings.Contains(errs, out) {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	r := must(trace.Load(out))(t)
	if len(r.Final()) != len(s.Final()) {
		t.Errorf("%d objects, want %d", len(r.Final()), len(s.Final()))
	}
	code, _, errs = call(t, "record", "--kubeconfig", kubeconfig, "--resource", "gadgets", "-o", out+"2")
	if code != exitUsage || !strings.Contains(errs, "--resource") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}
