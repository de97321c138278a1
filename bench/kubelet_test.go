package bench_test

import (
	"fmt"
	"testing"

	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/source"
)

// BenchmarkKubelet measures the mergers where they work: behind a Reflector
// that pushes the whole list of a node's pods after every event, and before a
// sync loop. It plays the workload that the command plays, from memory; an
// iteration is one round, as in [BenchmarkInformer]. The node has kubelet's
// default of 110 pods.
func BenchmarkKubelet(b *testing.B) {
	storm, err := gang()
	if err != nil {
		b.Fatal(err)
	}
	comparisons, err := pipeline.Compare(pipeline.Config{
		Family: impls.Merge, Pipeline: pipeline.KubeletPipeline, Source: source.MemoryName, Storm: storm,
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range comparisons {
		for _, cl := range c.Cells {
			b.Run(fmt.Sprintf("impl=%s/pods=%d", label(cl, "impl"), pipeline.NodePods), func(b *testing.B) {
				measureRounds(b, cl)
			})
		}
	}
}
