// Package e2e_test tests watchlab against a real control plane.
package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// playedShare plays one share of a small run.
func playedShare(t *testing.T, index, of int) *lab.Share {
	t.Helper()
	s := must(trace.Load("recorded-gang"))(t)
	comparisons, err := pipeline.Compare(pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Source: source.MemoryName, Modes: []string{"in-order"},
		Impls: []string{"clientgo-realfifo-batch", "ring"}, Storm: s, Share: storm.Share{Index: index, Count: of}, Duration: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := lab.Run(t.Context(), comparisons, lab.Options{Name: "scale", Rounds: 1, Seed: 1, IgnoreHost: true, Build: lab.Build{Commit: "e2e"}})
	if err != nil {
		t.Fatal(err)
	}
	return &lab.Share{Index: index, Of: of, Pod: fmt.Sprintf("watchlab-scale-%d-xxxxx", index), Node: "node", Outcome: o}
}

// TestCollectFromAPIServer uploads the results of three pods to ConfigMaps of a real API server, twice, and merges
// them. One of them needs two ConfigMaps. Collect names the pod of a lost one.
func TestCollectFromAPIServer(t *testing.T) {
	const pods = 3
	client := kubernetes.NewForConfigOrDie(controlplane.ForTest(t, controlplane.Options{}).Config()).CoreV1()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "results"}}
	if _, err := client.Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := fleet.ConfigMaps{Client: client.ConfigMaps("results")}
	for i := range pods {
		share := playedShare(t, i, pods)
		if i == 1 {
			noise := make([]byte, 1100<<10)
			rng := rand.NewChaCha8([32]byte{})
			_, _ = rng.Read(noise)
			share.Outcome.Env.Args = []string{fmt.Sprintf("%x", noise)}
		}
		for range 2 {
			if _, err := maps.Upload(t.Context(), "scale", share); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := client.ConfigMaps("results").List(t.Context(), metav1.ListOptions{LabelSelector: fleet.PodLabel})
	if err != nil || len(list.Items) != pods+1 {
		t.Fatalf("%d ConfigMaps, want %d: %v", len(list.Items), pods+1, err)
	}
	o, damaged, err := maps.Collect(t.Context(), "scale", pods, lab.MergeOptions{})
	if err != nil || len(damaged) > 0 || len(o.Merged.Shares) != pods {
		t.Fatalf("damaged %v, error %v", damaged, err)
	}
	if err := client.ConfigMaps("results").Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if o, _, err = maps.Collect(t.Context(), "scale", pods, lab.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if missing := o.Merged.Missing; len(missing) != 1 || strconv.Itoa(missing[0]) != list.Items[0].Labels[fleet.PodLabel] {
		t.Errorf("missing: %v", missing)
	}
}
