package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// unasked returns the kubeconfig of a server that answers 503 and fails the test on any
// request but GET. Bad input is found before anything is written.
func unasked(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	return kubeconfigOf(t, s.URL)
}

func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "` + server + `"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}]
current-context: one
`
	noError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
