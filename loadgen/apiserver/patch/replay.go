package patch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Replay makes the change from one object to the next on another object, which other writers have changed
// since. Where both changed a value, the replayed change wins:
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
	t := reflect.TypeOf(onto)
	if reflect.TypeOf(from) != t || reflect.TypeOf(to) != t {
		return nil, fmt.Errorf("objects of the types %T, %T and %T", from, to, onto)
	}
	var data [3][]byte
	for i, o := range []runtime.Object{from, to, onto} {
		var err error
		if data[i], err = json.Marshal(o); err != nil {
			return nil, err
		}
	}
	if _, untyped := onto.(runtime.Unstructured); untyped {
		change, err := jsonpatch.CreateMergePatch(data[0], data[1])
		if err == nil {
			change, err = jsonpatch.MergePatch(data[2], change)
		}
		u := &unstructured.Unstructured{}
		return u, cmp.Or(err, u.UnmarshalJSON(change))
	}
	change, err := strategicpatch.CreateTwoWayMergePatch(data[0], data[1], onto)
	if err == nil {
		change, err = strategicpatch.StrategicMergePatch(data[2], change, onto)
	}
	result := reflect.New(t.Elem()).Interface()
	return result.(runtime.Object), cmp.Or(err, json.Unmarshal(change, result))
}
