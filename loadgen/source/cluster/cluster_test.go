package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.New(nil)) // Reflectors log every broken watch.
	goleak.VerifyTestMain(m)
}

var podResource = Resource{
	GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
	Kind:                 schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespaced: true,
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: c, user: u}}]
current-context: one
`

func TestConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "one"} {
		c, err := Connect(path, name)
		if err != nil || c.Context != "one" {
			t.Errorf("context %q: %+v, %v", name, c, err)
		}
	}
	for _, tt := range []struct {
		path, name string
		is         error
		want       []string
	}{
		{path, "three", ErrContext, []string{`"three"`, "one, two"}},
		{filepath.Join(t.TempDir(), "none"), "three", ErrKubeconfig, []string{"none"}},
	} {
		_, err := Connect(tt.path, tt.name)
		if !errors.Is(err, tt.is) {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
