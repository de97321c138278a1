package apiserver

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/loadgen/manifest"
)

// CreateAll creates the objects of manifests; those that others depend on come first: definitions, then
// namespaces. The error names the file and the line.
func (s *Server) CreateAll(objects []manifest.Object) error {
	for _, o := range manifest.Ordered(objects) {
		u, err := o.Unstructured()
		if err == nil {
			err = s.Create(u)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", o.Source, o.Line, err)
		}
	}
	return nil
}

// Conversions returns a line for each definition among manifests whose versions a webhook converts.
func Conversions(objects []manifest.Object) (lines []string) {
	for _, o := range objects {
		var crd apiextensionsv1.CustomResourceDefinition
		u, ok := o.Object.(*unstructured.Unstructured)
		if !ok || o.Kind.Kind != "CustomResourceDefinition" || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd) != nil {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if c := crd.Spec.Conversion; v.Storage && c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
				lines = append(lines, fmt.Sprintf("%s:%d: %s is served in its stored version, %s; other versions need its conversion webhook", o.Source, o.Line, crd.Name, v.Name))
			}
		}
	}
	return lines
}
