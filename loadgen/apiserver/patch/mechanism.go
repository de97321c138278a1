package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cbordirect "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/resources"
)

// Limits of patches.
const (
	mostOperations = 10000   // in a JSON patch
	mostCopied     = 3 << 20 // bytes that the operations of a JSON patch copy, as in a real server
	// mostNested limits the bytes of a document times its depth: package jsonpatch keeps a copy of each level.
	mostNested = 256 << 20
	// Limits of objects: field managers take the square of the members of a map.
	mostBytes   = 3 << 20 // as of a body
	mostMembers = 50_000
)

// limitCopies sets the limit of package jsonpatch, which has one for the whole program.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = mostCopied })

// nested returns the depth of a JSON document.
func nested(text []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++ // only in a string
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
			most = max(most, depth)
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
	}
	return most
}

// checkSize returns an error for an object beyond the limits.
func checkSize(obj any) error {
	if sized, ok := obj.(interface{ Size() int }); ok && sized.Size() < mostMembers {
		return nil // A member takes more than a byte.
	}
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		obj = o.Object
	case runtime.Object:
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		obj = content
	}
	if bytes, members := weigh(obj); bytes > mostBytes || members > mostMembers {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object has at most %d bytes and %d members of a map or list", mostBytes, mostMembers))
	}
	return nil
}

// weigh returns about the bytes of a value in JSON, and the members of its largest map or list.
func weigh(value any) (bytes, members int) {
	add := func(key string, v any) {
		b, m := weigh(v)
		bytes, members = bytes+b+len(key), max(members, m)
	}
	switch v := value.(type) {
	case map[string]any:
		members = len(v)
		for k, e := range v {
			add(k, e)
		}
	case []any:
		members = len(v)
		for _, e := range v {
			add("", e)
		}
	case string:
		bytes = len(v)
	}
	return bytes + 1, members
}

// patchType returns the kind of patch of a content type. A strategic merge patch needs
// a Go type, whose tags name the keys of lists.
func patchType(res *resources.Resource, contentType string) (types.PatchType, error) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if res.Typed() {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	accepted = append(accepted, string(types.ApplyYAMLPatchType))
	kind := types.PatchType(strings.TrimSpace(mediaType))
	switch {
	case slices.Contains(accepted, string(kind)), kind == types.ApplyCBORPatchType:
		return kind, nil
	case kind == types.StrategicMergePatchType:
		return "", Unsupported(accepted...)
	}
	err := Unsupported()
	err.ErrStatus.Message, err.ErrStatus.Details = "415: Unsupported Media Type", &metav1.StatusDetails{}
	return "", err
}

func isApply(kind types.PatchType) bool {
	return kind == types.ApplyYAMLPatchType || kind == types.ApplyCBORPatchType
}

// apply applies a patch to an object and updates the field managers.
func (x *edit) apply(live object, kind types.PatchType, body []byte) (object, error) {
	if isApply(kind) {
		return x.serverSide(live, kind, body)
	}
	if !json.Valid(body) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	var obj object
	var err error
	if kind == types.StrategicMergePatchType {
		obj, err = x.strategic(live, body)
	} else {
		obj, err = x.patchJSON(live, kind, body)
	}
	if err != nil {
		return nil, err
	}
	return x.track(live, obj)
}

type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func (x *edit) patchJSON(live object, kind types.PatchType, body []byte) (object, error) {
	current, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	var strict []error
	if x.looks() {
		var parsed any = new(map[string]any)
		if kind == types.JSONPatchType {
			parsed = new([]jsonPatchOp)
		}
		if strict, err = kjson.UnmarshalStrict(body, parsed); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	for _, text := range [][]byte{current, body} {
		if nested(text)*len(text) > mostNested {
			return nil, apierrors.NewRequestEntityTooLargeError("the document is too deeply nested")
		}
	}
	var patched []byte
	if kind == types.MergePatchType {
		patched, err = jsonpatch.MergePatch(current, body)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) || errors.Is(err, jsonpatch.ErrBadJSONDoc) {
			err = apierrors.NewBadRequest(err.Error())
		}
	} else {
		for i, s := range strict {
			strict[i] = fmt.Errorf("json patch %w", s)
		}
		patched, err = applyOperations(current, body)
	}
	if err != nil {
		return nil, err
	}
	return x.decodePatched(patched, strict)
}

func applyOperations(current, body []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(operations) > mostOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", mostOperations, len(operations)))
	}
	patched, err := operations.Apply(current)
	if err != nil {
		return nil, unprocessable(err.Error())
	}
	return patched, nil
}

// decodePatched decodes a patched object. strict are the duplicate fields of the patch itself.
func (x *edit) decodePatched(patched []byte, strict []error) (object, error) {
	invalid := func(err error) error { return invalidPatch(string(patched), err) }
	obj, kind, found, err := x.read(runtime.ContentTypeJSON, patched)
	switch {
	case err == nil:
		return obj, x.complain(append(strict, found...), invalid)
	case !x.res.Typed() && kind.Kind != "" && kind.Version != "" && kind != x.res.GVK:
		wrong := field.Invalid(field.NewPath("apiVersion"), kind.GroupVersion().String(), "must be "+x.res.GroupVersion().String())
		if kind.Kind != x.res.GVK.Kind {
			wrong = field.Invalid(field.NewPath("kind"), kind.Kind, "must be "+x.res.GVK.Kind)
		}
		return nil, apierrors.NewInvalid(kind.GroupKind(), x.Name, field.ErrorList{wrong})
	case !x.res.Typed():
		return nil, invalid(cannotHandle(x.res, kind, err, patched))
	case apierrors.IsBadRequest(err): // another version
		return nil, err
	}
	return nil, invalid(err)
}

func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

func (x *edit) strategic(live object, body []byte) (object, error) {
	current, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	var change map[string]any
	strict, err := kjson.UnmarshalStrict(body, &change)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !x.looks() {
		strict = nil
	}
	obj := x.res.NewObject()
	patched, err := mergeStrategic(current, change, obj)
	if err != nil {
		return nil, strategicError(err)
	}
	invalid := func(err error) error { return invalidPatch(fmt.Sprintf("%+v", change), err) }
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(patched, obj, x.looks()); err != nil {
		found, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return nil, invalid(err)
		}
		strict = append(strict, found.Errors()...)
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	if err := rightKind(x.res, kind, obj); err != nil {
		return nil, cannotHandle(x.res, kind, err, body)
	}
	canonical(obj)
	return obj, x.complain(strict, invalid)
}

// mergeStrategic turns a panic of package strategicpatch, as for {"$retainKeys":[{}]}, into an error.
func mergeStrategic(current, change strategicpatch.JSONMap, obj object) (patched strategicpatch.JSONMap, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = apierrors.NewBadRequest(fmt.Sprintf("strategic merge patch: %v", r))
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(current, change, obj)
}

func strategicError(err error) error {
	is := func(bad error) bool { return errors.Is(err, bad) }
	switch {
	case slices.ContainsFunc([]error{
		mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList,
		mergepatch.ErrBadPatchFormatForRetainKeys, mergepatch.ErrBadPatchFormatForSetElementOrderList,
		mergepatch.ErrUnsupportedStrategicMergePatchFormat,
	}, is):
		return apierrors.NewBadRequest(err.Error())
	case is(mergepatch.ErrNoListOfLists), is(mergepatch.ErrPatchContentNotMatchRetainKeys):
		return unprocessable(err.Error())
	}
	return err
}

// serverSide applies an apply configuration. It removes fields that the manager alone applied
// before and now omits. Different values of other managers' fields are conflicts, unless forced.
func (x *edit) serverSide(live object, kind types.PatchType, body []byte) (object, error) {
	content, err := applyContent(kind, body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := checkSize(content); err != nil {
		return nil, err
	}
	manager, err := x.manager()
	if err != nil {
		return nil, err
	}
	force := x.Force != nil && *x.Force
	applied, err := manager.Apply(live, &unstructured.Unstructured{Object: content}, x.FieldManager, force)
	if err != nil {
		return nil, err
	}
	obj := applied.(object) // of live's type
	if x.looks() && kind == types.ApplyYAMLPatchType {
		if strict := yaml.UnmarshalStrict(body, &map[string]any{}); strict != nil {
			fail := func(error) error {
				return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", strict))
			}
			if err := x.complain([]error{strict}, fail); err != nil {
				return nil, err
			}
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(x.res.GVK)
	canonical(obj)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		// Defaults are added after Apply: they belong to no manager.
		if _, err := coerce(x.res, u, false); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return obj, nil
}

// applyContent reads an apply configuration.
func applyContent(kind types.PatchType, body []byte) (content map[string]any, err error) {
	if kind == types.ApplyCBORPatchType {
		if err = cbordirect.Unmarshal(body, &content); err != nil {
			err = fmt.Errorf("error decoding patch: %w", err)
		}
		return content, err
	}
	text, err := yaml.YAMLToJSON(body)
	switch {
	case err != nil && utilyaml.IsJSONBuffer(body):
		return nil, fmt.Errorf("error decoding patch: error converting YAML to JSON: %w", err)
	case err != nil: // A real server converts what is no JSON for the audit first.
		return nil, fmt.Errorf("error encoding patch: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, fmt.Errorf("error decoding patch: error unmarshaling JSON: while decoding JSON: %w", err)
	}
	return content, nil
}

// track records in the managed fields that a request changed live to obj.
func (x *edit) track(live, obj object) (object, error) {
	if err := checkSize(obj); err != nil {
		return nil, err
	}
	manager, err := x.manager()
	if err != nil {
		return nil, err
	}
	if tracked, err := manager.Update(live, obj, x.managerName()); err == nil {
		return tracked.(object), nil // of obj's type
	}
	// The object does not fit its schema, which validation reports better, or its
	// managed fields are broken: they stay as they were.
	obj.SetManagedFields(live.GetManagedFields())
	return obj, nil
}

// managerName returns the field manager of a request: the given one, or the first
// program of the User-Agent.
func (r Request) managerName() string {
	if r.FieldManager != "" {
		return r.FieldManager
	}
	program, _, _ := strings.Cut(r.UserAgent, "/")
	program = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, program)
	return strings.ToValidUTF8(program[:min(len(program), metavalidation.FieldManagerMaxLength)], "")
}

// typedConverter converts client-go's types by their merge schema, a large table. It lacks
// Scale and CustomResourceDefinition.
var typedConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return managedfields.NewSchemeTypeConverter(scheme.Scheme, resources.MergeTypes())
})

type managerKey struct {
	kind        schema.GroupVersionKind
	subresource string
}

// cachedManager remembers the resource: a changed definition is a new resource.
type cachedManager struct {
	res     *resources.Resource
	manager *managedfields.FieldManager
}

// manager returns the field manager of the resource or subresource.
func (x *edit) manager() (*managedfields.FieldManager, error) {
	key := managerKey{x.res.GVK, x.Subresource}
	if c, ok := x.managers.Load(key); ok && c.(*cachedManager).res == x.res {
		return c.(*cachedManager).manager, nil
	}
	m, err := newManager(x.res, x.Subresource)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.res, err)
	}
	x.managers.Store(key, &cachedManager{res: x.res, manager: m})
	return m, nil
}

// Warm parses the merge schema, which takes some 0.1 s. Otherwise the first write of the process waits for it.
func Warm() { typedConverter() }

func newManager(res *resources.Resource, subresource string) (*managedfields.FieldManager, error) {
	reset := resetFields(res, subresource)
	if res.Typed() {
		converter := typedConverter()
		switch {
		case res == scaleResource:
			converter, reset = managedfields.NewDeducedTypeConverter(), nil
		case !scheme.Scheme.Recognizes(res.GVK):
			converter = managedfields.NewDeducedTypeConverter()
		}
		return managedfields.NewDefaultFieldManager(converter, resources.Scheme, noDefaults{}, resources.Scheme, res.GVK, res.GroupVersion(), subresource, reset)
	}
	converter, err := managedfields.NewTypeConverter(res.Custom.Models(), false)
	if err != nil {
		return nil, err
	}
	return managedfields.NewDefaultCRDFieldManager(converter, versions{custom: res.Custom}, noDefaults{}, unstructuredscheme.NewUnstructuredCreator(), res.GVK, res.GroupVersion(), subresource, reset)
}

// noDefaults leaves defaulting to the editor.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// versions converts custom resources: by the strategy None, it sets the version. Field
// managers need no other method.
type versions struct {
	runtime.ObjectConvertor
	custom *resources.Custom
}

func (v versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	kind := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{kind})
	if !ok {
		return nil, fmt.Errorf("%s is not a version of %s", target, kind)
	}
	if to == kind {
		return in, nil
	}
	u := in.DeepCopyObject().(*unstructured.Unstructured)
	if v.custom.Conversion.Strategy == apiextensionsv1.WebhookConverter && len(u.Object) > len([]string{"apiVersion", "kind"}) {
		return callWebhook(v.custom, u, to.GroupVersion().String())
	}
	u.SetGroupVersionKind(to)
	return u, nil
}
