package merge

import (
	"reflect"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func newPodPacker() *packer[v1.Pod] {
	return newPacker[v1.Pod](mapsOf[v1.ResourceName, resource.Quantity]())
}

func TestCopiesAreEqualAndApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		packer := newPodPacker()
		var pod v1.Pod
		filler(rapid.Int64().Draw(t, "seed")).NumElements(0, 2).Fill(&pod)
		if rapid.Bool().Draw(t, "empty with room") {
			pod.Spec.Tolerations = make([]v1.Toleration, 0, 3)
		}
		want := pod.DeepCopy()
		packed := packer.Pack(&pod)
		one, two := packed.Copy(), packed.Copy()
		runtime.GC()
		if !reflect.DeepEqual(want, one) || !reflect.DeepEqual(want, two) {
			t.Fatalf("a copy differs from\n%#v\ngot\n%#v", want, one)
		}
		// Whatever is written to one copy shows in no other.
		for _, place := range places(reflect.ValueOf(one).Elem(), nil) {
			if place.Kind() == reflect.Slice && place.Len() != place.Cap() {
				t.Fatalf("%v has room for %d more, in which something else lies", place.Type(), place.Cap()-place.Len())
			}
			if place.Kind() == reflect.Map && place.Len() > 0 {
				place.Clear()
			}
		}
		for _, place := range places(reflect.ValueOf(one).Elem(), nil) {
			mutate(place, 3)
		}
		if !reflect.DeepEqual(want, two) || !reflect.DeepEqual(want, &pod) || !reflect.DeepEqual(want, packed.Copy()) {
			t.Fatal("writing to a copy shows elsewhere")
		}
	})
}

func TestCopiesOutliveWhatTheyCameFrom(t *testing.T) {
	packer := newPodPacker()
	var pods, copied []*v1.Pod
	for seed := range int64(20) {
		pod := &v1.Pod{}
		filler(seed).NumElements(1, 2).Fill(pod)
		pods = append(pods, pod.DeepCopy())
		packed := packer.Pack(pod)
		for range 20 {
			copied = append(copied, packed.Copy())
		}
		runtime.GC()
	}
	runtime.GC()
	for i, pod := range copied {
		if !reflect.DeepEqual(pods[i/20], pod) {
			t.Fatalf("copy %d differs after collections", i)
		}
	}
}

func TestShapesAreBounded(t *testing.T) {
	p := newPacker[[]int16]()
	for n := range maxShapes {
		v := make([]int16, n)
		if p.Pack(&v) == nil {
			t.Fatalf("shape %d isn't packed", n)
		}
	}
	v := make([]int16, maxShapes)
	if p.Pack(&v) != nil {
		t.Error("one shape too many")
	}
	v = []int16{1, 2, 3}
	if q := p.Pack(&v); q == nil || !reflect.DeepEqual(*q.Copy(), v) {
		t.Error("a known shape isn't packed any more")
	}
}

func TestUnpackableTypes(t *testing.T) {
	for what, pack := range map[string]func(){
		"tree":      func() { newPacker[tree]() },
		"interface": func() { newPacker[any]() },
		"func":      func() { newPacker[struct{ F []func() }]() },
		"map":       func() { newPacker[*map[int]int]() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			pack()
		}()
	}
}
