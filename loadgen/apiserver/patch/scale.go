package patch

import (
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"watchlab/loadgen/apiserver/resources"
)

// builtinScale has the paths of the built-in kinds.
var builtinScale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"}

func scalePaths(res *resources.Resource) *apiextensionsv1.CustomResourceSubresourceScale {
	if res.Custom != nil && res.Custom.Scale() != nil {
		return res.Custom.Scale()
	}
	return builtinScale
}

// Scale returns the scale subresource of an object.
func (e *Editor) Scale(res *resources.Resource, current runtime.Object) (*autoscalingv1.Scale, error) {
	live, err := inVersion(res, current)
	if err != nil {
		return nil, asStatus(err)
	}
	scale, err := scaleOf(res, live)
	return scale, asStatus(err)
}

func scaleOf(res *resources.Resource, live object) (*autoscalingv1.Scale, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	paths := scalePaths(res)
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: live.GetName(), Namespace: live.GetNamespace(), UID: live.GetUID(),
		ResourceVersion: live.GetResourceVersion(), CreationTimestamp: live.GetCreationTimestamp(),
	}}
	scale.SetGroupVersionKind(scaleResource.GVK)
	spec, found, err := unstructured.NestedInt64(content, fieldsOf(paths.SpecReplicasPath)...)
	switch {
	case err != nil:
		return nil, err
	case !found && res.Custom == nil:
		spec = 1 // the default of the built-in kinds
	case !found:
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist in %s", paths.SpecReplicasPath, res))
	}
	status, _, err := unstructured.NestedInt64(content, fieldsOf(paths.StatusReplicasPath)...)
	if err != nil {
		return nil, err
	}
	scale.Spec.Replicas, scale.Status.Replicas = int32(spec), int32(status)
	scale.Status.Selector, err = scaleSelector(content, paths)
	return scale, err
}

// scaleSelector returns the selector of the pods as text.
func scaleSelector(content map[string]any, paths *apiextensionsv1.CustomResourceSubresourceScale) (string, error) {
	if path := paths.LabelSelectorPath; path != nil && *path != "" {
		text, _, err := unstructured.NestedString(content, fieldsOf(*path)...)
		return text, err
	}
	if v, _, err := unstructured.NestedFieldNoCopy(content, "spec", "selector"); err == nil && v == nil {
		// A real server's validation requires one.
		return "", nil
	}
	raw, found, err := unstructured.NestedMap(content, "spec", "selector")
	if err != nil || !found {
		return "", err
	}
	selector := new(metav1.LabelSelector)
	_, byLabels := raw["matchLabels"]
	_, byExpressions := raw["matchExpressions"]
	if !byLabels && !byExpressions {
		raw = map[string]any{"matchLabels": raw} // a replication controller's
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, selector); err != nil {
		return "", err
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// fieldsOf returns the fields of a simple JSON path such as ".spec.replicas".
func fieldsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// scaleManagers converts managed fields between an object and its Scale.
func scaleManagers(res *resources.Resource, live object) *managedfields.ScaleHandler {
	var parts []any
	for _, f := range fieldsOf(scalePaths(res).SpecReplicasPath) {
		parts = append(parts, f)
	}
	paths := managedfields.ResourcePathMappings{res.GroupVersion().String(): fieldpath.MakePathOrDie(parts...)}
	return managedfields.NewScaleHandler(live.GetManagedFields(), res.GroupVersion(), paths)
}

// scaleResource describes the scale subresource to the patch functions.
var scaleResource = &resources.Resource{
	GVR:        autoscalingv1.SchemeGroupVersion.WithResource("scales"),
	GVK:        autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
	Namespaced: true,
	Typed:      true,
}

// editScale updates a Scale by a body, or patches it if there is a kind of patch, and
// writes it to its object.
func (x *edit) editScale(current runtime.Object, kind types.PatchType, body []byte) error {
	if current == nil {
		return x.notFound()
	}
	live, err := inVersion(x.res, current)
	if err != nil {
		return err
	}
	sub := &edit{Editor: x.Editor, Request: x.Request, res: scaleResource}
	var obj object
	if kind == "" {
		if obj, err = sub.decode(body); err != nil {
			return err
		}
	}
	before, err := scaleOf(x.res, live)
	if err != nil {
		return err
	}
	if before.ManagedFields, err = scaleManagers(x.res, live).ToSubresource(); err != nil {
		return err
	}
	if kind == "" {
		obj, err = sub.track(before, obj)
	} else {
		obj, err = sub.apply(before, kind, body)
	}
	if err != nil {
		return err
	}
	if err := x.match(obj); err != nil {
		return err
	}
	x.Warnings = sub.Warnings
	return x.rescale(live, obj.(*autoscalingv1.Scale))
}

// rescale writes a Scale to its object.
func (x *edit) rescale(live object, scale *autoscalingv1.Scale) error {
	switch {
	case scale.UID != "" && scale.UID != live.GetUID():
		return x.otherUID(scale.UID, live.GetUID())
	case scale.ResourceVersion != "" && scale.ResourceVersion != live.GetResourceVersion():
		return x.conflict(errModified)
	case scale.Spec.Replicas < 0 && x.res.Custom == nil:
		return apierrors.NewInvalid(scaleResource.GVK.GroupKind(), scale.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0"),
		})
	}
	managed, err := scaleManagers(x.res, live).ToParent(scale.GetManagedFields())
	if err != nil {
		return err
	}
	obj, err := withReplicas(x.res, live, scale.Spec.Replicas)
	if err != nil {
		return err
	}
	obj.SetManagedFields(managed)
	x.Subresource = "" // the object itself is written
	if err := x.finishUpdate(live, obj); err != nil {
		return err
	}
	written, err := inVersion(x.res, x.Object)
	if err != nil {
		return err
	}
	x.Answer, err = scaleOf(x.res, written)
	return err
}

// withReplicas returns a copy of an object with another number of replicas.
func withReplicas(res *resources.Resource, live object, replicas int32) (object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	content = runtime.DeepCopyJSON(content)
	if err := unstructured.SetNestedField(content, int64(replicas), fieldsOf(scalePaths(res).SpecReplicasPath)...); err != nil {
		return nil, err
	}
	if !res.Typed {
		return &unstructured.Unstructured{Object: content}, nil
	}
	obj := res.NewObject()
	return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj)
}
