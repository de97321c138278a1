package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/fault"
)

// note returns a note of a round.
func note(res cell.Result, name string) float64 {
	for _, n := range res.Notes {
		if n.Unit == name {
			return n.Value
		}
	}
	return -1
}

// TestKubeletWithAllSources: with file and http sources, the storm's notifications are
// unchanged, and no static pod is lost.
func TestKubeletWithAllSources(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"memory", "apiserver"} {
		spec := pipeline.Config{
			Family: impls.Merge, Pipeline: "kubelet", Source: source, Static: 5,
			Storm: smallStorm(t), Paces: rates(1000), Duration: 250 * time.Millisecond,
		}
		if source == "apiserver" {
			spec.Impls = []string{"reference", "ring"}
		}
		comparisons, err := pipeline.Compare(spec)
		if err != nil {
			t.Fatal(err)
		}
		if title := comparisons[0].Title; !strings.Contains(title, "file and http with 5 pods each") {
			t.Errorf("the title %q doesn't say so", title)
		}
		for _, c := range comparisons[0].Cells {
			if strings.HasPrefix(c.Labels[0].Value, planted) {
				continue
			}
			t.Run(name(c), func(t *testing.T) {
				t.Parallel() // Most of it is waiting.
				res, runErr, checkErr := play(t.Context(), t, c)
				if err := errors.Join(runErr, checkErr); err != nil {
					t.Fatal(err)
				}
				if n := note(res, "static-changes"); n < 1 {
					t.Errorf("%v static pods were changed", n)
				}
			})
		}
	}
}

// TestPipelinesWithFaults: network faults lose no event. The faults come after a number
// of frames, and none makes client-go back off for seconds.
func TestPipelinesWithFaults(t *testing.T) {
	t.Parallel()
	faults := []fault.Spec{
		{Name: fault.Disconnect, Frames: 41, Count: 3},
		{Name: fault.HalfFrame, Frames: 67, Count: 2},
		{Name: fault.Reset, Frames: 97, Count: 1},
		{Name: fault.DuplicateBookmark, Frames: 19, Count: 5},
		{Name: fault.Drip, Frames: 29, Count: 1, Duration: fault.Duration(20 * time.Millisecond)},
		{Name: fault.Stall, Frames: 31, Count: 1, Duration: fault.Duration(20 * time.Millisecond)},
	}
	for _, family := range []impls.Family{impls.DeltaFIFO, impls.Merge} {
		spec := pipeline.Config{
			Family: family, Source: "apiserver", Pipeline: "informer", Impls: []string{"clientgo-realfifo-batch", "cond", "ring"},
			Storm: smallStorm(t), Paces: rates(2000), Faults: faults, Duration: 100 * time.Millisecond,
		}
		if family == impls.Merge {
			spec.Pipeline, spec.Impls = "kubelet", []string{"reference", "sharded"}
		}
		comparisons, err := pipeline.Compare(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, comparison := range comparisons {
			if !strings.Contains(comparison.Title, "fault disconnect:frames=41,count=3") {
				t.Errorf("the title %q doesn't name the faults", comparison.Title)
			}
			for _, c := range comparison.Cells {
				if strings.HasPrefix(c.Labels[0].Value, planted) {
					continue
				}
				t.Run(name(c), func(t *testing.T) {
					t.Parallel() // Most of it is waiting.
					res, runErr, checkErr := play(t.Context(), t, c)
					if err := errors.Join(runErr, checkErr); err != nil {
						t.Fatal(err)
					}
					if n := note(res, "faults"); n < 4 {
						t.Errorf("%v faults struck", n)
					}
				})
			}
		}
	}
}

// TestPipelinesThatRelist: the storm continues during a relist, and no event is lost.
func TestPipelinesThatRelist(t *testing.T) {
	t.Parallel()
	faults := []fault.Spec{{Name: fault.Gone, Frames: 60, Count: 1, Duration: fault.Duration(time.Millisecond)}}
	for _, family := range []impls.Family{impls.DeltaFIFO, impls.Merge} {
		spec := pipeline.Config{
			Family: family, Source: "apiserver", Pipeline: "informer", Impls: []string{"cond"},
			Storm: smallStorm(t), Paces: rates(500), Faults: faults, Duration: 500 * time.Millisecond,
		}
		if family == impls.Merge {
			spec.Pipeline = "kubelet"
		}
		comparisons, err := pipeline.Compare(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, comparison := range comparisons {
			for _, c := range comparison.Cells {
				t.Run(name(c), func(t *testing.T) {
					t.Parallel() // Most of it is waiting.
					res, runErr, checkErr := play(t.Context(), t, c)
					if err := errors.Join(runErr, checkErr); err != nil {
						t.Fatal(err)
					}
					if n := note(res, "relists"); n < 1 {
						t.Errorf("%v relists", n)
					}
				})
			}
		}
	}
}

func TestTooManyStaticPods(t *testing.T) {
	_, err := pipeline.Compare(pipeline.Config{Family: impls.Merge, Pipeline: "kubelet", Static: 1001, Storm: smallStorm(t)})
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "1001 static pods") {
		t.Errorf("%v", err)
	}
}
