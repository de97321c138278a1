package pipeline_test

import (
	"regexp"
	runtimepprof "runtime/pprof"
	"strings"
	"testing"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/pprof"
	"watchlab/impls"
)

var stageLabel = regexp.MustCompile(`"stage":"([a-z]+)"`)

// stagesOf plays a cell with profile labels and returns the observed stages of its goroutines.
func stagesOf(t *testing.T, cl lab.Cell) map[string]bool {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		ctx := pprof.With(t.Context(), "family", lab.Labels{{Key: "impl", Value: "variant"}, {Key: "storm", Value: "storm"}})
		if _, runErr, checkErr := play(ctx, t, cl); runErr != nil || checkErr != nil {
			t.Error(runErr, checkErr)
		}
	}()
	seen := map[string]bool{}
	for {
		select {
		case <-over:
			return seen
		default:
		}
		var b strings.Builder
		if err := runtimepprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Error(err)
		}
		for _, m := range stageLabel.FindAllStringSubmatch(b.String(), -1) {
			seen[m[1]] = true
		}
	}
}

// TestStages: each goroutine carries the label of its stage.
func TestStages(t *testing.T) {
	for _, tc := range []struct {
		spec pipeline.Config
		want []string
	}{
		{pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "queue", HandlerCost: time.Millisecond}, []string{"produce", "pop", "handle"}},
		{pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "informer", HandlerCost: time.Millisecond, Readers: 1}, []string{"source", "handle", "work", "read"}},
		{pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver", Events: 5000}, []string{"source", "decode", "work"}},
		{pipeline.Config{Family: impls.Merge, Pipeline: "queue"}, []string{"produce", "merge", "handle"}},
		{pipeline.Config{Family: impls.Merge, Pipeline: "kubelet"}, []string{"source", "merge", "sync"}},
	} {
		tc.spec.Impls = []string{"cond"}
		if tc.spec.Events == 0 {
			tc.spec.Paces = rates(2000)
		}
		cl := comparisons(t, tc.spec)[0]
		t.Run(name(cl), func(t *testing.T) {
			seen := stagesOf(t, cl)
			for _, stage := range tc.want {
				if !seen[stage] {
					t.Errorf("no goroutine was of stage %s: %v", stage, seen)
				}
			}
		})
	}
}
