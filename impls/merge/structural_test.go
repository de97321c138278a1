package merge

import (
	"math"
	"reflect"
	"testing"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/randfill"
)

var (
	podSpecs     = equalOf[v1.PodSpec](mapsOf[v1.ResourceName, resource.Quantity]())
	podStatuses  = equalOf[v1.PodStatus](mapsOf[v1.ResourceName, resource.Quantity]())
	plainStatus  = equalOf[v1.PodStatus]()
	objectMetas  = equalOf[metav1.ObjectMeta]()
	quantities   = equalOf[resource.Quantity]()
	assortedComp = equalOf[assorted](mapsOf[int8, cell]())
)

type named string

type floats map[int8]cell

type cell struct{ p *[]float64 }

func (c cell) DeepCopy() cell { return c }

func cells(f float64) cell { return cell{&[]float64{f}} }

type tree struct {
	Value       int
	Left, Right *tree
}

// assorted has what pods have not.
type assorted struct {
	A     bool
	B     int64 // after padding
	C     [3]int16
	D     float32
	E     float64
	F     complex128
	G     func()
	H     any
	I     chan int
	J     floats
	K     map[named]named
	L     [2]string
	M     []struct{}
	N     *tree
	O     [0]int
	P     []float64
	Q     map[any]int
	R     []byte
	S     uint8
	T     complex64
	U     unsafe.Pointer
	V     [][]int32
	_     int32
	inner struct{ x, y int32 }
}

func TestEqualTable(t *testing.T) {
	f := func() {}
	ch := make(chan int)
	nan := []float64{math.NaN()}
	nanMap := floats{1: cells(math.NaN())}
	loop := &tree{Value: 1}
	loop.Left = loop
	loop2 := &tree{Value: 1}
	loop2.Left = loop2
	tests := map[string]struct{ a, b assorted }{
		"zero":              {},
		"bool":              {a: assorted{A: true}},
		"int after padding": {a: assorted{B: 1}},
		"array":             {a: assorted{C: [3]int16{0, 0, 1}}},
		"same float":        {a: assorted{D: 1.5, E: 2.5}, b: assorted{D: 1.5, E: 2.5}},
		"zeros of two signs": {
			a: assorted{D: float32(math.Copysign(0, -1)), E: math.Copysign(0, -1), F: complex(0, math.Copysign(0, -1))},
		},
		"nan":               {a: assorted{E: math.NaN()}, b: assorted{E: math.NaN()}},
		"nan, float32":      {a: assorted{D: float32(math.NaN())}, b: assorted{D: float32(math.NaN())}},
		"nan, complex":      {a: assorted{T: complex64(complex(math.NaN(), 0))}, b: assorted{T: complex64(complex(math.NaN(), 0))}},
		"same slice of nan": {a: assorted{P: nan}, b: assorted{P: nan}},
		"slices of nan":     {a: assorted{P: []float64{math.NaN()}}, b: assorted{P: nan}},
		"same map of nan":   {a: assorted{J: nanMap}, b: assorted{J: nanMap}},
		"maps of nan":       {a: assorted{J: nanMap}, b: assorted{J: floats{1: cells(math.NaN())}}},
		"func":              {a: assorted{G: f}, b: assorted{G: f}},
		"func and nil":      {a: assorted{G: f}},
		"interface":         {a: assorted{H: 1}, b: assorted{H: 1}},
		"interface, types":  {a: assorted{H: 1}, b: assorted{H: int8(1)}},
		"interface and nil": {a: assorted{H: 1}},
		"same chan":         {a: assorted{I: ch}, b: assorted{I: ch}},
		"chan":              {a: assorted{I: ch}, b: assorted{I: make(chan int)}},
		"typed map":         {a: assorted{J: floats{1: cells(2)}}, b: assorted{J: floats{1: cells(2)}}},
		"typed map, value":  {a: assorted{J: floats{1: cells(2)}}, b: assorted{J: floats{1: cells(3)}}},
		"typed map, key":    {a: assorted{J: floats{1: cells(2)}}, b: assorted{J: floats{2: cells(2)}}},
		"typed map, nil":    {a: assorted{J: floats{}}},
		"string map":        {a: assorted{K: map[named]named{"a": "b"}}, b: assorted{K: map[named]named{"a": "b"}}},
		"string map, value": {a: assorted{K: map[named]named{"a": "b"}}, b: assorted{K: map[named]named{"a": "c"}}},
		"string map, key":   {a: assorted{K: map[named]named{"a": "b"}}, b: assorted{K: map[named]named{"c": "b"}}},
		"string map, zero":  {a: assorted{K: map[named]named{"a": ""}}, b: assorted{K: map[named]named{"c": ""}}},
		"string map, nil":   {a: assorted{K: map[named]named{}}},
		"strings in array":  {a: assorted{L: [2]string{"", "x"}}},
		"empty elements":    {a: assorted{M: make([]struct{}, 2)}, b: assorted{M: make([]struct{}, 2)}},
		"empty elements, n": {a: assorted{M: make([]struct{}, 2)}, b: assorted{M: make([]struct{}, 3)}},
		"tree":              {a: assorted{N: &tree{Left: &tree{Value: 2}}}, b: assorted{N: &tree{Left: &tree{Value: 2}}}},
		"tree, value":       {a: assorted{N: &tree{Left: &tree{Value: 2}}}, b: assorted{N: &tree{Left: &tree{Value: 3}}}},
		"loop":              {a: assorted{N: loop}, b: assorted{N: loop2}},
		"other map":         {a: assorted{Q: map[any]int{"a": 1}}, b: assorted{Q: map[any]int{"a": 1}}},
		"other map, value":  {a: assorted{Q: map[any]int{"a": 1}}, b: assorted{Q: map[any]int{"a": 2}}},
		"bytes":             {a: assorted{R: []byte("a")}, b: assorted{R: []byte("b")}},
		"bytes, nil":        {a: assorted{R: []byte{}}},
		"slice, nil":        {a: assorted{P: []float64{}}},
		"last of a run":     {a: assorted{S: 1}},
		"pointers":          {a: assorted{U: unsafe.Pointer(loop)}, b: assorted{U: unsafe.Pointer(loop2)}},
		"nested slices":     {a: assorted{V: [][]int32{{1}, {2, 3}}}, b: assorted{V: [][]int32{{1}, {2, 4}}}},
		"nested, nil":       {a: assorted{V: [][]int32{{}}}, b: assorted{V: [][]int32{nil}}},
		"unexported":        {a: assorted{inner: struct{ x, y int32 }{0, 1}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := reflect.DeepEqual(tt.a, tt.b)
			if got := assortedComp(&tt.a, &tt.b); got != want {
				t.Errorf("got %v, reflect.DeepEqual says %v", got, want)
			}
			if got := assortedComp(&tt.b, &tt.a); got != want {
				t.Errorf("the other way round: got %v, reflect.DeepEqual says %v", got, want)
			}
		})
	}
}

func TestQuantityKeepsItsCachedString(t *testing.T) {
	a, b := resource.MustParse("1500m"), resource.MustParse("1500m")
	check := func(what string) {
		t.Helper()
		if got, want := quantities(&a, &b), reflect.DeepEqual(a, b); got != want {
			t.Errorf("%s: got %v, reflect.DeepEqual says %v", what, got, want)
		}
	}
	check("parsed alike")
	_ = a.String()
	check("one was printed")
	b = resource.MustParse("123456789012345678901234567890")
	a = b.DeepCopy()
	check("beyond int64")
	a.Add(resource.MustParse("1"))
	check("beyond int64, one more")
}

func TestTimesWithTheSameInstantDiffer(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for name, tt := range map[string]struct{ a, b metav1.Time }{
		"same":     {metav1.NewTime(now), metav1.NewTime(now)},
		"location": {metav1.NewTime(now), metav1.NewTime(now.UTC())},
		"fixed":    {metav1.NewTime(now.In(time.FixedZone("x", 60))), metav1.NewTime(now.In(time.FixedZone("x", 60)))},
		"zones":    {metav1.NewTime(now.In(time.FixedZone("x", 60))), metav1.NewTime(now.In(time.FixedZone("x", 61)))},
	} {
		a, b := metav1.ObjectMeta{DeletionTimestamp: &tt.a}, metav1.ObjectMeta{DeletionTimestamp: &tt.b}
		if got, want := objectMetas(&a, &b), reflect.DeepEqual(a, b); got != want {
			t.Errorf("%s: got %v, reflect.DeepEqual says %v", name, got, want)
		}
	}
}

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
			if c.Bool() {
				*tm = metav1.NewTime(tm.UTC())
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

func TestEqualAgreesWithoutTypedMaps(t *testing.T) {
	checkMutations(t, plainStatus, (*v1.PodStatus).DeepCopy)
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
