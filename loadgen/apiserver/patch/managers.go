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

// typedConverter converts client-go's types by their merge schema, a large table.
var typedConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
})

// managerKey identifies the field manager for a request.
type managerKey struct {
	kind        schema.GroupVersionKind
	subresource string
}

// cachedManager remembers the resource: a changed definition is a new resource.
type cachedManager struct {
	res     *resources.Resource
	manager *managedfields.FieldManager
}

// manager returns the field manager of a resource or a subresource.
func (e *Editor) manager(res *resources.Resource, subresource string) (*managedfields.FieldManager, error) {
	key := managerKey{res.GVK, subresource}
	if c, ok := e.managers.Load(key); ok && c.(*cachedManager).res == res {
		return c.(*cachedManager).manager, nil
	}
	m, err := newManager(res, subresource)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", res, err)
	}
	e.managers.Store(key, &cachedManager{res: res, manager: m})
	return m, nil
}

func newManager(res *resources.Resource, subresource string) (*managedfields.FieldManager, error) {
	converter, reset := managedfields.NewDeducedTypeConverter(), resetFields(res, subresource)
	if res.Typed {
		// client-go's schema for server-side apply lacks Scale.
		if res == scaleResource {
			reset = nil
		} else {
			converter = typedConverter()
		}
		return managedfields.NewDefaultFieldManager(converter, scheme.Scheme, noDefaults{}, scheme.Scheme, res.GVK, res.GroupVersion(), subresource, reset)
	}
	if res.Custom != nil {
		var err error
		if converter, err = managedfields.NewTypeConverter(res.Custom.Models(), false); err != nil {
			return nil, err
		}
	}
	return managedfields.NewDefaultCRDFieldManager(converter, versions{}, noDefaults{}, unstructuredscheme.NewUnstructuredCreator(), res.GVK, res.GroupVersion(), subresource, reset)
}

// noDefaults leaves defaulting to the editor.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// versions converts custom resources by the strategy None: it sets the version.
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
