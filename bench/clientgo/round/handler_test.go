package round

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

func pod(version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: version}}
}

// The storm adds, updates and deletes one pod.
func TestHandler(t *testing.T) {
	for _, c := range []struct {
		name string
		see  func(*handler)
		want error
		done bool
	}{
		{"all", func(h *handler) {
			h.OnAdd(pod("1"), true)
			h.OnUpdate(pod("1"), pod("2"))
			h.OnDelete(pod("3"))
		}, nil, true},
		{"one missing", func(h *handler) {
			h.OnAdd(pod("1"), true)
			h.OnDelete(pod("3"))
		}, nil, false},
		{"one twice", func(h *handler) {
			h.OnAdd(pod("1"), true)
			h.OnUpdate(pod("1"), pod("2"))
			h.OnUpdate(pod("1"), pod("2"))
			h.OnDelete(pod("3"))
		}, lab.ErrDuplicated, true},
		{"an older one later", func(h *handler) {
			h.OnUpdate(nil, pod("2"))
			h.OnAdd(pod("1"), true)
			h.OnDelete(pod("3"))
		}, lab.ErrReordered, true},
		{"another type", func(h *handler) {
			h.OnAdd(pod("1"), true)
			h.OnAdd(pod("2"), false)
			h.OnDelete(pod("3"))
		}, lab.ErrDiverged, true},
		{"an unknown one", func(h *handler) { h.OnAdd(pod("4"), false) }, lab.ErrDiverged, false},
		{"no version", func(h *handler) { h.OnAdd(pod(""), false) }, lab.ErrDiverged, false},
		{"no object", func(h *handler) { h.OnAdd("a/b", false) }, lab.ErrDiverged, false},
	} {
		h := newHandler(&storm.Storm{Initial: 1, Keys: 1, Events: []storm.Event{
			{Seq: 1, Type: watch.Added}, {Seq: 2, Type: watch.Modified}, {Seq: 3, Type: watch.Deleted},
		}})
		c.see(&h)
		if !errors.Is(h.broken, c.want) || h.broken != nil && c.want == nil {
			t.Errorf("%s: %v (want %v)", c.name, h.broken, c.want)
		}
		done := false
		select {
		case <-h.done:
			done = true
		default:
		}
		if done != c.done {
			t.Errorf("%s: done is %t (want %t)", c.name, done, c.done)
		}
	}
}
