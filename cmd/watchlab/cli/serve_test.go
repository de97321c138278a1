package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

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
	config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	config.QPS = -1
	hc := must(rest.HTTPClientFor(config))(t)
	t.Cleanup(hc.CloseIdleConnections)
	client := must(kubernetes.NewForConfigAndClient(config, hc))(t)
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
