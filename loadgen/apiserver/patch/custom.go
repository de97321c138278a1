package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"watchlab/loadgen/apiserver/resources"
)

// coerce gives an untyped object the shape of its schema: it decodes the metadata, prunes unknown
// fields and adds defaults. It returns the unknown fields if they are to be reported.
func coerce(res *resources.Resource, u *unstructured.Unstructured, report bool) ([]error, error) {
	unknown, err := coerceMeta(u.Object, report)
	if err != nil {
		return nil, err
	}
	opts := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: report}
	for _, path := range pruning.PruneWithOptions(u.Object, res.Custom.Structural, true, opts) {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	addDefaults(u.Object, res.Custom.Structural)
	return unknown, nil
}

// Defaults adds the defaults of a custom resource's stored version to an object that was
// written in another version: a real server has them when it reads the object.
func Defaults(res *resources.Resource, obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok && res.Custom != nil {
		addDefaults(u.Object, res.Custom.Structural)
	}
}

// coerceMeta decodes and encodes the metadata of an object as an ObjectMeta.
func coerceMeta(object map[string]any, report bool) (unknown []error, err error) {
	text, err := json.Marshal(object["metadata"])
	if err != nil {
		return nil, err
	}
	var m metav1.ObjectMeta
	strict, err := kjson.UnmarshalStrict(text, &m)
	if err != nil {
		return nil, err
	}
	for _, s := range strict {
		if report {
			unknown = append(unknown, errors.New(strings.Replace(s.Error(), `field "`, `field "metadata.`, 1)))
		}
	}
	clean, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil {
		return nil, err
	}
	if clean["creationTimestamp"] == nil {
		delete(clean, "creationTimestamp")
	}
	// An empty list of managed fields is a request to drop them.
	if m.ManagedFields != nil && len(m.ManagedFields) == 0 {
		clean["managedFields"] = []any{}
	}
	object["metadata"] = clean
	return unknown, nil
}

// addDefaults fills in defaults at all levels. A null that is not nullable counts as
// missing; it is dropped if it has no default. The library's package
// schema/defaulting does the same and needs CEL.
func addDefaults(x any, s *structuralschema.Structural) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if v, ok := x[name]; p.Default.Object != nil && (!ok || v == nil && !p.Nullable) {
				x[name] = runtime.DeepCopyJSONValue(p.Default.Object)
			}
		}
		for name, v := range x {
			var child *structuralschema.Structural
			if p, ok := s.Properties[name]; ok {
				child = &p
			} else if s.AdditionalProperties != nil {
				child = s.AdditionalProperties.Structural
			}
			switch {
			case v != nil || child == nil || child.Nullable:
				addDefaults(v, child)
			case child.Default.Object == nil:
				delete(x, name)
			default:
				x[name] = runtime.DeepCopyJSONValue(child.Default.Object)
			}
		}
	case []any:
		for _, item := range x {
			addDefaults(item, s.Items)
		}
	}
}

// validate returns the errors of an object that is new or replaces old.
func (x *edit) validate(obj, old object) error {
	res := x.res
	var errs field.ErrorList
	if u, ok := obj.(*unstructured.Unstructured); ok && res.Custom != nil {
		errs = append(res.Custom.Validate(u.Object), listtype.ValidateListSetsAndMaps(nil, res.Custom.Structural, u.Object)...)
		if before, ok := old.(*unstructured.Unstructured); ok {
			errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return unchanged(e, before.Object, u.Object) })
		}
		errs = append(errs, validateScale(u, res)...)
	}
	if old != nil && res.Typed() {
		errs = validateBuiltin(res, x.Subresource, obj, old)
	}
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && x.Subresource == "" {
		before, _ := old.(*apiextensionsv1.CustomResourceDefinition)
		errs = append(errs, resources.ValidateDefinition(before, crd)...)
	}
	if errs = append(errs, x.validateMeta(obj, old)...); len(errs) > 0 {
		return resources.Invalid(res.GVK.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// unchanged reports whether an error is in a part of an object that a write leaves as it was: a real server ratchets
// its validation. Items of lists count as changed if their list is.
func unchanged(e *field.Error, old, obj any) bool {
	path := strings.Split(e.Field, ".")
	if e.Type == field.ErrorTypeRequired {
		path = path[:len(path)-1] // the error is that of the object without it
	}
	for i := 0; ; i++ {
		if apiequality.Semantic.DeepEqual(old, obj) {
			return true
		}
		before, ok := old.(map[string]any)
		now, is := obj.(map[string]any)
		if !ok || !is || i == len(path) {
			return false
		}
		name, _, _ := strings.Cut(path[i], "[")
		old, obj = before[name], now[name]
	}
}

// validateScale returns the errors of the fields of a scale subresource.
func validateScale(u *unstructured.Unstructured, res *resources.Resource) (errs field.ErrorList) {
	paths := res.Custom.Scale()
	if paths == nil {
		return nil
	}
	for _, path := range []string{paths.SpecReplicasPath, paths.StatusReplicasPath} {
		n, _, err := unstructured.NestedInt64(u.Object, fieldsOf(path)...)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(path), n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		}
	}
	return errs
}

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
	if err == nil && scale.Spec.Replicas == unsetReplicas {
		err = apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", scalePaths(res).SpecReplicasPath))
	}
	return scale, asStatus(err)
}

// unsetReplicas is the number of an object without the field, as in a real server: a patch may set it.
const unsetReplicas = math.MinInt32

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
		spec = unsetReplicas
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
	if path := paths.LabelSelectorPath; paths != builtinScale {
		if path == nil || *path == "" {
			return "", nil
		}
		text, _, err := unstructured.NestedString(content, fieldsOf(*path)...)
		return text, err
	}
	raw, _, err := unstructured.NestedFieldNoCopy(content, "spec", "selector")
	labels, ok := raw.(map[string]any)
	if !ok {
		return "", err // a real server's validation requires one
	}
	selector := new(metav1.LabelSelector)
	if labels["matchLabels"] == nil && labels["matchExpressions"] == nil {
		labels = map[string]any{"matchLabels": labels} // a replication controller's
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(labels, selector); err != nil {
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

// pathOf returns a simple JSON path as one of managed fields.
func pathOf(path string) (p fieldpath.Path) {
	for _, f := range fieldsOf(path) {
		p = append(p, fieldpath.PathElement{FieldName: &f})
	}
	return p
}

// scaleManagers converts managed fields between an object and its Scale.
func scaleManagers(res *resources.Resource, live object) *managedfields.ScaleHandler {
	paths := managedfields.ResourcePathMappings{res.GroupVersion().String(): pathOf(scalePaths(res).SpecReplicasPath)}
	return managedfields.NewScaleHandler(live.GetManagedFields(), res.GroupVersion(), paths)
}

// scaleResource describes the scale subresource to the patch functions.
var scaleResource = &resources.Resource{
	GVR:        autoscalingv1.SchemeGroupVersion.WithResource("scales"),
	GVK:        autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
	Namespaced: true,
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

func (x *edit) rescale(live object, scale *autoscalingv1.Scale) error {
	switch {
	case scale.Spec.Replicas == unsetReplicas:
		return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", scalePaths(x.res).SpecReplicasPath))
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
	if !res.Typed() {
		return &unstructured.Unstructured{Object: content}, nil
	}
	obj := res.NewObject()
	return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj)
}
