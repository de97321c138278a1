package patch

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/apiserver/resources"
)

// typedConverter knows the lists and maps of client-go's types. It is made
// once: it is a large table.
var typedConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
})

// newManager makes the field manager of a resource or of its subresource.
func (e *Editor) newManager(res *resources.Resource, subresource string) (*managedfields.FieldManager, error) {
	reset := resetFields(res, subresource)
	gv := res.GroupVersion()
	var m *managedfields.FieldManager
	var err error
	switch {
	case res == scaleResource:
		m, err = managedfields.NewDefaultFieldManager(managedfields.NewDeducedTypeConverter(), scheme.Scheme, noDefaults{}, scheme.Scheme, res.GVK, gv, subresource, nil)
	case res.Typed:
		m, err = managedfields.NewDefaultFieldManager(typedConverter(), scheme.Scheme, noDefaults{}, scheme.Scheme, res.GVK, gv, subresource, reset)
	case res.Custom != nil:
		converter, cerr := customConverter(res.Custom)
		if cerr != nil {
			return nil, cerr
		}
		m, err = managedfields.NewDefaultCRDFieldManager(converter, versions{}, noDefaults{}, unstructuredscheme.NewUnstructuredCreator(), res.GVK, gv, subresource, reset)
	default:
		m, err = managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), versions{}, noDefaults{}, unstructuredscheme.NewUnstructuredCreator(), res.GVK, gv, subresource, reset)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", res, err)
	}
	return m, nil
}

// noDefaults leaves objects as they are: defaulting is not the managers' work.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// versions converts custom resources as the strategy None does: by name.
type versions struct{}

func (versions) Convert(_, _, _ any) error {
	return fmt.Errorf("custom resources are converted to a version, not into an object")
}

func (versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	kind := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{kind})
	if !ok {
		return nil, fmt.Errorf("%s is not a version of %s", target, kind)
	}
	if to == kind {
		return in, nil
	}
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no custom resource", in)
	}
	u = u.DeepCopy()
	u.SetGroupVersionKind(to)
	return u, nil
}

func (versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
