package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// output is a buffer that the command writes and the test reads.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// changed has a token when new text is available.
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{}, 1)} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// await waits until the output has the text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.changed:
		case <-timeout:
			t.Fatalf("%q was not written, but\n%s", text, o)
		}
	}
}

// serving runs the command. end stops it.
func serving(t *testing.T, args ...string) (out *output, end func() (code int, stderr string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out = newOutput()
	var errs bytes.Buffer
	var wg sync.WaitGroup
	code := -1
	wg.Go(func() { code = run(ctx, append([]string{"serve"}, args...), out, &errs) })
	end = func() (int, string) {
		cancel()
		wg.Wait()
		return code, errs.String()
	}
	t.Cleanup(func() { _, _ = end() })
	out.await(t, "Ctrl-C")
	return out, end
}

func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hc.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, hc)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: lab}
data: {a: b}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// TestServe: a storm with manifests is served over TLS to clients with the kubeconfig.
// It begins with the first watch. Clients can write. Ctrl-C ends the command.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	kubeconfig, manifests := filepath.Join(dir, "kc"), filepath.Join(dir, "settings.yaml")
	if err := os.WriteFile(manifests, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	out, end := serving(t, "--storm", tiny, "--manifest", manifests, "--kubeconfig-out", kubeconfig, "--speed", "1000", "--faults", "disconnect:at=1h")
	for _, want := range []string{"https://127.0.0.1:", "manifests: 2 objects", "disconnect", "KUBECONFIG=" + kubeconfig + " kubectl get pods -A -w", "begins with the first watch"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	c := clientOf(t, kubeconfig)
	ctx := t.Context()
	if cm, err := c.CoreV1().ConfigMaps("lab").Get(ctx, "settings", metav1.GetOptions{}); err != nil || cm.Data["a"] != "b" {
		t.Errorf("manifest: %v, %v", cm, err)
	}
	if list, err := c.Discovery().ServerResourcesForGroupVersion("example.com/v1"); err != nil || len(list.APIResources) == 0 {
		t.Errorf("custom resource: %v, %v", list, err)
	}
	w, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "the storm is over")
	w.Stop()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if _, err := c.CoreV1().Pods("lab").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if code, errs := end(); code != exitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	if !strings.Contains(out.String(), "1 watches") {
		t.Errorf("the end is not reported:\n%s", out)
	}
}

// Plain HTTP on loopback needs neither token nor file.
func TestServePlain(t *testing.T) {
	out, end := serving(t, "--tls=false", "--start", "0")
	if !strings.Contains(out.String(), "http://127.0.0.1:") || !strings.Contains(out.String(), "no token") {
		t.Errorf("output\n%s", out)
	}
	if code, errs := end(); code != exitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}
