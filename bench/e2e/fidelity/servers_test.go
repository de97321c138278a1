package fidelity

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/loadgen/apiserver"
)

var updateDocs = flag.Bool("update", false, "rewrite the generated part of docs/fidelity.md")

// fidelityPage holds the output of TestFidelity between two marks.
var fidelityPage = filepath.Join("..", "..", "..", "docs", "fidelity.md")

const (
	fidelityBegin = "<!-- made by TestFidelity in bench/e2e: -update writes it -->\n"
	fidelityEnd   = "<!-- end of what TestFidelity makes -->\n"
	// simulatedHistory is the number of events that the simulated server retains.
	// It is small, so that [Server.Forget] can push versions out of it.
	simulatedHistory = 150
)

// TestFidelity sends the same requests to a real kube-apiserver and to the
// simulated one. Their answers are equal, except for the differences that
// docs/fidelity.md lists with a reason each.
func TestFidelity(t *testing.T) {
	truth, simulated := realAnswers(t), simulatedAnswers(t)
	eventually := func(what string, check func() error) { programs.Eventually(t, what, check) }
	for _, s := range []*Server{truth, simulated} {
		if err := s.Define(t.Context(), eventually); err != nil {
			t.Fatal(err)
		}
	}
	var results []*Result
	for i, q := range Questions() {
		r, err := Compare(t.Context(), simulated, truth, q, fmt.Sprintf("fidelity-%d", i))
		if err == nil && r.Check() != nil {
			// A real server may end a watch at any time; it ends all of them at the
			// first burst of writes. A second attempt is not affected.
			r, err = Compare(t.Context(), simulated, truth, q, fmt.Sprintf("fidelity-%d", 1000+i))
		}
		if err == nil {
			results = append(results, r)
			err = r.Check()
		}
		if err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(fidelityPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), fidelityBegin)
	old, after, closed := strings.Cut(rest, fidelityEnd)
	if !ok || !closed {
		t.Fatalf("%s lacks the markers of the generated part", fidelityPage)
	}
	page := "\n" + Page(results, truth.Name, simulated.Name) + "\n"
	switch {
	case page == old:
	case *updateDocs:
		if err := os.WriteFile(fidelityPage, []byte(before+fidelityBegin+page+fidelityEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date (go test -run TestFidelity -update):\n%s", fidelityPage, firstChange(old, page))
	}
}

// firstChange returns the first line that differs.
func firstChange(old, now string) string {
	was, is := strings.Split(old, "\n"), strings.Split(now, "\n")
	for i := range max(len(was), len(is)) {
		var a, b string
		if i < len(was) {
			a = was[i]
		}
		if i < len(is) {
			b = is[i]
		}
		if a != b {
			return fmt.Sprintf("it says  %s\nit is now %s", a, b)
		}
	}
	return ""
}

// realAnswers starts a kube-apiserver. It runs no controllers: their writes would
// appear in the answers of one server only.
func realAnswers(t *testing.T) *Server {
	cp := controlplane.ForTest(t, controlplane.Options{})
	s, err := NewServer("kube-apiserver "+cp.Release(), cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	s.Forget = func(ctx context.Context) error { return compact(ctx, cp) }
	return s
}

// compact makes etcd drop all revisions before the current one.
func compact(ctx context.Context, cp *controlplane.ControlPlane) error {
	list, err := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	body := strings.NewReader(fmt.Sprintf(`{"revision":"%s"}`, list.ResourceVersion))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cp.EtcdURL()+"/v3/kv/compaction", body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd compaction: %s", resp.Status)
	}
	return nil
}

// simulatedAnswers starts the server of `watchlab serve`.
func simulatedAnswers(t *testing.T) *Server {
	srv, err := apiserver.Open(apiserver.Options{Retain: simulatedHistory})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	config := &rest.Config{Host: url}
	s, err := NewServer("watchlab serve", config)
	if err != nil {
		t.Fatal(err)
	}
	s.Forget = func(ctx context.Context) error { return outlive(ctx, config) }
	return s
}

// outlive writes more events than the simulated server retains.
func outlive(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no client-side rate limit
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c := client.Resource(widgets.GroupVersionResource).Namespace("default")
	widget := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"generateName": "outlive-"}, "spec": map[string]any{"size": "small"},
	}}
	widget.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	if widget, err = c.Create(ctx, widget, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range simulatedHistory + 10 {
		patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, i)
		if _, err := c.Patch(ctx, widget.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}
