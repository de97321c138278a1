package kind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

const (
	namespace = "watchlab"
	// patience is the time limit of steps that take up to a minute.
	patience = 5 * time.Minute
)

// root is the root of the source tree.
const root = "../../.."

// cluster is the cluster under test.
type cluster struct {
	name       string
	kubeconfig string
	config     *rest.Config
	client     *kubernetes.Clientset
	transcript io.Writer
}

// connect returns the cluster named by $CLUSTER, which make e2e-kind sets. Without it
// connect skips the test.
func connect(t *testing.T, transcript io.Writer) *cluster {
	t.Helper()
	c := &cluster{name: os.Getenv("CLUSTER"), transcript: transcript}
	if c.name == "" {
		t.Skip("no CLUSTER; make e2e-kind sets it")
	}
	var err error
	if c.kubeconfig, err = filepath.Abs(filepath.Join(root, "bin", "kubeconfig", c.name)); err != nil {
		t.Fatal(err)
	}
	c.config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: "kind-" + c.name}).ClientConfig()
	if err != nil {
		t.Fatalf("no cluster %s: make kind-up CLUSTER=%s (%v)", c.name, c.name, err)
	}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("cluster %s doesn't answer: %v", c.name, err)
	}
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.say("cluster %s: Kubernetes %s, %d nodes", c.name, version.GitVersion, len(nodes.Items))
	for _, n := range nodes.Items {
		c.say("  %s: %s, %s, %s, %s CPUs", n.Name, n.Status.NodeInfo.ContainerRuntimeVersion, n.Status.NodeInfo.OSImage, n.Status.NodeInfo.Architecture, n.Status.Capacity.Cpu())
	}
	return c
}

// say writes a line to the transcript.
func (c *cluster) say(format string, args ...any) { fmt.Fprintf(c.transcript, format+"\n", args...) }

// call runs a command in the root folder and returns its exit code and output.
func (c *cluster) call(t *testing.T, name string, args ...string) (int, string) {
	t.Helper()
	shown := name
	for _, a := range args {
		if strings.ContainsAny(a, " ;|") {
			a = "'" + a + "'"
		}
		shown += " " + strings.ReplaceAll(a, c.kubeconfig, "bin/kubeconfig/"+c.name)
	}
	c.say("\n$ %s", shown)
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	var out bytes.Buffer
	both := io.MultiWriter(&out, c.transcript)
	cmd.Stdout, cmd.Stderr = both, both
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		c.say("# %.0f s", time.Since(began).Seconds())
		return 0, out.String()
	case errors.As(err, &exit):
		c.say("# exit code %d, %.0f s", exit.ExitCode(), time.Since(began).Seconds())
		return exit.ExitCode(), out.String()
	}
	t.Fatalf("%s: %v", name, err)
	return 0, ""
}

// make runs make, which must succeed, and returns its output.
func (c *cluster) make(t *testing.T, args ...string) string {
	t.Helper()
	if c.name != "watchlab" {
		args = append(args, "CLUSTER="+c.name)
	}
	code, out := c.call(t, "make", args...)
	if code != 0 {
		t.Fatalf("make %s: exit code %d", strings.Join(args, " "), code)
	}
	return out
}

// watchlab runs `watchlab cluster VERB` for this cluster.
func (c *cluster) watchlab(t *testing.T, verb string, args ...string) (int, string) {
	t.Helper()
	in := []string{"cluster", verb, "--kubeconfig", c.kubeconfig, "--context", "kind-" + c.name}
	return c.call(t, "bin/watchlab", append(in, args...)...)
}

// until calls ask until it returns true. It fails the test after limit.
func until(t *testing.T, what string, limit time.Duration, ask func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 500*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		ok, err := ask(ctx)
		last = err
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (%v)", what, err, last)
	}
}

// pods returns the pods of the namespace that a selector matches.
func (c *cluster) pods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// pod returns the only pod of a Deployment.
func (c *cluster) pod(t *testing.T, name string) corev1.Pod {
	t.Helper()
	pods, err := c.pods(t.Context(), "app.kubernetes.io/name="+name)
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods of %s: %v", len(pods), name, err)
	}
	return pods[0]
}

// ready waits until the pod of a Deployment is ready. If the cluster cannot pull its image, ready
// builds and loads it; if that fails too, ready logs a warning and returns false.
func (c *cluster) ready(t *testing.T, name string) bool {
	t.Helper()
	for _, loaded := range []bool{false, true} {
		image := "" // that cannot be pulled
		until(t, name+" is ready", patience, func(ctx context.Context) (bool, error) {
			pods, err := c.pods(ctx, "app.kubernetes.io/name="+name)
			for _, p := range pods {
				for _, s := range p.Status.ContainerStatuses {
					if s.Ready {
						return true, nil
					}
					if w := s.State.Waiting; w != nil && strings.Contains(w.Reason, "Image") && !loaded {
						image = p.Spec.Containers[0].Image
						return true, nil
					}
				}
			}
			return false, errors.Join(fmt.Errorf("%d pods, none ready", len(pods)), err)
		})
		if image == "" {
			return true
		}
		c.say("# the cluster can't pull %s", image)
		if code, _ := c.call(t, "scripts/kind/load.sh", c.name, image); code == 3 { // The program has no Go module.
			c.say("#### SKIPPED: %s can't be pulled nor built, and what it shows is NOT tried ####", image)
			return false
		} else if code != 0 {
			t.Fatalf("%s can't be loaded: exit code %d", image, code)
		}
		// Delete the pod: a new one does not wait for the pull back-off.
		if err := c.client.CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name}); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// forward forwards a local port to a pod until the test ends, like kubectl port-forward,
// and returns the URL.
func (c *cluster) forward(t *testing.T, name string, port int) string {
	t.Helper()
	pod := c.pod(t, name).Name
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	to := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("port-forward to %s: %v", pod, err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("port-forward to %s: %v", pod, err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local)
}

// getJSON fetches a URL and decodes the JSON.
func getJSON(ctx context.Context, address string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
