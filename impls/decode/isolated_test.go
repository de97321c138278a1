package decode

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// spoil changes all memory that is reached from a value, unexported fields and the room of slices
// included, but for the bytes of strings and the location of times, which Go cannot change.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			spoil(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			fresh := reflect.New(v.Elem().Type()).Elem()
			fresh.Set(v.Elem())
			spoil(fresh)
			v.Set(fresh)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			spoil(reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem())
		}
	case reflect.Slice:
		for all, i := v.Slice(0, v.Cap()), 0; i < v.Cap(); i++ {
			spoil(all.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		for it := v.MapRange(); it.Next(); {
			fresh := reflect.New(v.Type().Elem()).Elem()
			fresh.Set(it.Value())
			spoil(fresh)
			v.SetMapIndex(it.Key(), fresh)
		}
		key := reflect.New(v.Type().Key()).Elem()
		spoil(key)
		v.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
	case reflect.String:
		v.SetString("spoiled")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(^v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(^v.Uint())
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	default:
		panic(fmt.Sprintf("spoil: %v", v.Type()))
	}
}

// isolation decodes the data several times and spoils the objects one after the other. It returns an
// error if another object shows that, or one that is decoded afterwards.
func isolation(d, exact Decoder, data []byte, into func() runtime.Object) error {
	want, _, err := exact.Decode(data, nil, into())
	if err != nil {
		return fmt.Errorf("client-go: %w", err)
	}
	var objs []runtime.Object
	for range 4 { // a group is kept at first or at second sight
		obj, _, err := d.Decode(data, nil, into())
		if err != nil {
			return err
		}
		objs = append(objs, obj)
	}
	for i, obj := range objs {
		if !reflect.DeepEqual(obj, want) {
			return fmt.Errorf("object %d shows a change of another", i)
		}
		spoil(reflect.ValueOf(obj))
	}
	obj, _, err := d.Decode(data, nil, into())
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(obj, want) {
		return errors.New("an object that is decoded later shows a change of another")
	}
	return nil
}

func none() runtime.Object { return nil }

// TestIsolated: what a user does to an object of every kind, or of a relist, shows in no other. The same test finds
// that objects of shared-readonly share memory.
func TestIsolated(t *testing.T) {
	for _, o := range walked {
		t.Run(title(o), func(t *testing.T) {
			exact := exactly(t, o)
			o.Table = NewTable(0)
			d, readOnly, found := decoder(t, "shared", o), decoder(t, "shared-readonly", o), 0
			for _, gvk := range kinds() {
				for seed := range int64(2) {
					data := encode(t, o.Encoding, filled(t, gvk, seed))
					if isolation(readOnly, exact, data, none) != nil {
						found++
					}
					intos := []func() runtime.Object{none}
					if seed == 0 && !o.Unstructured { // as a typed client
						intos = append(intos, func() runtime.Object { obj, _ := scheme.Scheme.New(gvk); return obj })
					}
					for _, into := range intos {
						if err := isolation(d, exact, data, into); err != nil {
							t.Errorf("%v: %v", gvk, err)
						}
					}
				}
			}
			relist := encode(t, o.Encoding, podList(20))
			for i, into := range []func() runtime.Object{func() runtime.Object { return &List{} }, none} {
				if err := isolation(d, exact, relist, into); err != nil {
					t.Errorf("a list, target %d: %v", i, err)
				}
				if isolation(readOnly, exact, relist, into) == nil {
					t.Errorf("a list, target %d: the test does not find that objects of shared-readonly share memory", i)
				}
			}
			if n := len(kinds()); found < n/2 {
				t.Errorf("the test found that objects of shared-readonly share memory in %d of %d objects", found, 2*n)
			}
		})
	}
}

// TestIsolatedRecorded spoils every second object of a recording, beside a goroutine that decodes the
// same objects with the same table. The race detector sees a write to memory in common.
func TestIsolatedRecorded(t *testing.T) {
	for _, o := range walked {
		data, _ := recordedObjects(t, o.Encoding, "recorded-rollout", 120)
		exact := exactly(t, o)
		o.Table = NewTable(0)
		d := decoder(t, "shared", o)
		var wg sync.WaitGroup
		for spoils := range 2 {
			wg.Go(func() {
				var kept, want []runtime.Object
				for i, b := range append(data, data...) {
					obj, _, err := d.Decode(b, nil, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if (i+spoils)%2 == 0 {
						spoil(reflect.ValueOf(obj))
						continue
					}
					w, _, _ := exact.Decode(b, nil, nil)
					kept, want = append(kept, obj), append(want, w)
				}
				if !reflect.DeepEqual(kept, want) {
					t.Errorf("%s: an object shows a change of another", title(o))
				}
			})
		}
		wg.Wait()
		if err := o.Table.CheckMutations(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzIsolated damages objects of all kinds, and spoils what is still decoded.
func FuzzIsolated(f *testing.F) {
	for i := range kinds() {
		f.Add(uint16(i), int64(i), uint64(0))
	}
	ds := map[string][2]Decoder{}
	for _, o := range walked {
		ds[title(o)] = [2]Decoder{decoder(f, "shared", o), exactly(f, o)}
	}
	f.Fuzz(func(t *testing.T, kind uint16, seed int64, damage uint64) {
		gvk := kinds()[int(kind)%len(kinds())]
		for _, o := range walked {
			data := encode(t, o.Encoding, filled(t, gvk, seed))
			if damage != 0 {
				data[damage%uint64(len(data))] ^= byte(damage >> 56)
			}
			pair := ds[title(o)]
			if _, _, err := pair[1].Decode(data, nil, nil); err != nil {
				continue
			}
			if err := isolation(pair[0], pair[1], data, none); err != nil {
				t.Errorf("%s: %v: %v", title(o), gvk, err)
			}
		}
	})
}

// TestCopier: a copy of a value of every kind of types is equal, and all its memory its own.
func TestCopier(t *testing.T) {
	type odd struct {
		Any   map[string]any
		Named map[metav1.ManagedFieldsOperationType][]byte
		Deep  **[]string
		Array [2]*int32
		Time  *metav1.Time
		Empty []int
		Tree  unstructured.Unstructured
	}
	n, text, now := int32(3), []string{"a"}, metav1.Now()
	ptr := &text
	filled := func() *odd {
		return &odd{
			Any:   map[string]any{"a": []any{"b", int64(1), 1.5, true, nil, map[string]any{}}, "n": nil},
			Named: map[metav1.ManagedFieldsOperationType][]byte{"Apply": []byte("x"), "nil": nil},
			Deep:  &ptr, Array: [2]*int32{&n, nil}, Time: &now, Empty: []int{},
		}
	}
	c := copierOf(reflect.TypeFor[odd]())
	if c == nil {
		t.Fatal("no copier")
	}
	src, want := filled(), filled()
	size, ok := c.size(unsafe.Pointer(src))
	if !ok || size < 200 || size > 2000 {
		t.Errorf("size %d, %v", size, ok)
	}
	got := (*odd)(c.copied(unsafe.Pointer(src)))
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("copied %+v, want %+v", got, want)
	}
	spoil(reflect.ValueOf(got))
	if !reflect.DeepEqual(src, want) {
		t.Errorf("the value shows a change of its copy: %+v", src)
	}
	src.Any["a"] = struct{}{}
	if _, ok := c.size(unsafe.Pointer(src)); ok {
		t.Error("a value of an unknown type has a size")
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[sync.Mutex](), reflect.TypeFor[chan int](), reflect.TypeFor[[]func()](), reflect.TypeFor[error]()} {
		if copierOf(typ) != nil {
			t.Errorf("%v has a copier", typ)
		}
	}
}
