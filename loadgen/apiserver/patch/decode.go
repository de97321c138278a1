package patch

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cbordirect "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/resources"
)

// looks and strict say how to treat unknown and duplicate fields.
func (r Request) looks() bool  { return r.FieldValidation != metav1.FieldValidationIgnore }
func (r Request) strict() bool { return r.FieldValidation == metav1.FieldValidationStrict }

// decode reads the body of a POST or PUT.
func (x *edit) decode(body []byte) (object, error) {
	mediaType, err := objectType(x.res, x.ContentType)
	if err != nil {
		return nil, err
	}
	if x.res.Typed() {
		return x.decodeTyped(mediaType, body)
	}
	u, strict, err := x.decodeUntyped(mediaType, body)
	if err != nil {
		return nil, err
	}
	return u, x.complain(strict, func(err error) error { return cannotHandle(x.res, u.GroupVersionKind(), err, body) })
}

// objectType returns the media type of an object's encoding.
func objectType(res *resources.Resource, contentType string) (string, error) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	accepted := []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
	if res.Typed() {
		accepted = append(accepted, runtime.ContentTypeProtobuf)
	}
	switch {
	case mediaType == "":
		return runtime.ContentTypeJSON, nil
	case slices.Contains(accepted, mediaType), mediaType == runtime.ContentTypeCBOR:
		return mediaType, nil
	}
	return "", unsupported(accepted)
}

// complain turns the findings of strict decoding into warnings or an error.
func (x *edit) complain(found []error, fail func(error) error) error {
	if len(found) == 0 {
		return nil
	}
	if x.strict() {
		return fail(runtime.NewStrictDecodingError(found))
	}
	for _, err := range found {
		x.Warnings = append(x.Warnings, warnings(err)...)
	}
	return nil
}

// warnings splits an error into lines; a YAML decoder joins several.
func warnings(err error) []string {
	text := err.Error()
	for _, prefix := range []string{"error unmarshaling JSON: while decoding JSON: ", "error converting YAML to JSON: ", "yaml: unmarshal errors:\n"} {
		text = strings.TrimPrefix(text, prefix)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

func (x *edit) decodeTyped(mediaType string, body []byte) (object, error) {
	info, ok := runtime.SerializerInfoForMediaType(resources.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, unsupported([]string{runtime.ContentTypeJSON})
	}
	decoder := runtime.Decoder(info.Serializer)
	if x.looks() && info.StrictSerializer != nil {
		decoder = info.StrictSerializer
	}
	decoded, kind, err := decoder.Decode(body, new(x.res.GVK), x.res.NewObject())
	if kind == nil {
		kind = &schema.GroupVersionKind{}
	}
	if err != nil {
		fail := func(err error) error { return cannotHandle(x.res, *kind, err, body) }
		strict, ok := runtime.AsStrictDecodingError(err)
		if !ok || decoded == nil {
			return nil, fail(err)
		}
		if err := x.complain(strict.Errors(), fail); err != nil {
			return nil, err
		}
	}
	if err := rightKind(x.res, *kind, body); err != nil {
		return nil, err
	}
	obj, ok := decoded.(object)
	if !ok {
		return nil, cannotHandle(x.res, *kind, unconvertible(x.res, *kind), body)
	}
	obj.GetObjectKind().SetGroupVersionKind(x.res.GVK)
	canonical(obj)
	return obj, nil
}

// canonical sets the defaults that a body's field manager owns: it turns a Secret's
// stringData into data, sets its type, labels a Namespace with its name, and completes
// the names of a CustomResourceDefinition.
func canonical(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		if o.Name != "" {
			metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
		}
	case *corev1.Secret:
		o.Type = cmp.Or(o.Type, corev1.SecretTypeOpaque)
		if len(o.StringData) > 0 && o.Data == nil {
			o.Data = make(map[string][]byte, len(o.StringData))
		}
		for k, v := range o.StringData {
			o.Data[k] = []byte(v)
		}
		o.StringData = nil
	case *apiextensionsv1.CustomResourceDefinition:
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&o.Spec)
	}
}

// rightKind returns an error for another kind or version than the URL's.
func rightKind(res *resources.Resource, kind schema.GroupVersionKind, body []byte) error {
	if isOther(res, kind) && (res.Typed() || kind.GroupVersion() == res.GVK.GroupVersion()) {
		return cannotHandle(res, kind, unconvertible(res, kind), body)
	}
	if kind.GroupVersion() != res.GVK.GroupVersion() {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", kind.GroupVersion(), res.GVK.GroupVersion()))
	}
	return nil
}

// isOther reports whether a kind is not that of a resource, in any version.
func isOther(res *resources.Resource, kind schema.GroupVersionKind) bool {
	return kind.Kind != res.GVK.Kind || kind.Group != res.GVK.Group
}

// unconvertible is the error for a kind that is not that of a resource. It has the name of
// the group in kube-apiserver's sources: "core", "networking".
func unconvertible(res *resources.Resource, kind schema.GroupVersionKind) error {
	group, _, _ := strings.Cut(cmp.Or(res.GVK.Group, "core"), ".")
	return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", kind.Version, kind.Kind, group, res.GVK.Kind)
}

// cannotHandle is the error for a body of another kind.
func cannotHandle(res *resources.Resource, kind schema.GroupVersionKind, err error, body []byte) error {
	if kind.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind.Kind, kind.Version, res.GVK.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", res.GVK.Kind, err, summary(body)))
}

// summary returns the start of a body, for an error.
func summary(body []byte) string {
	const most = 30
	text := string(body[:min(len(body), most)])
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] != '{':
		text = hex.EncodeToString(body[:min(len(body), most)])
	}
	if len(body) > most {
		text += " ..."
	}
	return text
}

// decodeUntyped reads an object without a type in client-go. It also returns unknown
// and duplicate fields, unless the request ignores them.
func (x *edit) decodeUntyped(mediaType string, body []byte) (*unstructured.Unstructured, []error, error) {
	fail := func(err error) (*unstructured.Unstructured, []error, error) {
		return nil, nil, cannotHandle(x.res, schema.GroupVersionKind{}, err, body)
	}
	if mediaType == runtime.ContentTypeJSON {
		// It has a real server's error for a body that is no object.
		if _, err := (serializerjson.SimpleMetaFactory{}).Interpret(body); err != nil {
			return fail(err)
		}
	}
	content, strict, err := unmarshal(mediaType, body, x.looks())
	if err != nil {
		return fail(err)
	}
	u := &unstructured.Unstructured{Object: content}
	if kind, ok := content["kind"].(string); !ok || kind == "" {
		return fail(runtime.NewMissingKindErr(string(body)))
	}
	if _, ok := content["apiVersion"].(string); !ok {
		return fail(runtime.NewMissingVersionErr(string(body)))
	}
	kind := u.GroupVersionKind()
	if kind.Kind != x.res.GVK.Kind && kind.Group == x.res.GVK.Group {
		wrong := field.Invalid(field.NewPath("kind"), kind.Kind, "must be "+x.res.GVK.Kind)
		return nil, nil, apierrors.NewInvalid(kind.GroupKind(), u.GetName(), field.ErrorList{wrong})
	}
	if err := rightKind(x.res, kind, body); err != nil {
		return nil, nil, err
	}
	unknown, err := coerce(x.res, u, x.looks())
	if err != nil {
		return nil, nil, cannotHandle(x.res, kind, err, body)
	}
	return u, append(strict, unknown...), nil
}

// unmarshal reads a map from JSON, YAML or CBOR.
func unmarshal(mediaType string, body []byte, strict bool) (content map[string]any, found []error, err error) {
	switch mediaType {
	case runtime.ContentTypeCBOR:
		err = cbordirect.Unmarshal(body, &content)
	case runtime.ContentTypeYAML:
		if strict {
			if err := yaml.UnmarshalStrict(body, &map[string]any{}); err != nil {
				found = []error{err}
			}
		}
		asJSON, yerr := yaml.YAMLToJSON(body)
		if yerr != nil {
			return nil, nil, fmt.Errorf("error converting YAML to JSON: %w", yerr)
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &content); err != nil {
			return nil, nil, fmt.Errorf("error unmarshaling JSON: while decoding JSON: %w", err)
		}
	default:
		if strict {
			found, err = kjson.UnmarshalStrict(body, &content)
		} else {
			err = kjson.UnmarshalCaseSensitivePreserveInts(body, &content)
		}
	}
	if err == nil && content == nil {
		// null
		content = map[string]any{}
	}
	return content, found, err
}

// inVersion returns a copy of an object in the version of a resource, typed if the
// resource is.
func inVersion(res *resources.Resource, current runtime.Object) (object, error) {
	obj, ok := current.DeepCopyObject().(object)
	if !ok {
		return nil, fmt.Errorf("%s is kept as a %T", res, current)
	}
	switch u, untyped := obj.(*unstructured.Unstructured); {
	case !res.Typed() && untyped:
		Defaults(res, u)
	case !res.Typed():
		return nil, fmt.Errorf("%s is kept as a %T", res, current)
	case untyped:
		obj = res.NewObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return nil, fmt.Errorf("%s %s: %w", res, u.GetName(), err)
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(res.GVK)
	return obj, nil
}
