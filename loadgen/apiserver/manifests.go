package apiserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/loadgen/manifest"
)

// CreateAll creates the objects of manifests; those that others depend on come first: definitions, then
// namespaces. The error names the file and the line.
func (s *Server) CreateAll(objects []manifest.Object) error {
	rank := map[string]int{"CustomResourceDefinition": -2, "Namespace": -1}
	objects = slices.SortedStableFunc(slices.Values(objects), func(a, b manifest.Object) int {
		return rank[a.Kind.Kind] - rank[b.Kind.Kind]
	})
	for _, o := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
		if err == nil {
			u := &unstructured.Unstructured{Object: content}
			u.SetGroupVersionKind(o.Kind)
			err = s.Create(u)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", o.Source, o.Line, err)
		}
	}
	return nil
}
