package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"watchlab/bench/e2e/programs"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", ports: [{containerPort: 80}]}
`

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What is wanted of the widget.
            required: [size]
            properties:
              size: {type: string, enum: [small, large], description: How large it is.}
              replicas: {type: integer, minimum: 0, default: 1}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
`

const widget = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: small}
`

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: p}}
spec: {containers: [{name: c, image: "i:1"}]}
`

// TestKubectl runs common kubectl commands.
func TestKubectl(t *testing.T) {
	s := serve(t)

	t.Run("discovery", func(t *testing.T) {
		s.says(t, "Server Version: v1.36.3+watchlab.simulated", "", "version")
		out := s.run(t, "", "api-resources", "--no-headers")
		for _, want := range []string{"deployments deploy apps/v1 true Deployment", "nodes no v1 false Node", "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition"} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("api-resources says\n%s\nwithout %s", out, want)
			}
		}
		s.says(t, "replicas\t<integer>", "", "explain", "deployment.spec")
		s.says(t, "-required-", "", "explain", "deployment.spec")
		s.says(t, "Number of desired pods.", "", "explain", "deployment.spec.replicas")
	})

	t.Run("apply", func(t *testing.T) {
		s.says(t, "deployment.apps/web created", deployment, "apply", "-f", "-")
		s.says(t, "deployment.apps/web unchanged", deployment, "apply", "-f", "-")
		changed := strings.Replace(deployment, "web:1", "web:2", 1)
		s.fails(t, "+      - image: web:2", changed, "diff", "-f", "-")
		s.says(t, "deployment.apps/web configured (server dry run)", changed, "apply", "--dry-run=server", "-f", "-")
		s.says(t, "web:1", "", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
		s.says(t, "deployment.apps/web configured", changed, "apply", "-f", "-")
		s.says(t, "2 web:2", "", "get", "deployment", "web", "-o", "jsonpath={.metadata.generation} {.spec.template.spec.containers[0].image}")
		s.fails(t, `unknown field "spec.replicsa"`, strings.Replace(deployment, "replicas", "replicsa", 1), "apply", "-f", "-")
		s.says(t, `unknown field "spec.replicsa"`, strings.Replace(strings.Replace(deployment, "replicas", "replicsa", 1), "name: web,", "name: warned,", 1), "apply", "--validate=warn", "-f", "-")
	})

	t.Run("apply --server-side", func(t *testing.T) {
		named := strings.Replace(deployment, "name: web,", "name: ssa,", 1)
		s.says(t, "deployment.apps/ssa serverside-applied", named, "apply", "--server-side", "-f", "-")
		three := strings.Replace(named, "replicas: 2", "replicas: 3", 1)
		s.fails(t, `Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas`, three, "apply", "--server-side", "--field-manager=other", "-f", "-")
		s.says(t, "serverside-applied", three, "apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
		s.says(t, "3", "", "get", "deployment", "ssa", "-o", "jsonpath={.spec.replicas}")
		s.says(t, "manager: other", "", "get", "deployment", "ssa", "-o", "yaml", "--show-managed-fields")
	})

	t.Run("patch", func(t *testing.T) {
		s.says(t, "patched", "", "patch", "deployment", "web", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`)
		s.says(t, "side web", "", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].name}")
		s.says(t, "patched", "", "patch", "deployment", "web", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/containers/0"}]`)
		s.says(t, "patched (no change)", "", "patch", "deployment", "web", "--type=merge", "-p", `{"spec":{"replicas":2}}`)
		s.says(t, "scaled", "", "scale", "deployment", "web", "--replicas=5")
		s.says(t, "5", "", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
		s.says(t, "labeled", "", "label", "deployment", "web", "tier=front")
		s.says(t, "web", "", "get", "deployment", "-l", "tier=front", "-o", "name")
		s.says(t, "image updated", "", "set", "image", "deployment/web", "web=web:3")
	})

	t.Run("get", func(t *testing.T) {
		s.run(t, pod, "create", "-f", "-")
		s.fails(t, `pods "p" already exists`, pod, "create", "-f", "-")
		s.fails(t, `pods "missing" not found`, "", "get", "pod", "missing")
		for _, args := range [][]string{{"get", "pods"}, {"get", "pods", "-o", "wide"}, {"get", "all"}, {"get", "po", "-A", "--show-labels"}, {"describe", "pod", "p"}} {
			s.says(t, "p", "", args...)
		}
		s.says(t, "pod/p", "", "get", "pods", "--field-selector=status.phase=Pending", "-o", "name")
		if out := s.run(t, "", "get", "pods", "--field-selector=status.phase=Running", "-o", "name"); out != "" {
			t.Errorf("running pods: %s", out)
		}
	})

	t.Run("wait", func(t *testing.T) {
		waiter := make(chan error, 1)
		go func() {
			out, err := s.try(t, "", "wait", "--for=condition=Ready", "pod/p", "--timeout=20s")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			waiter <- err
		}()
		s.says(t, "patched", "", "patch", "pod", "p", "--subresource=status", "-p", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		if err := <-waiter; err != nil {
			t.Error(err)
		}
		s.says(t, "Running", "", "get", "pod", "p", "-o", "jsonpath={.status.phase}")
	})

	t.Run("delete", func(t *testing.T) {
		s.run(t, "", "patch", "pod", "p", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
		s.says(t, "deleted", "", "delete", "pod", "p", "--wait=false")
		s.says(t, "T", "", "get", "pod", "p", "-o", "jsonpath={.metadata.deletionTimestamp}")
		waiter := make(chan error, 1)
		go func() {
			out, err := s.try(t, "", "wait", "--for=delete", "pod/p", "--timeout=20s")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			waiter <- err
		}()
		s.run(t, "", "patch", "pod", "p", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		if err := <-waiter; err != nil {
			t.Error(err)
		}
		s.fails(t, "not found", "", "get", "pod", "p")
		s.says(t, "deleted", "", "delete", "deployment", "-l", "app=web")
	})

	t.Run("custom resources", func(t *testing.T) {
		s.says(t, "created", widgets, "apply", "-f", "-")
		s.says(t, "condition met", "", "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s")
		s.says(t, "created", widget, "apply", "-f", "-")
		s.says(t, "SIZE", "", "get", "wd")
		s.says(t, "1", "", "get", "widget", "w", "-o", "jsonpath={.spec.replicas}")
		s.says(t, "How large it is.", "", "explain", "widget.spec.size")
		s.fails(t, `unknown field "spec.color"`, strings.Replace(widget, "size: small", "size: small, color: red", 1), "apply", "-f", "-")
		s.fails(t, `Unsupported value: "huge"`, strings.Replace(widget, "small", "huge", 1), "apply", "-f", "-")
		s.says(t, "configured", strings.Replace(widget, "small", "large", 1), "apply", "-f", "-")
		s.says(t, "serverside-applied", strings.Replace(widget, "name: w", "name: v", 1), "apply", "--server-side", "-f", "-")
		s.says(t, "scaled", "", "scale", "widget", "w", "--replicas=7")
		s.says(t, "patched", "", "patch", "widget", "w", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Ready"}}`)
		s.says(t, "7 Ready", "", "get", "widget", "w", "-o", "jsonpath={.spec.replicas} {.status.phase}")
		s.says(t, "deleted", "", "delete", "crd", "widgets.example.com")
		s.fails(t, "Error from server (NotFound)", "", "get", "widgets")
	})
}

// TestKubectlManifests reads the objects of a folder of manifests with kubectl.
func TestKubectlManifests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a-widget.yaml": widget, "b-crd.yaml": widgets, "c-pod.yaml": pod} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, "--manifest", dir)
	s.says(t, "small", "", "get", "widget", "w", "-o", "jsonpath={.spec.size}")
	s.says(t, "i:1", "", "get", "pod", "p", "-o", "jsonpath={.spec.containers[0].image}")
}

const theirNode = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs"}}`

// TestFakeNodes scales nodes without kubelets by scripts/kind/nodes.sh.
func TestFakeNodes(t *testing.T) {
	s := serve(t)
	s.run(t, theirNode, "create", "-f", "-")
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	nodes := func(args ...string) (string, int) {
		cmd := s.command(t.Context(), args...)
		cmd.Path, cmd.Args[0] = filepath.Join(root, "scripts", "kind", "nodes.sh"), "nodes.sh"
		cmd.Env = append(cmd.Env, "KUBECTL="+s.kubectl)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, step := range []struct{ n, made, removed int }{{20, 20, 0}, {20, 0, 0}, {25, 5, 0}, {7, 0, 18}, {0, 0, 7}} {
		out, code := nodes(fmt.Sprint(step.n), "--context", "watchlab")
		if want := fmt.Sprintf("%d made, %d removed", step.made, step.removed); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("to %d: exit code %d, %q; want %q", step.n, code, out, want)
		}
		if names := strings.Fields(s.run(t, "", "get", "nodes", "-o", "name")); len(names) != step.n+1 {
			t.Errorf("to %d: %q", step.n, names)
		}
		if step.n == 25 {
			s.says(t, "fake NoSchedule", "", "get", "node", "watchlab-fake-00003",
				"-o", `jsonpath={.metadata.annotations.kwok\.x-k8s\.io/node} {.spec.taints[0].effect}`)
		}
	}
	s.run(t, "", "get", "node", "theirs")
	for _, args := range [][]string{{"5"}, {"-1", "--context", "watchlab"}, {"10001", "--context", "watchlab"}} {
		if out, code := nodes(args...); code != 2 || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: exit code %d, %q; want 2 and one line", args, code, out)
		}
	}
}

// TestKubectlWatch follows a storm with kubectl get -w. Its events must end with the
// state of the server.
func TestKubectlWatch(t *testing.T) {
	s := serve(t, "--storm", "recorded-gang", "--speed", "1000")
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	cmd := s.command(ctx, "get", "pods", "-A", "-w", "--output-watch-events", "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watched := follow(out)
	programs.Eventually(t, "the storm as kubectl sees it", func() error {
		have := make(map[string]string)
		lines := s.run(t, "", "get", "pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
		for line := range strings.Lines(lines) {
			key, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			have[key] = version
		}
		state, events := watched.now()
		if events < 100 || !maps.Equal(state, have) {
			return fmt.Errorf("%d events yield %d pods, the server has %d", events, len(state), len(have))
		}
		return nil
	})
	cancel()
	// The error is the test's kill.
	_ = cmd.Wait()
	<-watched.ended
}

// watched collects the state from the events of a watch.
type watched struct {
	ended chan struct{}

	mu     sync.Mutex
	state  map[string]string
	events int
}

// object has the fields of an object, or of a list, that the tests read.
type object struct {
	Metadata struct{ Namespace, Name, ResourceVersion string } `json:"metadata"`
	Items    []object                                          `json:"items"`
}

// follow starts to read watch events, until the end of r. kubectl prints the initial
// state as one event with a list.
func follow(r io.Reader) *watched {
	w := &watched{state: make(map[string]string), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for decoder := json.NewDecoder(r); ; {
			var event struct {
				Type   string `json:"type"`
				Object object `json:"object"`
			}
			if decoder.Decode(&event) != nil {
				return // The test killed kubectl.
			}
			objects := event.Object.Items
			if objects == nil {
				objects = []object{event.Object}
			}
			w.mu.Lock()
			w.events++
			for _, o := range objects {
				key := o.Metadata.Namespace + "/" + o.Metadata.Name
				if w.state[key] = o.Metadata.ResourceVersion; event.Type == "DELETED" {
					delete(w.state, key)
				}
			}
			w.mu.Unlock()
		}
	}()
	return w
}

func (w *watched) now() (map[string]string, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.state), w.events
}
