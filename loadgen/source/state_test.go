package source

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/loadgen/storm"
)

// build returns a valid storm in which event i has the key keys[i]. Its type follows from the
// key's state and deletes[i].
func build(keys []int, deletes []bool) *storm.Storm {
	s := &storm.Storm{Kind: v1.SchemeGroupVersion.WithKind("Pod")}
	index, live := map[int]int32{}, map[int]bool{}
	for i, k := range keys {
		if _, ok := index[k]; !ok {
			index[k] = int32(len(index))
		}
		kind := watch.Added
		if live[k] {
			kind = watch.Modified
			if deletes[i] {
				kind = watch.Deleted
			}
		}
		live[k] = kind != watch.Deleted
		name := fmt.Sprintf("pod-%d", k)
		s.Events = append(s.Events, storm.Event{
			Type: kind, Seq: uint64(i + 1), Key: name, KeyIndex: index[k],
			Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(i + 1)}},
		})
	}
	s.Keys = len(index)
	return s
}

// The state at any position is the result of the events up to it, in order of key.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "events")
		keys := rapid.SliceOfN(rapid.IntRange(0, 12), n, n).Draw(t, "keys")
		deletes := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "deletes")
		s := build(keys, deletes)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, n).Draw(t, "at")
		part := *s
		part.Events = s.Events[:at]
		got, order := map[string]uint64{}, []string{}
		for _, o := range NewMemory(s).state(uint64(at)) {
			pod := o.(*v1.Pod)
			seq, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got[pod.Name] = seq
			order = append(order, pod.Name)
		}
		if diff := cmp.Diff(part.Final(), got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if !slices.IsSorted(order) {
			t.Fatalf("order %v", order)
		}
	})
}
