package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"watchlab/loadgen/apiserver/resources"
)

// Extensions of structural schemas.
const (
	preserveUnknown  = "x-kubernetes-preserve-unknown-fields"
	embeddedResource = "x-kubernetes-embedded-resource"
	intOrString      = "x-kubernetes-int-or-string"
	listType         = "x-kubernetes-list-type"
	listMapKeys      = "x-kubernetes-list-map-keys"
)

// coerce makes an untyped object what its schema says: metadata is metadata,
// unknown fields go, defaults come. The unknown fields are returned if they
// are to be reported.
func (e *Editor) coerce(res *resources.Resource, u *unstructured.Unstructured, report bool) ([]error, error) {
	unknown, err := coerceMeta(u.Object, report)
	if err != nil {
		return nil, err
	}
	if res.Custom == nil {
		resources.Defaulted(u)
		return unknown, nil
	}
	for _, path := range prune(u.Object, res.Custom.Schema, "", true) {
		if report {
			unknown = append(unknown, fmt.Errorf("unknown field %q", path))
		}
	}
	e.addDefaults(res, u)
	return unknown, nil
}

// Defaults gives an object of a custom resource that was written in another
// version the defaults of the one that it is kept in.
func (e *Editor) Defaults(res *resources.Resource, obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		e.addDefaults(res, u)
	}
}

// addDefaults gives a custom resource the defaults of its schema.
func (e *Editor) addDefaults(res *resources.Resource, u *unstructured.Unstructured) {
	if res.Custom != nil {
		pruneDefaultedNulls(u.Object, res.Custom.Schema)
		addDefaults(u.Object, res.Custom.Schema)
	}
}

// coerceMeta makes the metadata of an object that of an ObjectMeta.
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
	// An empty list of managed fields means that they are to be forgotten.
	if managed, ok := content["managedFields"].([]any); ok && len(managed) == 0 {
		clean["managedFields"] = managed
	}
	object["metadata"] = clean
	return unknown, nil
}

// metaError is why metadata can't be read, in the words of the decoder that a real
// server reads it with.
func metaError(content map[string]any, err error) error {
	text, encodeErr := json.Marshal(content)
	if encodeErr == nil {
		if decodeErr := json.Unmarshal(text, new(metav1.ObjectMeta)); decodeErr != nil {
			return decodeErr
		}
	}
	return fmt.Errorf("metadata: %w", err)
}

// prune drops the fields that a schema doesn't have and returns their paths,
// sorted. resource says that x is a whole object, with a kind and metadata.
func prune(x any, s *spec.Schema, path string, resource bool) []string {
	var dropped []string
	switch x := x.(type) {
	case map[string]any:
		for _, k := range sortedKeys(x) {
			if resource && (k == "apiVersion" || k == "kind" || k == "metadata") {
				continue
			}
			at := k
			if path != "" {
				at = path + "." + k
			}
			child, known := property(s, k)
			switch {
			case known && child != nil:
				dropped = append(dropped, prune(x[k], child, at, resources.Extension(child, embeddedResource))...)
			case !known && !resources.Extension(s, preserveUnknown):
				delete(x, k)
				dropped = append(dropped, at)
			}
		}
	case []any:
		if s.Items == nil || s.Items.Schema == nil {
			return nil
		}
		for i, item := range x {
			dropped = append(dropped, prune(item, s.Items.Schema, fmt.Sprintf("%s[%d]", path, i), resources.Extension(s.Items.Schema, embeddedResource))...)
		}
	}
	return dropped
}

// property returns the schema of a field, nil if any value will do, and
// whether there may be such a field.
func property(s *spec.Schema, name string) (*spec.Schema, bool) {
	if p, ok := s.Properties[name]; ok {
		return &p, true
	}
	if a := s.AdditionalProperties; a != nil {
		if a.Schema != nil {
			return a.Schema, true
		}
		return nil, a.Allows
	}
	return nil, false
}

// addDefaults fills in what is missing and has a default, all the way down.
func addDefaults(x any, s *spec.Schema) {
	switch x := x.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if _, ok := x[name]; !ok && p.Default != nil {
				x[name] = runtime.DeepCopyJSONValue(plainJSON(p.Default))
			}
		}
		for k, v := range x {
			if child, _ := property(s, k); child != nil {
				addDefaults(v, child)
			}
		}
	case []any:
		if s.Items != nil && s.Items.Schema != nil {
			for _, item := range x {
				addDefaults(item, s.Items.Schema)
			}
		}
	}
}

// pruneDefaultedNulls drops nulls that may not be null and have a default.
func pruneDefaultedNulls(x any, s *spec.Schema) {
	switch x := x.(type) {
	case map[string]any:
		for k, v := range x {
			child, _ := property(s, k)
			switch {
			case child == nil:
			case v == nil && !child.Nullable && child.Default != nil:
				delete(x, k)
			default:
				pruneDefaultedNulls(v, child)
			}
		}
	case []any:
		if s.Items != nil && s.Items.Schema != nil {
			for _, item := range x {
				pruneDefaultedNulls(item, s.Items.Schema)
			}
		}
	}
}

// plainJSON gives the numbers of a default the types that decoded objects
// have: whole ones are int64.
func plainJSON(v any) any {
	switch v := v.(type) {
	case float64:
		if whole := int64(v); float64(whole) == v {
			return whole
		}
	case int:
		return int64(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plainJSON(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plainJSON(e)
		}
		return out
	}
	return v
}

// customSchema is what the objects of a custom resource are validated by, and
// which resource that is, as in [cachedManager].
type customSchema struct {
	res    *resources.Resource
	schema *spec.Schema
}

// schemaOf returns the schema that objects are validated by: the definition's,
// with types where x-kubernetes-int-or-string stands for them.
func (e *Editor) schemaOf(res *resources.Resource) (*customSchema, error) {
	if s, ok := e.schemas.Load(res.GVK); ok && s.(*customSchema).res == res {
		return s.(*customSchema), nil
	}
	copied, err := copySchema(res.Custom.Schema)
	if err != nil {
		return nil, err
	}
	walk(copied, func(s *spec.Schema) {
		if resources.Extension(s, intOrString) {
			s.Type = spec.StringOrArray{"integer", "string"}
		}
		if s.Format != "" && !strfmt.Default.ContainsName(s.Format) {
			s.Format = ""
		}
	})
	made := &customSchema{res: res, schema: copied}
	e.schemas.Store(res.GVK, made)
	return made, nil
}

func copySchema(s *spec.Schema) (*spec.Schema, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	out := new(spec.Schema)
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return out, nil
}

// walk calls visit for a schema and each one in it, before those that it is
// made of.
func walk(s *spec.Schema, visit func(*spec.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	for name, p := range s.Properties {
		walk(&p, visit)
		s.Properties[name] = p
	}
	if s.Items != nil {
		walk(s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil {
		walk(s.AdditionalProperties.Schema, visit)
	}
	for _, several := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range several {
			walk(&several[i], visit)
		}
	}
	walk(s.Not, visit)
}

// validate says what is wrong with an object that is new, or takes old's
// place.
func (e *Editor) validate(res *resources.Resource, obj, old runtime.Object) error {
	m, err := accessor(obj)
	if err != nil {
		return err
	}
	var oldMeta metav1.Object
	if old != nil {
		if oldMeta, err = accessor(old); err != nil {
			return err
		}
	}
	errs := validateMeta(res, m, oldMeta)
	if u, ok := obj.(*unstructured.Unstructured); ok && res.Custom != nil {
		custom, err := e.validateCustom(res, u)
		if err != nil {
			return err
		}
		errs = append(custom, errs...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(res.GVK.GroupKind(), m.GetName(), errs)
	}
	return nil
}

func (e *Editor) validateCustom(res *resources.Resource, u *unstructured.Unstructured) (field.ErrorList, error) {
	s, err := e.schemaOf(res)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	result := validate.NewSchemaValidator(s.schema, nil, "", strfmt.Default).Validate(u.Object)
	for _, err := range result.Errors {
		errs = append(errs, fieldError(err))
	}
	errs = append(errs, validateScale(u, res.Custom.Scale)...)
	return append(errs, validateLists(u.Object, s.schema, nil)...), nil
}

// validateScale says which of the fields that a scale is made of can't be.
func validateScale(u *unstructured.Unstructured, paths *resources.ScalePaths) field.ErrorList {
	if paths == nil {
		return nil
	}
	var errs field.ErrorList
	for _, path := range []string{paths.SpecReplicas, paths.StatusReplicas} {
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
	if paths.LabelSelector != "" {
		text, _, err := unstructured.NestedString(u.Object, fieldsOf(paths.LabelSelector)...)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(paths.LabelSelector), text, err.Error()))
		}
	}
	return errs
}

// fieldError words a schema's objection as an API server does.
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
	limit := func() int {
		if n, ok := v.Valid.(int64); ok {
			return int(n)
		}
		return -1
	}
	count := func() int {
		if n, ok := v.Value.(int64); ok {
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
		return field.TooLong(path, "", limit())
	case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
		return field.TooMany(path, count(), limit())
	case openapierrors.InvalidTypeCode:
		return field.TypeInvalid(path, value, v.Error())
	}
	return field.Invalid(path, value, v.Error())
}

// validateLists says which items of sets, and of lists with keys, are there
// twice.
func validateLists(x any, s *spec.Schema, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch x := x.(type) {
	case map[string]any:
		for _, k := range sortedKeys(x) {
			child, _ := property(s, k)
			if child == nil {
				continue
			}
			at := path.Child(k)
			if _, declared := s.Properties[k]; !declared {
				at = path.Key(k)
			}
			errs = append(errs, validateLists(x[k], child, at)...)
		}
	case []any:
		if s.Items == nil || s.Items.Schema == nil {
			return nil
		}
		kind, _ := s.Extensions.GetString(listType)
		keys, _ := s.Extensions.GetStringSlice(listMapKeys)
		var seen []any
		for i, item := range x {
			at := path.Index(i)
			var key any
			switch kind {
			case "set":
				key = item
			case "map":
				key = keyOf(item, keys, s.Items.Schema)
			}
			if key != nil && slices.ContainsFunc(seen, func(k any) bool { return apiequality.Semantic.DeepEqual(k, key) }) {
				errs = append(errs, field.Duplicate(at, key))
			}
			seen = append(seen, key)
			errs = append(errs, validateLists(item, s.Items.Schema, at)...)
		}
	}
	return errs
}

// keyOf returns the key fields of a list's item, nil if it has none.
func keyOf(item any, keys []string, s *spec.Schema) any {
	fields, ok := item.(map[string]any)
	if !ok {
		return nil
	}
	key := make(map[string]any, len(keys))
	for _, k := range keys {
		if v, ok := fields[k]; ok {
			key[k] = v
		} else if p, ok := s.Properties[k]; ok && p.Default != nil {
			key[k] = plainJSON(p.Default)
		}
	}
	if len(key) == 0 {
		return nil
	}
	return key
}

// customConverter knows the lists and maps of all versions of a custom
// resource.
func customConverter(c *resources.Custom) (managedfields.TypeConverter, error) {
	models := make(map[string]*spec.Schema, len(c.Versions))
	for _, res := range c.Versions {
		model, err := copySchema(res.Custom.Schema)
		if err != nil {
			return nil, err
		}
		if model.Properties == nil {
			model.Properties = make(map[string]spec.Schema)
		}
		model.Properties["apiVersion"] = *spec.StringProperty()
		model.Properties["kind"] = *spec.StringProperty()
		model.Properties["metadata"] = *metadataSchema()
		model.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": res.GVK.Group, "version": res.GVK.Version, "kind": res.GVK.Kind},
		})
		models[c.Definition+"."+res.GVK.Version] = model
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Definition, err)
	}
	return converter, nil
}

// metadataSchema says which parts of metadata are lists and maps that several
// managers share.
func metadataSchema() *spec.Schema {
	text := spec.StringProperty()
	names := spec.MapProperty(text)
	object := new(spec.Schema).Typed("object", "")
	for _, name := range []string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"} {
		object.SetProperty(name, *text)
	}
	object.SetProperty("generation", *spec.Int64Property())
	object.SetProperty("deletionGracePeriodSeconds", *spec.Int64Property())
	object.SetProperty("labels", *names)
	object.SetProperty("annotations", *names)
	finalizers := spec.ArrayProperty(text)
	finalizers.AddExtension(listType, "set")
	object.SetProperty("finalizers", *finalizers)
	owner := new(spec.Schema).Typed("object", "")
	for _, name := range []string{"apiVersion", "kind", "name", "uid"} {
		owner.SetProperty(name, *text)
	}
	owner.SetProperty("controller", *spec.BoolProperty())
	owner.SetProperty("blockOwnerDeletion", *spec.BoolProperty())
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	ownerReferences := spec.ArrayProperty(owner)
	ownerReferences.AddExtension(listType, "map")
	ownerReferences.AddExtension(listMapKeys, []any{"uid"})
	object.SetProperty("ownerReferences", *ownerReferences)
	managed := new(spec.Schema).Typed("object", "")
	managed.AddExtension(preserveUnknown, true)
	managedFields := spec.ArrayProperty(managed)
	managedFields.AddExtension(listType, "atomic")
	object.SetProperty("managedFields", *managedFields)
	return object
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
