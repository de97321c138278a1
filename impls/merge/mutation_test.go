package merge_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/impls/merge"
)

const detector = "KUBE_CACHE_MUTATION_DETECTOR"

// TestChangedInPlace: a pod that is changed in place and sent again gives no UPDATE, and client-go's
// mutation detector, if enabled, ends the process.
func TestChangedInPlace(t *testing.T) {
	for _, v := range merge.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) {
			m, err := v.New(merge.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Labels: map[string]string{"changed": "no"}}}
			for range 2 {
				if err := m.Merge(t.Context(), merge.FileSource, merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{pod}}); err != nil {
					t.Fatal(err)
				}
				pod.Labels["changed"] = "yes"
			}
			if os.Getenv(detector) != "" {
				<-t.Context().Done() // The detector ends the process.
			}
			if got := <-m.Updates(); got.Op != merge.ADD || len(m.Updates()) > 0 {
				t.Errorf("received %v, then %d, want one ADD", got.Op, len(m.Updates()))
			}
			if testing.Short() {
				return
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChangedInPlace$/impl="+v.Name+"$", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), detector+"=true")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "cache merge modified") {
				t.Errorf("with a detector the process ended with %v and wrote %s", err, out)
			}
		})
	}
}
