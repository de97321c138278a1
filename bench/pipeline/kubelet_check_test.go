package pipeline

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/bench/lab"
	"watchlab/impls/merge"
	"watchlab/loadgen/storm"
)

// TestStaticPodsCheck: the checker finds each mistake of a merger with static pods.
func TestStaticPodsCheck(t *testing.T) {
	pod := func(name string, version int) *v1.Pod {
		p := manifestOf(name, version)
		p.UID = types.UID(p.Spec.Containers[0].Image)
		p.Name += "-" + storm.NodeName
		return &p
	}
	update := func(op merge.Op, source string, pods ...*v1.Pod) merge.PodUpdate {
		return merge.PodUpdate{Op: op, Source: source, Pods: pods}
	}
	first := []merge.PodUpdate{update(merge.ADD, merge.FileSource, pod("file-0", 1)), update(merge.ADD, merge.HTTPSource, pod("http-0", 1))}
	second := []merge.PodUpdate{
		update(merge.REMOVE, merge.FileSource, pod("file-0", 1)), update(merge.ADD, merge.FileSource, pod("file-0", 2)),
		update(merge.REMOVE, merge.HTTPSource, pod("http-0", 1)), update(merge.ADD, merge.HTTPSource, pod("http-0", 2)),
	}
	for name, test := range map[string]struct {
		updates []merge.PodUpdate
		want    error
	}{
		"all":                      {append(first[:2:2], second...), nil},
		"the first versions only":  {first, lab.ErrLost},
		"nothing of a source":      {[]merge.PodUpdate{first[0], second[0], second[1]}, lab.ErrLost},
		"a pod that isn't removed": {append(first[:2:2], second[1:]...), lab.ErrLost},
		"a version twice":          {append(first[:2:2], append(second[:4:4], second[1])...), lab.ErrDuplicated},
		"a pod removed twice":      {append(first[:2:2], append(second[:1:1], second...)...), lab.ErrDuplicated},
		"an old version again":     {append(first[:2:2], append(second[:4:4], second[0], update(merge.ADD, merge.FileSource, pod("file-0", 1)))...), lab.ErrReordered},
		"an update":                {append(first[:2:2], append(second[:4:4], update(merge.UPDATE, merge.FileSource, pod("file-0", 2)))...), lab.ErrDiverged},
		"a pod of another source":  {append(first[:2:2], append(second[:4:4], update(merge.ADD, "other", pod("file-0", 3)))...), lab.ErrDiverged},
		"a pod without a manifest": {append(first[:2:2], append(second[:4:4], update(merge.ADD, merge.FileSource, &v1.Pod{}))...), lab.ErrDiverged},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newStaticPods(1)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			if err := s.change(0); err != nil {
				t.Fatal(err)
			}
			for _, u := range test.updates {
				s.take(u)
			}
			var v violations
			s.check(&v)
			switch err := v.err(); {
			case test.want == nil && err != nil:
				t.Error(err)
			case test.want != nil && !errors.Is(err, test.want):
				t.Errorf("%v, want %v", err, test.want)
			}
			settled := s.settled()
			// The run waits for lost pods and for old versions, so these cases stall.
			if waits := test.want == lab.ErrLost || test.want == lab.ErrReordered; settled == waits { //nolint:errorlint // It is itself.
				t.Errorf("settled: %v", settled)
			}
		})
	}
}
