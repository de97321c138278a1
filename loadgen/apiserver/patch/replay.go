package patch

import (
	"encoding/json"
	"fmt"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Replay makes the change from one object to the next on another object, which other writers have changed
// since. The result shares values with the objects. Where both changed a value, the replayed change wins:
// lists with merge keys are merged by them as in a strategic merge patch, other lists of typed objects are
// replaced, as are lists of custom resources, like in a JSON merge patch. The result keeps the deletion,
// the managed fields and the version of the object; its generation rises as it did in the change.
func Replay(from, to, onto runtime.Object) (runtime.Object, error) {
	merged, err := replay(from, to, onto)
	if err != nil {
		return nil, err
	}
	m, was, next, current := merged.(object), from.(object), to.(object), onto.(object)
	m.SetResourceVersion(current.GetResourceVersion())
	m.SetManagedFields(current.GetManagedFields())
	m.SetGeneration(current.GetGeneration() + max(0, next.GetGeneration()-was.GetGeneration()))
	if current.GetDeletionTimestamp() != nil {
		m.SetDeletionTimestamp(current.GetDeletionTimestamp())
		m.SetDeletionGracePeriodSeconds(current.GetDeletionGracePeriodSeconds())
	}
	return merged, nil
}

func replay(from, to, onto runtime.Object) (runtime.Object, error) {
	if t := reflect.TypeOf(onto); reflect.TypeOf(from) != t || reflect.TypeOf(to) != t {
		return nil, fmt.Errorf("objects of the types %T, %T and %T", from, to, onto)
	}
	if u, ok := onto.(*unstructured.Unstructured); ok {
		was, next := from.(*unstructured.Unstructured), to.(*unstructured.Unstructured)
		var m merge
		content := m.of(reflect.ValueOf(was.Object), reflect.ValueOf(next.Object), reflect.ValueOf(u.Object))
		return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content.Interface().(map[string]any))}, nil
	}
	// Other writers mostly change other fields, which is much cheaper to find out than a patch.
	var m merge
	content := m.of(reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem(), reflect.ValueOf(onto).Elem())
	result := reflect.New(content.Type())
	result.Elem().Set(content)
	if !m.lists {
		return result.Interface().(runtime.Object), nil
	}
	var data [3][]byte
	for i, o := range []runtime.Object{from, to, onto} {
		var err error
		if data[i], err = json.Marshal(o); err != nil {
			return nil, err
		}
	}
	change, err := strategicpatch.CreateTwoWayMergePatch(data[0], data[1], onto)
	if err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergePatch(data[2], change, onto)
	if err != nil {
		return nil, err
	}
	result = reflect.New(content.Type())
	return result.Interface().(runtime.Object), json.Unmarshal(patched, result.Interface())
}

// merge merges values of three objects.
type merge struct {
	lists bool // both sides changed a list of a typed object
}

// of returns the value with the change from one value to another. It shares values.
func (m *merge) of(from, to, onto reflect.Value) reflect.Value {
	switch {
	case equal(from, to):
		return onto
	case equal(from, onto) || from.Type() != to.Type() || from.Type() != onto.Type():
		return to
	}
	switch to.Kind() {
	case reflect.Struct:
		return m.fields(from, to, onto)
	case reflect.Map:
		return m.entries(from, to, onto)
	case reflect.Interface:
		if !from.IsNil() && !to.IsNil() && !onto.IsNil() {
			return m.of(from.Elem(), to.Elem(), onto.Elem())
		}
	case reflect.Pointer:
		if !from.IsNil() && !to.IsNil() && !onto.IsNil() {
			out := reflect.New(to.Type().Elem())
			out.Elem().Set(m.of(from.Elem(), to.Elem(), onto.Elem()))
			return out
		}
	case reflect.Slice:
		m.lists = m.lists || to.Type().Elem().Kind() != reflect.Interface
	}
	return to
}

func (m *merge) fields(from, to, onto reflect.Value) reflect.Value {
	t := to.Type()
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return to // a time or a quantity, for example
	}
	out := reflect.New(t).Elem()
	for i := range t.NumField() {
		out.Field(i).Set(m.of(from.Field(i), to.Field(i), onto.Field(i)))
	}
	return out
}

func (m *merge) entries(from, to, onto reflect.Value) reflect.Value {
	out := reflect.MakeMapWithSize(to.Type(), onto.Len())
	for k, v := range onto.Seq2() {
		out.SetMapIndex(k, v)
	}
	for k, v := range to.Seq2() {
		was, has := from.MapIndex(k), onto.MapIndex(k)
		if was.IsValid() && has.IsValid() {
			v = m.of(was, v, has)
		} else if was.IsValid() && equal(was, v) {
			continue // another writer removed it
		}
		out.SetMapIndex(k, v)
	}
	for k := range from.Seq2() {
		if !to.MapIndex(k).IsValid() {
			out.SetMapIndex(k, reflect.Value{})
		}
	}
	return out
}

func equal(a, b reflect.Value) bool {
	return apiequality.Semantic.DeepEqual(a.Interface(), b.Interface())
}
