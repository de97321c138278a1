package conformance

import (
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// opaque are types with inaccessible fields; they are overwritten as a whole. A
// time shares its time zone with others.
var opaque = map[reflect.Type]reflect.Value{
	reflect.TypeFor[time.Time]():         reflect.ValueOf(time.Unix(13, 0)),
	reflect.TypeFor[resource.Quantity](): reflect.ValueOf(resource.MustParse("13")),
}

// scribble overwrites all memory of a pod, except name and UID, which still identify it.
func scribble(pod *v1.Pod) {
	name, namespace, uid := pod.Name, pod.Namespace, pod.UID
	scribbleOn(reflect.ValueOf(pod).Elem())
	pod.Name, pod.Namespace, pod.UID = name, namespace, uid
}

func scribbleOn(v reflect.Value) {
	if other, ok := opaque[v.Type()]; ok {
		v.Set(other)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scribbleOn(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			scribbleOn(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribbleOn(v.Index(i))
		}
	case reflect.Map:
		scribbleOnMap(v)
	case reflect.String:
		v.SetString("scribbled")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() ^ 13)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 13)
	default:
		panic(fmt.Sprintf("conformance: a pod with a %v in it", v.Type()))
	}
}

func scribbleOnMap(m reflect.Value) {
	if m.IsNil() {
		return
	}
	for _, key := range m.MapKeys() {
		value := reflect.New(m.Type().Elem()).Elem()
		value.Set(m.MapIndex(key))
		scribbleOn(value)
		m.SetMapIndex(key, value)
	}
	m.SetMapIndex(reflect.ValueOf("scribbled").Convert(m.Type().Key()), reflect.Zero(m.Type().Elem()))
}
