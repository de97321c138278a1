package patch

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"watchlab/loadgen/apiserver/resources"
)

// looks says whether unknown and duplicate fields matter.
func (r Request) looks() bool { return r.FieldValidation != metav1.FieldValidationIgnore }

// decode reads the body of a POST or PUT.
func (x *edit) decode(body []byte) (object, error) {
	mediaType, err := objectType(x.res, x.ContentType)
	if err != nil {
		return nil, err
	}
	obj, kind, strict, err := x.read(mediaType, body)
	fail := func(err error) error { return cannotHandle(x.res, kind, err, body) }
	if err != nil {
		return nil, fail(err)
	}
	return obj, x.complain(strict, fail)
}

// read decodes an object of the resource, of that kind. It also returns unknown and
// duplicate fields, unless the request ignores them.
func (x *edit) read(mediaType string, body []byte) (obj object, kind schema.GroupVersionKind, strict []error, err error) {
	info, _ := runtime.SerializerInfoForMediaType(resources.Codecs.SupportedMediaTypes(), mediaType)
	decoder := runtime.Decoder(info.Serializer)
	if x.looks() && info.StrictSerializer != nil {
		decoder = info.StrictSerializer
	}
	decoded, actual, err := decoder.Decode(body, new(x.res.GVK), x.res.NewObject())
	if actual != nil {
		kind = *actual
	}
	if found, ok := runtime.AsStrictDecodingError(err); ok && decoded != nil {
		strict, err = found.Errors(), nil
	}
	if err == nil {
		err = rightKind(x.res, kind, decoded)
	}
	if err != nil {
		return nil, kind, nil, err
	}
	obj = decoded.(object) // of the resource's kind
	if u, ok := obj.(*unstructured.Unstructured); ok {
		unknown, err := coerce(x.res, u, x.looks())
		if err != nil {
			return nil, kind, nil, err
		}
		strict = append(strict, unknown...)
	}
	obj.GetObjectKind().SetGroupVersionKind(x.res.GVK)
	canonical(obj)
	return obj, kind, strict, nil
}

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
	return "", Unsupported(accepted...)
}

// complain turns the findings of strict decoding into warnings or an error.
func (x *edit) complain(found []error, fail func(error) error) error {
	if len(found) == 0 {
		return nil
	}
	if x.FieldValidation == metav1.FieldValidationStrict {
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

// canonical sets the defaults of a built-in kind, which the field manager of a body owns: those of its
// fields, a Secret's data of its stringData, a Namespace's label, the names of a CustomResourceDefinition.
func canonical(obj runtime.Object) {
	SetDefaults(obj)
	switch o := obj.(type) {
	case *appsv1.StatefulSet:
		for i := range o.Spec.VolumeClaimTemplates { // pkg/apis/apps/v1/conversion.go
			o.Spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		}
	case *appsv1.DaemonSet:
		if o.Annotations[appsv1.DeprecatedTemplateGeneration] == "" {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, appsv1.DeprecatedTemplateGeneration, "0")
		}
	case *corev1.Node:
		if o.Spec.PodCIDR != "" && len(o.Spec.PodCIDRs) == 0 {
			o.Spec.PodCIDRs = []string{o.Spec.PodCIDR}
		}
	case *corev1.Namespace:
		if o.Name != "" {
			metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
		}
	case *corev1.Secret:
		if len(o.StringData) > 0 && o.Data == nil {
			o.Data = make(map[string][]byte, len(o.StringData))
		}
		for k, v := range o.StringData {
			o.Data[k] = []byte(v)
		}
		o.StringData = nil
	case *apiextensionsv1.CustomResourceDefinition:
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(o)
	}
}

// rightKind returns an error for another kind or version than the URL's.
func rightKind(res *resources.Resource, kind schema.GroupVersionKind, decoded runtime.Object) error {
	if u, ok := decoded.(*unstructured.Unstructured); ok {
		switch {
		case kind.Version == "":
			return runtime.NewMissingVersionErr(fmt.Sprint(u.Object))
		case kind.Kind != res.GVK.Kind && kind.Group == res.GVK.Group:
			wrong := field.Invalid(field.NewPath("kind"), kind.Kind, "must be "+res.GVK.Kind)
			return apierrors.NewInvalid(kind.GroupKind(), u.GetName(), field.ErrorList{wrong})
		}
	}
	if kind.GroupKind() != res.GVK.GroupKind() && (res.Typed() || kind.GroupVersion() == res.GVK.GroupVersion()) {
		// It has the name of the group in kube-apiserver's sources: "core", "networking".
		group, _, _ := strings.Cut(cmp.Or(res.GVK.Group, "core"), ".")
		return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", kind.Version, kind.Kind, group, res.GVK.Kind)
	}
	if kind.GroupVersion() != res.GVK.GroupVersion() {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", kind.GroupVersion(), res.GVK.GroupVersion()))
	}
	return nil
}

// cannotHandle is the error for a body that is no object of the resource. A status stays.
func cannotHandle(res *resources.Resource, kind schema.GroupVersionKind, err error, body []byte) error {
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
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

// inVersion returns a copy of an object that [Convert] has shown in the version of a resource, typed if that is.
func inVersion(res *resources.Resource, current runtime.Object) (object, error) {
	obj, ok := current.DeepCopyObject().(object)
	u, untyped := obj.(*unstructured.Unstructured)
	switch {
	case !ok, !untyped && !res.Typed():
		return nil, fmt.Errorf("%s is kept as a %T", res, current)
	case untyped && res.Typed():
		obj = res.NewObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return nil, fmt.Errorf("%s %s: %w", res, u.GetName(), err)
		}
	}
	SetDefaults(obj) // Objects of a storm may lack them.
	obj.GetObjectKind().SetGroupVersionKind(res.GVK)
	return obj, nil
}
