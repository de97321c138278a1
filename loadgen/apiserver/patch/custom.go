package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"

	"watchlab/loadgen/apiserver/resources"
)

// coerce gives an untyped object the shape of its schema: it decodes the metadata,
// prunes unknown fields and adds defaults. It returns the unknown fields if they are
// to be reported.
func coerce(res *resources.Resource, u *unstructured.Unstructured, report bool) ([]error, error) {
	unknown, err := coerceMeta(u.Object, report)
	if err != nil {
		return nil, err
	}
	if res.Custom == nil {
		resources.Defaulted(u)
		return unknown, nil
	}
	opts := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: report}
	for _, path := range pruning.PruneWithOptions(u.Object, res.Custom.Structural, true, opts) {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	addDefaults(u.Object, res.Custom.Structural)
	return unknown, nil
}

// Defaults adds the defaults of a custom resource's version to an object that was
// written in another version.
func Defaults(res *resources.Resource, obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok && res.Custom != nil {
		addDefaults(u.Object, res.Custom.Structural)
	}
}

// coerceMeta decodes and encodes the metadata of an object as an ObjectMeta.
func coerceMeta(object map[string]any, report bool) (unknown []error, err error) {
	raw, ok := object["metadata"]
	if !ok || raw == nil {
		object["metadata"] = map[string]any{}
		return nil, nil
	}
	content, ok := raw.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("metadata: an object is expected, not %T", raw)
	}
	var m metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, &m, report); err != nil {
		strict, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return nil, metaError(content, err)
		}
		for _, s := range strict.Errors() {
			unknown = append(unknown, errors.New(strings.Replace(s.Error(), `field "`, `field "metadata.`, 1)))
		}
	}
	clean, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if clean["creationTimestamp"] == nil {
		delete(clean, "creationTimestamp")
	}
	// An empty list of managed fields is a request to drop them.
	if managed, ok := content["managedFields"].([]any); ok && len(managed) == 0 {
		clean["managedFields"] = managed
	}
	object["metadata"] = clean
	return unknown, nil
}

// metaError returns the error of the decoder that a real server uses.
func metaError(content map[string]any, err error) error {
	text, encodeErr := json.Marshal(content)
	if encodeErr == nil {
		if decodeErr := json.Unmarshal(text, new(metav1.ObjectMeta)); decodeErr != nil {
			return decodeErr
		}
	}
	return fmt.Errorf("metadata: %w", err)
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

// validate returns the errors of an object that is new or replaces old, which may be
// nil.
func (x *edit) validate(obj, old object) error {
	res := x.res
	var errs field.ErrorList
	if u, ok := obj.(*unstructured.Unstructured); ok && res.Custom != nil {
		for _, err := range res.Custom.Validator.Validate(u.Object).Errors {
			errs = append(errs, fieldError(err))
		}
		errs = append(errs, validateScale(u, res)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, res.Custom.Structural, u.Object)...)
	}
	if errs = append(errs, validateMeta(res, obj, old)...); len(errs) > 0 {
		return apierrors.NewInvalid(res.GVK.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// validateScale returns the errors of the fields of a scale subresource.
func validateScale(u *unstructured.Unstructured, res *resources.Resource) field.ErrorList {
	paths := res.Custom.Scale()
	if paths == nil {
		return nil
	}
	var errs field.ErrorList
	for _, path := range []string{paths.SpecReplicasPath, paths.StatusReplicasPath} {
		n, _, err := unstructured.NestedInt64(u.Object, fieldsOf(path)...)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(path), n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(field.NewPath(path), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if path := paths.LabelSelectorPath; path != nil && *path != "" {
		text, _, err := unstructured.NestedString(u.Object, fieldsOf(*path)...)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), text, err.Error()))
		}
	}
	return errs
}

// fieldError converts a schema's error as apiextensions-apiserver does, in a package
// that needs CEL.
func fieldError(err error) *field.Error {
	var v *openapierrors.Validation
	if !errors.As(err, &v) {
		return field.Invalid(nil, "", err.Error())
	}
	var path *field.Path
	if name := strings.TrimPrefix(v.Name, "."); name != "" {
		path = field.NewPath(name)
	}
	value := v.Value
	if value == nil {
		value = ""
	}
	number := func(x any) int {
		if n, ok := x.(int64); ok {
			return int(n)
		}
		return -1
	}
	switch v.Code() {
	case openapierrors.RequiredFailCode:
		return field.Required(path, "")
	case openapierrors.EnumFailCode:
		allowed := make([]string, 0, len(v.Values))
		for _, a := range v.Values {
			if s, ok := a.(string); ok {
				allowed = append(allowed, s)
			} else if data, err := json.Marshal(a); err == nil {
				allowed = append(allowed, string(data))
			}
		}
		return field.NotSupported(path, v.Value, allowed)
	case openapierrors.TooLongFailCode:
		return field.TooLong(path, "", number(v.Valid))
	case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
		return field.TooMany(path, number(v.Value), number(v.Valid))
	case openapierrors.InvalidTypeCode:
		return field.TypeInvalid(path, value, v.Error())
	}
	return field.Invalid(path, value, v.Error())
}
