package pipeline_test

import (
	"strings"
	"testing"
	"time"

	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/fault"
)

// TestSources: network faults, relists during a storm, and kubelet's file and http sources lose no event.
// The faults come after a number of frames, and none makes client-go back off for seconds.
func TestSources(t *testing.T) {
	t.Parallel()
	faults := []fault.Spec{
		{Name: fault.Disconnect, Frames: 41, Count: 3},
		{Name: fault.HalfFrame, Frames: 67, Count: 2},
		{Name: fault.Reset, Frames: 97, Count: 1},
		{Name: fault.DuplicateBookmark, Frames: 19, Count: 5},
		{Name: fault.Drip, Frames: 29, Count: 1, Duration: fault.Duration(20 * time.Millisecond)},
		{Name: fault.Stall, Frames: 31, Count: 1, Duration: fault.Duration(20 * time.Millisecond)},
	}
	gone := []fault.Spec{{Name: fault.Gone, Frames: 60, Count: 1, Duration: fault.Duration(time.Millisecond)}}
	informer := pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver"}
	kubelet := pipeline.Config{Family: impls.Merge, Pipeline: "kubelet", Source: "apiserver"}
	memory := kubelet
	memory.Source = "memory"
	for _, tc := range []struct {
		config pipeline.Config
		impls  []string
		faults []fault.Spec
		static int
		title  string // part of it
		unit   string // of a note that is at least one
	}{
		{informer, []string{"clientgo-realfifo-batch", "cond", "ring"}, faults, 0, "fault disconnect:frames=41,count=3", "faults"},
		{kubelet, []string{"reference", "sharded"}, faults, 0, "fault disconnect:frames=41,count=3", "faults"},
		{informer, []string{"cond"}, gone, 0, "", "relists"},
		{kubelet, []string{"cond"}, gone, 0, "", "relists"},
		{kubelet, []string{"reference", "ring"}, nil, 5, "file and http with 5 pods each", "static-changes"},
		{memory, nil, nil, 5, "file and http with 5 pods each", "static-changes"},
	} {
		tc.config.Storm, tc.config.Impls, tc.config.Faults, tc.config.Static = smallStorm(t), tc.impls, tc.faults, tc.static
		tc.config.Paces, tc.config.Duration = rates(1000), 250*time.Millisecond
		made := must(pipeline.Compare(tc.config))(t)
		for _, c := range made {
			if !strings.Contains(c.Title, tc.title) {
				t.Errorf("the title %q lacks %q", c.Title, tc.title)
			}
			for _, cl := range c.Cells {
				if strings.HasPrefix(cl.Label("impl"), planted) {
					continue
				}
				t.Run(tc.unit+"/"+name(cl), func(t *testing.T) {
					t.Parallel() // Most of it is waiting.
					if n, _ := noted(measure(t, cl), tc.unit); n < 1 {
						t.Errorf("%s %v", tc.unit, n)
					}
				})
			}
		}
	}
}
