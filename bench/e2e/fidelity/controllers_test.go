package fidelity

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"watchlab/bench/e2e/programs"
)

// judged are controllers of kube-controller-manager that make objects, or keep their status.
var judged = []string{
	"deployment", "replicaset", "replicationcontroller", "statefulset", "daemonset", "job", "cronjob", "endpoints", "endpointslice",
	"endpointslice-mirroring", "serviceaccount", "ephemeral-volume", "resourceclaim", "disruption",
	"persistentvolume-binder", "horizontal-pod-autoscaler",
}

// TestControllers lets real controllers work on the same objects with both servers. All objects at the end are equal, field by
// field, but for what placeholders stand for, and versions.
func TestControllers(t *testing.T) {
	servers := []*Server{realAnswers(t), simulatedAnswers(t)}
	manager, kubectl := programs.Pinned(t, "kube-controller-manager"), programs.Pinned(t, "kubectl")
	for _, s := range servers {
		create := func(args ...string) {
			cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", s.kubeconfig, "create"}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", s.Name, err, out)
			}
		}
		create("namespace", "controllers")
		programs.Start(t, exec.Command(manager, "--kubeconfig", s.kubeconfig, "--controllers", strings.Join(judged, "-controller,")+"-controller",
			"--leader-elect=false", "--use-service-account-credentials=false", "--secure-port=0", "--kube-api-qps=100", "--kube-api-burst=200"), -1, 0)
		programs.Eventually(t, "there is a service account", func() error {
			_, err := dynamic.NewForConfigOrDie(s.config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).
				Namespace("controllers").Get(t.Context(), "default", metav1.GetOptions{})
			return err
		})
		create("-f", "testdata/controllers.yaml")
	}
	programs.Eventually(t, "the objects are equal", func() error {
		var objects [2]map[string]any
		for i, s := range servers {
			var err error
			if objects[i], err = s.objects(t.Context()); err != nil {
				return err
			}
		}
		if objects[0]["jobs.batch any"] == nil {
			return errors.New("the CronJob's time has not come")
		}
		var errs []error
		for _, d := range values(nil, "objects", "", objects[0], objects[1]) {
			errs = append(errs, errors.New(d.String()))
		}
		if len(errs) == 0 {
			t.Logf("%d objects", len(objects[0]))
		}
		return errors.Join(errs...)
	})
}

// random matches what differs in each play: uids, times, and names of volumes and of the jobs of CronJobs, addresses, versions.
var random = regexp.MustCompile(uids.String() + "|" + times.String() + `|kube-api-access-\w{5}|nightly-\d{8}|10\.96\.\d+\.\d+|"resourceVersion":"\d+"`)

// objects returns all objects of the namespace and the nodes, by resource and name.
func (s *Server) objects(ctx context.Context) (map[string]any, error) {
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(s.config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var generated []string
	found := map[string]*unstructured.UnstructuredList{}
	for _, group := range resources {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range group.APIResources {
			if r.Name == "events" || !slices.Contains(r.Verbs, "watch") || !r.Namespaced && r.Name != "nodes" && r.Name != "persistentvolumes" {
				continue
			}
			namespace := "" // none
			if r.Namespaced {
				namespace = "controllers"
			}
			list, err := client.Resource(gv.WithResource(r.Name)).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for _, o := range list.Items {
				if base := o.GetGenerateName(); base != "" {
					generated = append(generated, o.GetName(), base+"?")
				}
			}
			found[gv.WithResource(r.Name).GroupResource().String()] = list
		}
	}
	names := strings.NewReplacer(generated...)
	out := map[string]any{}
	for resource, list := range found {
		for _, o := range list.Items {
			o.SetResourceVersion("")
			managers := map[string]any{} // They are sorted by their times.
			for _, e := range o.GetManagedFields() {
				managers[e.Manager+" "+string(e.Operation)+" "+e.Subresource] = e
			}
			o.SetManagedFields(nil)
			data, err := json.Marshal(map[string]any{"object": o.Object, "managers": managers})
			if err != nil {
				return nil, err
			}
			text := random.ReplaceAllStringFunc(names.Replace(string(data)), func(text string) string {
				if strings.HasPrefix(text, `"`) {
					return `"resourceVersion":"any"`
				}
				return "any"
			})
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				return nil, err
			}
			out[resource+" "+random.ReplaceAllString(names.Replace(o.GetName()), "any")] = value
		}
	}
	return out, nil
}
