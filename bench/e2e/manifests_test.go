package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet"
)

// apiServer is a real API server that manifests are applied to.
type apiServer struct {
	t       *testing.T
	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	s := &apiServer{t: t, config: cp.Config()}
	s.config.QPS = -1
	s.client = kubernetes.NewForConfigOrDie(s.config)
	s.dynamic = dynamic.NewForConfigOrDie(s.config)
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	return s
}

// apply applies an object as `kubectl apply --server-side --validate=strict` does.
func (s *apiServer) apply(u *unstructured.Unstructured, dry ...string) (*unstructured.Unstructured, error) {
	kind := u.GroupVersionKind()
	m, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset()
		m, err = s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	client := dynamic.ResourceInterface(s.dynamic.Resource(m.Resource))
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		client = s.dynamic.Resource(m.Resource).Namespace(u.GetNamespace())
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	force := true
	return client.Patch(s.t.Context(), u.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "e2e", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dry})
}

// applyAll applies the objects of a run twice. The second apply must change nothing.
func (s *apiServer) applyAll(objects []*unstructured.Unstructured) {
	s.t.Helper()
	for _, u := range objects {
		if _, err := s.apply(u); err != nil {
			s.t.Errorf("%s %s/%s: %v", u.GetKind(), u.GetNamespace(), u.GetName(), err)
			continue
		}
		// Controllers may write between the two applies.
		first, err := s.apply(u)
		if err != nil {
			s.t.Errorf("%s %s/%s again: %v", u.GetKind(), u.GetNamespace(), u.GetName(), err)
			continue
		}
		if second, err := s.apply(u); err != nil || second.GetGeneration() != first.GetGeneration() {
			s.t.Errorf("%s %s/%s: a second apply changes generation %d to %d (%v)", u.GetKind(), u.GetNamespace(), u.GetName(),
				first.GetGeneration(), second.GetGeneration(), err)
		}
	}
}

// installPodMonitors installs the custom resource definition of the Prometheus
// operator's PodMonitor, from the module that scripts/tools pins.
func (s *apiServer) installPodMonitors() {
	s.t.Helper()
	const module = "github.com/prometheus-operator/prometheus-operator"
	cmd := exec.CommandContext(s.t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join("..", "..", "scripts", "tools")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		s.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(downloaded.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_podmonitors.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.apply(crd); err != nil {
		s.t.Fatal(err)
	}
	programs.Eventually(s.t, "PodMonitors are served", func() error {
		s.mapper.Reset()
		_, err := s.mapper.RESTMapping(schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}, "v1")
		return err
	})
}

// specOf returns the Spec of a run with two pods.
func specOf(mode fleet.Mode, overlay, namespace, run string) fleet.Spec {
	s := fleet.Spec{
		Plan: fleet.Plan{
			Run: run, Mode: mode, Pods: 2, Experiment: json.RawMessage(`{"storm":{"name":"gang"}}`),
		},
		Files:     map[string][]byte{"mine.yaml": []byte("profiles: []\n"), "trace.jsonl.zst": {0xff, 0xfe}},
		Namespace: namespace, Overlay: overlay, PodMonitor: true,
	}
	if mode == fleet.ModeCluster {
		s.Plan.Writers, s.Resource = 1, schema.GroupResource{Resource: "pods"}
	}
	return s
}

// TestManifests checks the manifests against a real API server:
//
//   - Server-side apply with strict field validation accepts every mode and overlay.
//   - The namespace accepts our pods and rejects a pod that is not restricted.
//   - Each service account has the permissions that it needs, and none of the others
//     that the test tries.
func TestManifests(t *testing.T) {
	s := newAPIServer(t)
	s.installPodMonitors()
	n := 0
	for _, overlay := range append([]string{""}, fleet.Overlays()...) {
		for _, mode := range fleet.Modes() {
			n++
			objects, err := fleet.Build(specOf(mode, overlay, fmt.Sprintf("lab-%d", n), fmt.Sprintf("run-%d", n)))
			if err != nil {
				t.Fatalf("overlay %q, mode %s: %v", overlay, mode, err)
			}
			s.applyAll(objects)
			if t.Failed() {
				t.Fatalf("overlay %q, mode %s", overlay, mode)
			}
		}
	}
	t.Logf("%d runs were applied", n)

	t.Run("Kustomize", s.kustomize)
	t.Run("Strict", func(t *testing.T) {
		objects, err := fleet.Build(specOf(fleet.ModeSelf, "kind", "lab-1", "strict"))
		if err != nil {
			t.Fatal(err)
		}
		job := objects[len(objects)-1]
		if err := unstructured.SetNestedField(job.Object, int64(3), "spec", "replicas"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.apply(job); err == nil || !strings.Contains(err.Error(), "replicas") {
			t.Errorf("a Job with spec.replicas: %v", err)
		}
	})
	t.Run("PodSecurity", func(t *testing.T) { s.podSecurity(t, n) })
	t.Run("RBAC", s.rbac)
}

// kustomize checks that `kubectl apply -k` accepts the base and each overlay unchanged.
func (s *apiServer) kustomize(t *testing.T) {
	deploy := filepath.Join("..", "..", "scripts", "deploy")
	folders := []string{filepath.Join(deploy, "base")}
	for _, overlay := range fleet.Overlays() {
		folders = append(folders, filepath.Join(deploy, "overlays", overlay))
	}
	for _, folder := range folders {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		for _, r := range built.Resources() {
			data, err := r.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			// Create the namespace, since all other objects need it. Those are dry runs.
			dry := []string{metav1.DryRunAll}
			if u.GetKind() == "Namespace" {
				dry = nil
			}
			if _, err := s.apply(u, dry...); err != nil {
				t.Errorf("%s: %s %s: %v", folder, u.GetKind(), u.GetName(), err)
			}
		}
	}
}

// podSecurity checks that the namespace enforces its pod security level, and that the
// pods of all Jobs and Deployments conform.
func (s *apiServer) podSecurity(t *testing.T, namespaces int) {
	bad := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bad"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for i := 1; i <= namespaces; i++ {
		namespace := fmt.Sprintf("lab-%d", i)
		programs.Eventually(t, "the pods of "+namespace+" are made", func() error {
			jobs, err := s.client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			if len(jobs.Items) == 0 {
				return errors.New("there is no Job")
			}
			for _, j := range jobs.Items {
				if j.Status.Active != *j.Spec.Completions {
					return fmt.Errorf("job %s: %d of %d pods", j.Name, j.Status.Active, *j.Spec.Completions)
				}
			}
			deployments, err := s.client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, d := range deployments.Items {
				if d.Status.Replicas != *d.Spec.Replicas {
					return fmt.Errorf("deployment %s: %d of %d pods", d.Name, d.Status.Replicas, *d.Spec.Replicas)
				}
			}
			return nil
		})
		_, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), bad, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s accepted a privileged pod: %v", namespace, err)
		}
	}
}

// access is a request to authorize.
type access struct {
	verb, group, resource, namespace string
}

func (d access) String() string {
	return d.verb + " " + d.resource + "." + d.group + " in " + d.namespace
}

// rbac tries accesses as each service account; writes are dry runs.
func (s *apiServer) rbac(t *testing.T) {
	const namespace, run = "rights", "mine"
	for _, mode := range fleet.Modes() {
		objects, err := fleet.Build(specOf(mode, "kind", namespace, run))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range objects {
			if u.GetKind() == "Job" || u.GetKind() == "Deployment" {
				continue
			}
			if _, err := s.apply(u); err != nil {
				t.Fatal(err)
			}
		}
	}
	const leases, rbac = "coordination.k8s.io", "rbac.authorization.k8s.io"
	pods := []access{
		{"list", leases, "leases", namespace}, {"watch", leases, "leases", namespace},
		{"create", leases, "leases", namespace}, {"patch", leases, "leases", namespace}, {"create", "", "configmaps", namespace},
	}
	watchers := []access{{"list", "", "pods", ""}, {"watch", "", "pods", ""}}
	writers := []access{
		{"list", "", "pods", ""}, {"create", "", "pods", "default"}, {"patch", "", "pods", "default"}, {"delete", "", "pods", "default"},
		{"deletecollection", "", "pods", "default"},
		{"get", "", "namespaces", ""}, {"list", "", "namespaces", ""}, {"create", "", "namespaces", ""}, {"patch", "", "namespaces", ""}, {"delete", "", "namespaces", ""},
		{"create", "", "serviceaccounts", "default"}, {"patch", "", "serviceaccounts", "default"},
	}
	// No service account may do these.
	never := []access{
		{"get", "", "secrets", namespace}, {"list", "", "secrets", namespace}, {"create", "", "secrets", namespace},
		{"list", "", "secrets", ""}, {"get", "", "configmaps", namespace}, {"list", "", "configmaps", namespace}, {"delete", "", "configmaps", namespace},
		{"patch", "", "configmaps", namespace}, {"create", "", "configmaps", "default"}, {"delete", leases, "leases", namespace}, {"get", leases, "leases", namespace}, {"update", leases, "leases", namespace},
		{"deletecollection", leases, "leases", namespace}, {"create", leases, "leases", "kube-system"}, {"list", leases, "leases", ""},
		{"list", "", "nodes", ""}, {"delete", "", "nodes", ""}, {"create", "batch", "jobs", namespace}, {"delete", "batch", "jobs", namespace},
		{"create", "apps", "deployments", namespace}, {"create", rbac, "clusterrolebindings", ""}, {"create", rbac, "rolebindings", namespace},
		{"patch", rbac, "clusterroles", ""}, {"patch", rbac, "roles", namespace}, {"list", "", "events", namespace},
	}
	for account, may := range map[string][]access{
		"watchlab-load":         pods,
		"watchlab-mine-watcher": append(watchers, pods...),
		"watchlab-mine-writer":  append(writers, pods...),
		"default":               nil,
	} {
		allowed := map[access]bool{}
		for _, d := range may {
			allowed[d] = true
		}
		tried := map[access]bool{}
		for _, list := range [][]access{pods, watchers, writers, never} {
			for _, d := range list {
				if tried[d] {
					continue
				}
				tried[d] = true
				err := s.attempt(t.Context(), "system:serviceaccount:"+namespace+":"+account, d)
				switch {
				case allowed[d] && err != nil:
					t.Errorf("%s may not %v: %v", account, d, err)
				case !allowed[d] && !apierrors.IsForbidden(err):
					t.Errorf("%s may %v: %v", account, d, err)
				}
			}
		}
		t.Logf("%s: %d actions allowed, %d denied", account, len(allowed), len(tried)-len(allowed))
	}
}

// attempt sends a request as the user who. A missing object is not an error.
func (s *apiServer) attempt(ctx context.Context, who string, d access) error {
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kind, err := s.mapper.KindFor(schema.GroupVersionResource{Group: d.group, Resource: d.resource})
	if err != nil {
		return err
	}
	m, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	c := dynamic.ResourceInterface(client.Resource(m.Resource))
	if d.namespace != "" {
		c = client.Resource(m.Resource).Namespace(d.namespace)
	}
	const name = "tried"
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	u.SetName(name)
	u.SetNamespace(d.namespace)
	if d.resource == "pods" {
		spec := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}
		if err := unstructured.SetNestedField(u.Object, spec, "spec"); err != nil {
			return err
		}
	}
	dry := []string{metav1.DryRunAll}
	switch d.verb {
	case "get":
		_, err = c.Get(ctx, name, metav1.GetOptions{})
	case "list":
		_, err = c.List(ctx, metav1.ListOptions{Limit: 1})
	case "watch":
		seconds := int64(1)
		w, werr := c.Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds})
		if err = werr; err == nil {
			w.Stop()
		}
	case "create":
		_, err = c.Create(ctx, u, metav1.CreateOptions{DryRun: dry})
	case "update":
		u.SetResourceVersion("1")
		_, err = c.Update(ctx, u, metav1.UpdateOptions{DryRun: dry})
	case "patch":
		_, err = c.Patch(ctx, name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{DryRun: dry})
	case "delete":
		err = c.Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	case "deletecollection":
		err = c.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{LabelSelector: "none=such"})
	default:
		return fmt.Errorf("%q is no verb", d.verb)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // The request was authorized.
	}
	return err
}
