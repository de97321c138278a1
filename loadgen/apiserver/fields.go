package apiserver

import (
	_ "embed" // the selectable fields
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
)

// fieldsText lists the selectable fields; it explains the words.
//
//go:embed fields.txt
var fieldsText string

// Fields of all kinds.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// values reads selectable fields.
type values map[string]func(runtime.Object) string

// objectFields adapts an object to a field selector.
type objectFields struct {
	object runtime.Object
	values values
}

func (o objectFields) Has(field string) bool { return o.values[field] != nil }
func (o objectFields) Get(field string) string {
	if value := o.values[field]; value != nil {
		return value(o.object)
	}
	return ""
}

// selectable are the fields of the kinds of fieldsText.
var selectable = sync.OnceValue(func() map[schema.GroupVersionKind]values {
	all := map[schema.GroupVersionKind]values{}
	for line := range strings.Lines(fieldsText) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		kind, own := schema.FromAPIVersionAndKind(words[0], words[1]), values{}
		for _, word := range words[2:] {
			label, paths, other := strings.Cut(word, "=")
			if !other {
				paths = label
			}
			own[label] = patch.Field(resources.Scheme.AllKnownTypes()[kind], strings.Split(paths, ",")...)
		}
		all[kind] = own
	}
	return all
})

// get reads a field of a type.
func get[T any](value func(T) string) func(runtime.Object) string {
	return func(o runtime.Object) string {
		if t, ok := o.(T); ok {
			return value(t)
		}
		return ""
	}
}

// unknownField is the error for a field that is not selectable (k8s.io/apimachinery, pkg/runtime, and the kinds' own).
func unknownField(res *resources.Resource, label string) error {
	switch _, own := selectable()[res.GVK]; {
	case own && res.GVK.Group == "resource.k8s.io":
		return fmt.Errorf("field label not supported for %s: %s", res.GVK, label)
	case own || res.Custom != nil:
		return fmt.Errorf("field label not supported: %s", label)
	}
	return fmt.Errorf("%q is not a known field selector: only %q, %q", label, fieldName, fieldNamespace)
}

// fieldsOf returns the selectable fields of a resource.
func fieldsOf(res *resources.Resource) values {
	if own := selectable()[res.GVK]; own != nil {
		return own
	}
	all := values{fieldName: get(metav1.Object.GetName), fieldNamespace: get(metav1.Object.GetNamespace)}
	if res.Custom == nil {
		return all
	}
	if !res.Namespaced {
		delete(all, fieldNamespace)
	}
	for _, f := range res.Custom.Version.SelectableFields {
		path := strings.TrimPrefix(f.JSONPath, ".")
		all[path] = get(func(u *unstructured.Unstructured) string {
			v, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
			if err != nil || !found || v == nil {
				return ""
			}
			return fmt.Sprint(v)
		})
	}
	return all
}
