package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/fleet"
	"watchlab/bench/lab"
)

// collectable returns the results of two pods of one small run, three cells each.
func collectable(t *testing.T) []*lab.Share {
	t.Helper()
	var shares []*lab.Share
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), "run")
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"run", "--ignore-host", "--family", "queue", "--impl", "cond", "--storm", tiny, "--events", "3000", "--rounds", "1", "--share", fmt.Sprintf("%d/2", i), "--out", dir}, new(bytes.Buffer), &stderr)
		if code != exitOK {
			t.Fatal(stderr.String())
		}
		o := must(lab.Load(dir))(t)
		s := &lab.Share{Index: i, Of: 2, Pod: fmt.Sprintf("mine-%d", i), Node: "node-a", Outcome: o}
		for _, c := range o.Comparisons[0].Cells {
			s.Starts = append(s.Starts, lab.Start{Cell: c.BenchName(), Round: 1})
		}
		shares = append(shares, s)
	}
	return shares
}

// collected runs collect and returns its exit code and output.
func collected(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"cluster", "collect"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// storedMaps keeps uploaded ConfigMaps.
type storedMaps struct{ corev1.ConfigMapList }

func (s *storedMaps) Create(_ context.Context, m *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	s.Items = append(s.Items, *m)
	return m, nil
}

func (s *storedMaps) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return &s.ConfigMapList, nil
}

// TestCollectEarly: before the end of a run, collect writes nothing and says in one line when to
// collect.
func TestCollectEarly(t *testing.T) {
	shares := collectable(t)
	t.Chdir(t.TempDir())
	answers := map[string]string{
		"watchlab-mine": `"v1", "kind": "ConfigMap", "metadata": {}, "data": {"plan.yaml": "run: mine\npods: 2\nbarrier: 0s\n"}`,
		"jobs":          `"batch/v1", "kind": "JobList", "items": [{"metadata": {"name": "watchlab-mine"}}]`,
		"pods":          `"v1", "kind": "PodList", "items": []`,
		"leases":        `"coordination.k8s.io/v1", "kind": "LeaseList", "items": []`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		which := path.Base(r.URL.Path)
		fmt.Fprintf(w, `{"apiVersion": %s}`, answers[which])
	}))
	defer s.Close()
	for _, n := range []int{0, 1} {
		maps := &storedMaps{}
		for _, s := range shares[:n] {
			if _, err := (fleet.ConfigMaps{Client: maps}).Upload(t.Context(), "mine", s); err != nil {
				t.Fatal(err)
			}
		}
		items := must(json.Marshal(maps.Items))(t)
		answers["configmaps"] = fmt.Sprintf(`"v1", "kind": "ConfigMapList", "items": %s`, items)
		code, _, stderr := collected(t, "--kubeconfig", kubeconfigOf(t, s.URL), "--name", "mine")
		for _, want := range []string{"run mine has not ended: 2 pods: 2 absent; ", "watchlab cluster status"} {
			if code != exitInvalid || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%d results: exit code %d, stderr %q, want one line with %q", n, code, stderr, want)
			}
		}
		if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
			t.Errorf("%d results: %v are written, %v", n, entries, err)
		}
	}
}
