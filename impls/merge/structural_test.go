package merge

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/randfill"
)

var (
	podSpecs    = equalOf[v1.PodSpec]()
	podStatuses = equalOf[v1.PodStatus]()
	objectMetas = equalOf[metav1.ObjectMeta]()
)

// filler fills API objects at random, the unexported parts of quantities and times too.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			values := []string{"0", "1", "100m", "1500m", "64Mi", "1Gi", "1e3", "123456789012345678901234567890"}
			*q = resource.MustParse(values[c.Intn(len(values))])
			if c.Bool() {
				_ = q.String()
			}
		},
		func(tm *metav1.Time, c randfill.Continue) {
			*tm = metav1.Unix(int64(c.Intn(3)), int64(c.Intn(2)))
			switch c.Intn(3) {
			case 0:
				*tm = metav1.NewTime(tm.UTC())
			case 1:
				*tm = metav1.NewTime(tm.In(time.FixedZone("x", 60+c.Intn(2))))
			}
		},
	)
}

// checkMutations compares filled values of T with a copy, and then with a copy
// that differs in one place.
func checkMutations[T any](t *testing.T, equal func(a, b *T) bool, deepCopy func(*T) *T) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		var a T
		filler(rapid.Int64().Draw(t, "seed")).Fill(&a)
		b := deepCopy(&a)
		agree := func(what string) {
			t.Helper()
			if got, want := equal(&a, b), reflect.DeepEqual(&a, b); got != want {
				t.Fatalf("%s: got %v, reflect.DeepEqual says %v\na: %#v\nb: %#v", what, got, want, a, *b)
			}
		}
		agree("copy")
		if !equal(&a, &a) {
			t.Fatalf("differs from itself: %#v", a)
		}
		sites := places(reflect.ValueOf(b).Elem(), nil)
		if len(sites) == 0 {
			return
		}
		n := rapid.IntRange(0, len(sites)-1).Draw(t, "place")
		mutate(sites[n], rapid.IntRange(0, 3).Draw(t, "how"))
		agree("mutated " + sites[n].Type().String())
	})
}

// places returns every value below v that can be changed where it is, the unexported ones included.
func places(v reflect.Value, to []reflect.Value) []reflect.Value {
	v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			to = places(v.Field(i), to)
		}
		return to
	case reflect.Pointer:
		// A location is shared by all times that have it.
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			to = places(v.Elem(), to)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			to = places(v.Index(i), to)
		}
	}
	return append(to, v)
}

func mutate(v reflect.Value, how int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 1)
	case reflect.Slice:
		switch {
		case how == 0 && v.IsNil():
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		case how == 1 && v.Len() > 0:
			v.Set(v.Slice(0, v.Len()-1))
		case how == 2:
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		default:
			v.SetZero()
		}
	case reflect.Map:
		switch {
		case how == 0 && v.IsNil():
			v.Set(reflect.MakeMap(v.Type()))
		case how == 1 && v.Len() > 0:
			v.SetMapIndex(v.MapKeys()[0], reflect.Value{})
		case how == 2 && v.Len() > 0:
			key := v.MapKeys()[0]
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(key))
			if sites := places(elem, nil); len(sites) > 0 {
				mutate(sites[0], how)
			}
			v.SetMapIndex(key, elem)
		default:
			v.SetZero()
		}
	case reflect.Pointer:
		if v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			v.Set(reflect.New(v.Type().Elem()))
			return
		}
		v.SetZero()
	default:
		v.SetZero()
	}
}

func TestEqualAgreesOnPodSpecs(t *testing.T) {
	checkMutations(t, podSpecs, (*v1.PodSpec).DeepCopy)
}

func TestEqualAgreesOnPodStatuses(t *testing.T) {
	checkMutations(t, podStatuses, (*v1.PodStatus).DeepCopy)
}

func TestEqualAgreesOnMetadata(t *testing.T) {
	checkMutations(t, objectMetas, (*metav1.ObjectMeta).DeepCopy)
}

func TestEqualDoesNotAllocate(t *testing.T) {
	var a metav1.ObjectMeta
	filler(7).NilChance(0).NumElements(2, 2).Fill(&a)
	b := a.DeepCopy()
	if !objectMetas(&a, b) {
		t.Fatal("a copy differs")
	}
	if allocs := testing.AllocsPerRun(100, func() { objectMetas(&a, b) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
