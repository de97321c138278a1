package patch

import (
	"encoding/json"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
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

// builtinScale are where the scalable built-in kinds keep what a Scale shows.
var builtinScale = resources.ScalePaths{SpecReplicas: ".spec.replicas", StatusReplicas: ".status.replicas"}

func scalePaths(res *resources.Resource) resources.ScalePaths {
	if res.Custom != nil && res.Custom.Scale != nil {
		return *res.Custom.Scale
	}
	return builtinScale
}

// Scale returns the scale subresource of an object.
func (e *Editor) Scale(res *resources.Resource, current runtime.Object) (*autoscalingv1.Scale, error) {
	live, err := e.inVersion(res, current)
	if err != nil {
		return nil, asStatus(err)
	}
	scale, err := e.scaleOf(res, live)
	return scale, asStatus(err)
}

func (e *Editor) scaleOf(res *resources.Resource, live runtime.Object) (*autoscalingv1.Scale, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	m, err := accessor(live)
	if err != nil {
		return nil, err
	}
	paths := scalePaths(res)
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(),
		ResourceVersion: m.GetResourceVersion(), CreationTimestamp: m.GetCreationTimestamp(),
	}}
	scale.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	spec, found, err := unstructured.NestedInt64(content, fieldsOf(paths.SpecReplicas)...)
	switch {
	case err != nil:
		return nil, err
	case !found && res.Custom == nil:
		spec = 1 // what the built-in kinds default to
	case !found:
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist in %s", paths.SpecReplicas, res))
	}
	status, _, err := unstructured.NestedInt64(content, fieldsOf(paths.StatusReplicas)...)
	if err != nil {
		return nil, err
	}
	scale.Spec.Replicas, scale.Status.Replicas = int32(spec), int32(status)
	scale.Status.Selector, err = scaleSelector(content, paths)
	if err != nil {
		return nil, err
	}
	return scale, nil
}

// managedScale is the scale with the managed fields that its object has for
// it, which are shown to managers and to nobody else.
func (e *Editor) managedScale(res *resources.Resource, live runtime.Object) (*autoscalingv1.Scale, error) {
	scale, err := e.scaleOf(res, live)
	if err != nil {
		return nil, err
	}
	m, err := accessor(live)
	if err != nil {
		return nil, err
	}
	scale.ManagedFields, err = managedfields.NewScaleHandler(m.GetManagedFields(), res.GroupVersion(), scaleMappings(res)).ToSubresource()
	return scale, err
}

// scaleSelector returns the pods' selector as text.
func scaleSelector(content map[string]any, paths resources.ScalePaths) (string, error) {
	if paths.LabelSelector != "" {
		text, _, err := unstructured.NestedString(content, fieldsOf(paths.LabelSelector)...)
		return text, err
	}
	if v, _, err := unstructured.NestedFieldNoCopy(content, "spec", "selector"); err == nil && v == nil {
		// A real server would not have taken it: its validation wants one.
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

// fieldsOf returns the fields of a simple JSON path, ".spec.replicas".
func fieldsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

func scaleMappings(res *resources.Resource) managedfields.ResourcePathMappings {
	var parts []any
	for _, f := range fieldsOf(scalePaths(res).SpecReplicas) {
		parts = append(parts, f)
	}
	return managedfields.ResourcePathMappings{res.GroupVersion().String(): fieldpath.MakePathOrDie(parts...)}
}

// scaleResource is the scale subresource as a resource, for what patches it.
var scaleResource = &resources.Resource{
	GVR:        autoscalingv1.SchemeGroupVersion.WithResource("scales"),
	GVK:        autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
	Namespaced: true,
	Typed:      true,
}

func (e *Editor) updateScale(res *resources.Resource, current runtime.Object, body []byte, req Request, result *Result) error {
	if current == nil {
		return notFound(res, req)
	}
	live, err := e.inVersion(res, current)
	if err != nil {
		return err
	}
	obj, err := e.decode(scaleResource, body, req, result)
	if err != nil {
		return err
	}
	before, err := e.managedScale(res, live)
	if err != nil {
		return err
	}
	req.Subresource = resources.Scale
	if obj, err = e.track(scaleResource, req, before, obj); err != nil {
		return err
	}
	return e.rescale(res, live, obj.(*autoscalingv1.Scale), req, result)
}

func (e *Editor) patchScale(res *resources.Resource, current runtime.Object, kind types.PatchType, body []byte, req Request, result *Result) error {
	if current == nil {
		return notFound(res, req)
	}
	live, err := e.inVersion(res, current)
	if err != nil {
		return err
	}
	scale, err := e.managedScale(res, live)
	if err != nil {
		return err
	}
	patched, err := e.apply(scaleResource, scale, kind, body, Request{
		Subresource: resources.Scale, FieldManager: req.FieldManager, UserAgent: req.UserAgent,
		FieldValidation: req.FieldValidation, Force: req.Force,
	}, result)
	if err != nil {
		return err
	}
	return e.rescale(res, live, patched.(*autoscalingv1.Scale), req, result)
}

// rescale writes what a Scale says into the object that it is of.
func (e *Editor) rescale(res *resources.Resource, live runtime.Object, scale *autoscalingv1.Scale, req Request, result *Result) error {
	before, err := accessor(live)
	if err != nil {
		return err
	}
	if err := matchNamespace(res, scale, req.Namespace); err != nil {
		return err
	}
	if err := matchName(scale, req); err != nil {
		return err
	}
	if scale.UID != "" && scale.UID != before.GetUID() {
		return otherUID(res, req, scale.UID, before.GetUID())
	}
	if scale.ResourceVersion != "" && scale.ResourceVersion != before.GetResourceVersion() {
		return conflict(res, req.Name, errModified)
	}
	if scale.Spec.Replicas < 0 && res.Custom == nil {
		return apierrors.NewInvalid(scaleResource.GVK.GroupKind(), scale.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0"),
		})
	}
	managed, err := managedfields.NewScaleHandler(before.GetManagedFields(), res.GroupVersion(), scaleMappings(res)).ToParent(scale.GetManagedFields())
	if err != nil {
		return err
	}
	obj, err := e.withReplicas(res, live, scale.Spec.Replicas)
	if err != nil {
		return err
	}
	objMeta, err := accessor(obj)
	if err != nil {
		return err
	}
	objMeta.SetManagedFields(managed)
	if err := e.finishUpdate(res, live, obj, Request{Name: req.Name, Namespace: req.Namespace}, result); err != nil {
		return err
	}
	answer, err := e.scaleOf(res, result.Object)
	result.Answer = answer
	return err
}

// withReplicas returns a copy of an object that wants that many replicas.
func (e *Editor) withReplicas(res *resources.Resource, live runtime.Object, replicas int32) (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	content = runtime.DeepCopyJSON(content)
	if err := unstructured.SetNestedField(content, int64(replicas), fieldsOf(scalePaths(res).SpecReplicas)...); err != nil {
		return nil, err
	}
	if !res.Typed {
		return &unstructured.Unstructured{Object: content}, nil
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	obj, err := res.NewObject()
	if err != nil {
		return nil, err
	}
	return obj, json.Unmarshal(data, obj)
}
