package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"watchlab/loadgen/apiserver/resources"
)

// mostOperations is the maximum number of operations in a JSON patch.
const mostOperations = 10000

// patchType returns the kind of patch of a content type. A strategic merge patch needs
// a Go type, whose tags name the keys of lists.
func patchType(res *resources.Resource, contentType string) (types.PatchType, error) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if res.Typed {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	accepted = append(accepted, string(types.ApplyYAMLPatchType))
	kind := types.PatchType(strings.TrimSpace(mediaType))
	switch {
	case slices.Contains(accepted, string(kind)), kind == types.ApplyCBORPatchType:
		return kind, nil
	case kind == types.StrategicMergePatchType:
		return "", unsupported(accepted)
	}
	err := unsupported(nil)
	err.ErrStatus.Message, err.ErrStatus.Details = "415: Unsupported Media Type", &metav1.StatusDetails{}
	return "", err
}

func isApply(kind types.PatchType) bool {
	return kind == types.ApplyYAMLPatchType || kind == types.ApplyCBORPatchType
}

// apply applies a patch to an object and updates the field managers.
func (e *Editor) apply(res *resources.Resource, live object, kind types.PatchType, body []byte, req Request, result *Result) (object, error) {
	switch {
	case isApply(kind):
		return e.serverSide(res, live, kind, body, req, result)
	case kind == types.StrategicMergePatchType:
		obj, err := strategic(res, live, body, req, result)
		if err != nil {
			return nil, err
		}
		return e.track(res, req, live, obj)
	}
	current, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	patched, strict, err := patchJSON(current, kind, body, req)
	if err != nil {
		return nil, err
	}
	obj, err := e.decodePatched(res, patched, strict, req, result)
	if err != nil {
		return nil, err
	}
	return e.track(res, req, live, obj)
}

// jsonPatchOp is one operation of a JSON patch.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// patchJSON applies a JSON or a merge patch.
func patchJSON(current []byte, kind types.PatchType, body []byte, req Request) (patched []byte, strict []error, err error) {
	if kind == types.MergePatchType {
		if req.looks() {
			if strict, err = kjson.UnmarshalStrict(body, &map[string]any{}); err != nil {
				return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
			}
		}
		patched, err = jsonpatch.MergePatch(current, body)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) || errors.Is(err, jsonpatch.ErrBadJSONDoc) {
			err = apierrors.NewBadRequest(err.Error())
		}
		return patched, strict, err
	}
	if req.looks() {
		var operations []jsonPatchOp
		if strict, err = kjson.UnmarshalStrict(body, &operations); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		for i, s := range strict {
			strict[i] = fmt.Errorf("json patch %w", s)
		}
	}
	operations, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(operations) > mostOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", mostOperations, len(operations)))
	}
	if patched, err = operations.Apply(current); err != nil {
		return nil, nil, unprocessable(err.Error())
	}
	return patched, strict, nil
}

// decodePatched decodes a patched object. strict are the duplicate fields of the patch
// itself.
func (e *Editor) decodePatched(res *resources.Resource, patched []byte, strict []error, req Request, result *Result) (object, error) {
	invalid := func(err error) error { return invalidPatch(string(patched), err) }
	if !res.Typed {
		u, found, err := decodeUntyped(res, runtime.ContentTypeJSON, patched, req)
		if err != nil {
			return nil, invalid(err)
		}
		return u, complain(append(strict, found...), req, result, invalid)
	}
	into := res.NewObject()
	found, err := unmarshalInto(patched, into, req)
	if err != nil {
		return nil, invalid(err)
	}
	kind := into.GetObjectKind().GroupVersionKind()
	if isOther(res, kind) {
		return nil, invalid(unconvertible(res, kind))
	}
	if err := rightKind(res, kind, patched); err != nil {
		return nil, err
	}
	canonical(into)
	return into, complain(append(strict, found...), req, result, invalid)
}

// unmarshalInto decodes JSON and finds unknown and duplicate fields, unless the
// request ignores them.
func unmarshalInto(text []byte, into any, req Request) (strict []error, err error) {
	if req.looks() {
		return kjson.UnmarshalStrict(text, into)
	}
	return nil, kjson.UnmarshalCaseSensitivePreserveInts(text, into)
}

func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

// strategic applies a strategic merge patch.
func strategic(res *resources.Resource, live object, body []byte, req Request, result *Result) (object, error) {
	current, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	var change map[string]any
	strict, err := unmarshalInto(body, &change, req)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj := res.NewObject()
	patched, err := strategicpatch.StrategicMergeMapPatch(current, change, obj)
	if err != nil {
		return nil, strategicError(err)
	}
	invalid := func(err error) error { return invalidPatch(fmt.Sprintf("%+v", change), err) }
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(patched, obj, req.looks()); err != nil {
		found, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return nil, invalid(err)
		}
		strict = append(strict, found.Errors()...)
	}
	if err := rightKind(res, obj.GetObjectKind().GroupVersionKind(), body); err != nil {
		return nil, err
	}
	canonical(obj)
	return obj, complain(strict, req, result, invalid)
}

func strategicError(err error) error {
	for _, bad := range []error{mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList,
		mergepatch.ErrBadPatchFormatForRetainKeys, mergepatch.ErrBadPatchFormatForSetElementOrderList,
		mergepatch.ErrUnsupportedStrategicMergePatchFormat} {
		if errors.Is(err, bad) {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	for _, bad := range []error{mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys} {
		if errors.Is(err, bad) {
			return unprocessable(err.Error())
		}
	}
	return err
}

// serverSide applies an apply configuration. It removes fields that the manager alone
// applied before and now omits. Different values of other managers' fields are
// conflicts, unless forced.
func (e *Editor) serverSide(res *resources.Resource, live object, kind types.PatchType, body []byte, req Request, result *Result) (object, error) {
	mediaType := runtime.ContentTypeYAML
	if kind == types.ApplyCBORPatchType {
		mediaType = runtime.ContentTypeCBOR
	}
	content, strict, err := unmarshal(mediaType, body, req.looks())
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	manager, err := e.manager(res, req.Subresource)
	if err != nil {
		return nil, err
	}
	force := req.Force != nil && *req.Force
	applied, err := manager.Apply(live, &unstructured.Unstructured{Object: content}, req.FieldManager, force)
	if err != nil {
		return nil, err
	}
	obj := applied.(object) // of live's type
	if len(strict) > 0 && req.strict() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", strict[0]))
	}
	if err := complain(strict, req, result, func(err error) error { return err }); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(res.GVK)
	canonical(obj)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		// Defaults are added after Apply: they belong to no manager.
		if _, err := coerce(res, u, false); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return obj, nil
}

// track records in the managed fields that a request changed live to obj.
func (e *Editor) track(res *resources.Resource, req Request, live, obj object) (object, error) {
	manager, err := e.manager(res, req.Subresource)
	if err != nil {
		return nil, err
	}
	if tracked, err := manager.Update(live, obj, managerName(req)); err == nil {
		return tracked.(object), nil // of obj's type
	}
	// The object does not fit its schema, which validation reports better, or its
	// managed fields are broken: they stay as they were.
	obj.SetManagedFields(live.GetManagedFields())
	return obj, nil
}

// managerName returns the field manager of a request: the given one, or the first
// program of the User-Agent.
func managerName(req Request) string {
	if req.FieldManager != "" {
		return req.FieldManager
	}
	program, _, _ := strings.Cut(req.UserAgent, "/")
	var b strings.Builder
	for _, r := range program {
		if !unicode.IsPrint(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > metavalidation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
