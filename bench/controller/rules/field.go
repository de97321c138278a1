package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func holdAll(tests []fieldTest, o runtime.Object) bool {
	for i := range tests {
		t := &tests[i]
		if slices.Contains(t.values, fieldOf(o, t.path)) == t.not {
			return false
		}
	}
	return true
}

// sections are the parts of an object that a short path may begin in.
var sections = []string{"status", "spec", "metadata"}

// fieldOf returns a field as text; empty if there is none.
func fieldOf(o runtime.Object, path []string) string {
	root := reflect.ValueOf(o)
	if u, ok := o.(runtime.Unstructured); ok {
		root = reflect.ValueOf(u.UnstructuredContent())
	}
	switch {
	case slices.Contains(sections, path[0]):
		text, _ := textAt(root, path)
		return text
	case len(path) == 1 && unicode.IsUpper(rune(path[0][0])):
		return conditionOf(root, path[0])
	}
	for _, section := range sections {
		if v, ok := step(root, section); ok {
			if text, ok := textAt(v, path); ok {
				return text
			}
		}
	}
	text, _ := textAt(root, path) // as in the data of a ConfigMap
	return text
}

// conditionOf returns the status of a condition.
func conditionOf(root reflect.Value, name string) string {
	v, ok := step(root, "status")
	if !ok {
		return ""
	}
	if v, ok = step(v, "conditions"); !ok {
		return ""
	}
	if v = elem(v); v.Kind() != reflect.Slice {
		return ""
	}
	for i := range v.Len() {
		if kind, _ := textAt(v.Index(i), []string{"type"}); kind == name {
			status, _ := textAt(v.Index(i), []string{"status"})
			return status
		}
	}
	return ""
}

func textAt(v reflect.Value, path []string) (string, bool) {
	for len(path) > 0 {
		var ok bool
		// A key of a map may have dots, as in a label.
		if v = elem(v); v.IsValid() && v.Kind() == reflect.Map && len(path) > 1 {
			if whole, ok := step(v, strings.Join(path, ".")); ok {
				v, path = whole, nil
				continue
			}
		}
		if v, ok = step(v, path[0]); !ok {
			return "", false
		}
		path = path[1:]
	}
	v = elem(v)
	if !v.IsValid() {
		return "", false
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	}
	b, err := json.Marshal(v.Interface())
	return strings.Trim(string(b), `"`), err == nil
}

// elem follows pointers and interfaces. The result of nil is invalid.
func elem(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

// step returns a field of a struct by its JSON name, a value of a map, or an item of a list.
func step(v reflect.Value, name string) (reflect.Value, bool) {
	v = elem(v)
	switch v.Kind() {
	case reflect.Struct:
		index, ok := fieldsOf(v.Type())[name]
		if !ok {
			return v, false
		}
		return v.FieldByIndex(index), true
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return v, false
		}
		v = v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key()))
		return v, v.IsValid()
	case reflect.Slice:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < v.Len() {
			return v.Index(i), true
		}
	}
	return v, false
}

// structs has the fields of types by their JSON names.
var structs sync.Map // reflect.Type to map[string][]int

func fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := structs.Load(t); ok {
		return known.(map[string][]int)
	}
	out := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && f.IsExported() {
			out[name] = f.Index
		}
	}
	structs.Store(t, out)
	return out
}

// heartbeat reports whether two states of an object differ in nothing but times and what the API server
// writes: the resourceVersion and the managed fields.
func heartbeat(before, after runtime.Object) bool {
	if before == nil || after == nil {
		return false
	}
	b, okBefore := before.(runtime.Unstructured)
	a, okAfter := after.(runtime.Unstructured)
	if okBefore && okAfter {
		return sameValue(b.UnstructuredContent(), a.UnstructuredContent())
	}
	return same(reflect.ValueOf(before), reflect.ValueOf(after))
}

var (
	timeType      = reflect.TypeFor[metav1.Time]()
	microTimeType = reflect.TypeFor[metav1.MicroTime]()
	metaType      = reflect.TypeFor[metav1.ObjectMeta]()
)

// same compares typed values.
func same(a, b reflect.Value) bool {
	if a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return a.Kind() == reflect.Pointer && a.Pointer() == b.Pointer() || same(a.Elem(), b.Elem())
	case reflect.Struct:
		switch a.Type() {
		case timeType, microTimeType:
			return true
		}
		for i := range a.NumField() {
			f := a.Type().Field(i)
			if a.Type() == metaType && (f.Name == "ResourceVersion" || f.Name == "ManagedFields") {
				continue
			}
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		if a.Pointer() == b.Pointer() {
			return true
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for it := a.MapRange(); it.Next(); {
			v := b.MapIndex(it.Key())
			if !v.IsValid() || !same(it.Value(), v) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

// sameValue compares values of unstructured objects.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok {
				return false
			}
			server := k == "resourceVersion" || k == "managedFields"
			if !server && !isTime(k, v, w) && !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	}
	return reflect.DeepEqual(a, b)
}

func isTime(name string, a, b any) bool {
	_, okA := a.(string)
	_, okB := b.(string)
	return okA && okB && (strings.HasSuffix(name, "Time") || strings.HasSuffix(name, "Timestamp"))
}
