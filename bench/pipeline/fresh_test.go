package pipeline

import (
	"errors"
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// TestFreshObjects: by default no two events share an object or the memory of its names; a merger's
// pods share nothing at all. A storm of a profile shares both, and laps share those of the lap before.
func TestFreshObjects(t *testing.T) {
	t.Parallel()
	base := nodeLoss(t)
	for name, c := range map[string]struct {
		Config
		names, specs bool // share memory
	}{
		"fresh, queue":      {Config{Family: impls.DeltaFIFO, Storm: base.Metadata()}, false, false},
		"fresh, informer":   {Config{Family: impls.DeltaFIFO, Storm: base}, false, true},
		"fresh, merge":      {Config{Family: impls.Merge, Storm: base}, false, false},
		"named":             {Config{Family: impls.Merge, Storm: base, Objects: ObjectsFresh}, false, false},
		"shared, queue":     {Config{Family: impls.DeltaFIFO, Storm: base.Metadata(), Objects: ObjectsShared}, true, false},
		"shared, merge":     {Config{Family: impls.Merge, Storm: base, Objects: ObjectsShared}, true, true},
		"decoded anyway":    {Config{Family: impls.DeltaFIFO, Storm: base, Source: source.APIServerName}, true, true},
		"fresh, two halves": {Config{Family: impls.Queue, Storm: base.Metadata(), Producers: 2}, false, false},
	} {
		if c.Source == "" {
			c.Source = source.MemoryName
		}
		c.Events, c.Seed, c.Producers = 2*len(base.Events), 1, max(1, c.Producers)
		m := &material{Config: c.Config}
		s := m.score(pace.Pace{}).Storm
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		names, specs := map[*byte]bool{}, map[*v1.Container]bool{}
		sharedNames, sharedSpecs := false, false
		for i := range s.Events {
			o, err := meta.Accessor(s.Events[i].Object)
			if err != nil {
				t.Fatal(err)
			}
			at := unsafe.StringData(o.GetName())
			sharedNames, names[at] = sharedNames || names[at], true
			if pod, ok := s.Events[i].Object.(*v1.Pod); ok && len(pod.Spec.Containers) > 0 {
				at := &pod.Spec.Containers[0]
				sharedSpecs, specs[at] = sharedSpecs || specs[at], true
			}
		}
		if sharedNames != c.names || sharedSpecs != c.specs {
			t.Errorf("%s: names share memory %v, specs %v; want %v, %v", name, sharedNames, sharedSpecs, c.names, c.specs)
		}
	}
}

// TestFreshObjectsAreAnInputOfTheirOwn: runs with fresh and with shared objects have different digests
// and different cells, so that neither compare nor gate mixes them up.
func TestFreshObjectsAreAnInputOfTheirOwn(t *testing.T) {
	t.Parallel()
	config := Config{Family: impls.Queue, Pipeline: QueuePipeline, Storm: nodeLoss(t)}
	inputs, names := map[string]Objects{}, map[string]Objects{}
	for _, o := range []Objects{"", ObjectsShared} {
		config.Objects = o
		comparisons, err := Compare(config)
		if err != nil {
			t.Fatal(err)
		}
		inputs[comparisons[0].Input], names[comparisons[0].Cells[0].BenchName()] = o, o
	}
	if len(inputs) != 2 || len(names) != 2 {
		t.Errorf("inputs %v, cells %v", inputs, names)
	}
	config.Objects = "borrowed"
	if _, err := Compare(config); !errors.Is(err, ErrConfig) {
		t.Errorf("error %v, want ErrConfig", err)
	}
}
