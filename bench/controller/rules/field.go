package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"
)

// holdAll reports whether an object passes all tests. One that has no form in JSON passes none.
func holdAll(tests []fieldTest, o runtime.Object) bool {
	if len(tests) == 0 {
		return true
	}
	content, err := contentOf(o)
	return err == nil && !slices.ContainsFunc(tests, func(t fieldTest) bool {
		return slices.Contains(t.values, fieldOf(content, t.path)) == t.not
	})
}

// contentOf returns an object's fields as in JSON. They may be shared and must not be changed.
func contentOf(o runtime.Object) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// sections are the parts of an object that a short path may begin in.
var sections = []string{"status", "spec", "metadata"}

// fieldOf returns a field as text; empty if there is none.
func fieldOf(content map[string]any, path []string) string {
	switch {
	case slices.Contains(sections, path[0]):
		text, _ := textAt(content, path)
		return text
	case len(path) == 1 && unicode.IsUpper(rune(path[0][0])):
		return conditionOf(content, path[0])
	}
	for _, section := range sections {
		if text, ok := textAt(content[section], path); ok {
			return text
		}
	}
	text, _ := textAt(content, path) // as in the data of a ConfigMap
	return text
}

// conditionOf returns the status of a condition.
func conditionOf(content map[string]any, name string) string {
	status, _ := content["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if kind, _ := textAt(c, []string{"type"}); kind == name {
			text, _ := textAt(c, []string{"status"})
			return text
		}
	}
	return ""
}

// textAt returns the value at a path; false if there is none.
func textAt(v any, path []string) (string, bool) {
	if len(path) > 0 {
		switch v := v.(type) {
		case map[string]any:
			// A key may have dots, as in a label.
			if whole, ok := v[strings.Join(path, ".")]; ok {
				return textAt(whole, nil)
			}
			return textAt(v[path[0]], path[1:])
		case []any:
			if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(v) {
				return textAt(v[i], path[1:])
			}
		}
		return "", false
	}
	if v == nil {
		return "", false
	}
	b, err := json.Marshal(v)
	return strings.Trim(string(b), `"`), err == nil
}

// heartbeat reports whether two states of an object differ in nothing but times and what the API server
// writes: the resourceVersion and the managed fields.
func heartbeat(before, after runtime.Object) bool {
	if before == nil || after == nil {
		return false
	}
	b, errBefore := contentOf(before)
	a, errAfter := contentOf(after)
	return errBefore == nil && errAfter == nil && sameValue(b, a)
}

// sameValue compares values but for times.
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
	return okA && okB && (strings.HasSuffix(name, "Time") || strings.HasSuffix(name, "Timestamp") || strings.HasSuffix(name, "edAt"))
}
