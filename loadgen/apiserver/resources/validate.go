package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/schemamutation"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"k8s.io/utils/ptr"
)

// This file refuses what kube-apiserver refuses in a definition, with its words and paths (k8s.io/apiextensions-apiserver
// v0.37, pkg/apis/apiextensions/validation, which needs CEL). What all versions have alike is at the top of the spec there.

// findings collects the errors of a definition.
type findings struct{ errs field.ErrorList }

func (f *findings) when(bad bool, err *field.Error) {
	if bad {
		f.errs = append(f.errs, err)
	}
}

// oneOf checks a text that has to be there.
func (f *findings) oneOf(at *field.Path, value string, allowed ...string) {
	f.when(value == "", field.Required(at, ""))
	f.when(value != "" && !slices.Contains(allowed, value), field.NotSupported(at, value, allowed))
}

// label checks a name, with why before its faults.
func (f *findings) label(at *field.Path, name, value, why string) {
	msgs := utilvalidation.IsDNS1035Label(value)
	f.when(len(msgs) > 0, field.Invalid(at, name, why+strings.Join(msgs, ",")))
}

// validateSpec returns the errors of a definition.
func validateSpec(of *apiextensionsv1.CustomResourceDefinitionSpec) field.ErrorList {
	var spec apiextensions.CustomResourceDefinitionSpec
	f, at := &findings{}, field.NewPath("spec")
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec(of, &spec, nil); err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	msgs := utilvalidation.IsDNS1123Subdomain(spec.Group)
	f.when(spec.Group == "", field.Required(at.Child("group"), ""))
	f.when(spec.Group != "" && len(msgs) > 0, field.Invalid(at.Child("group"), spec.Group, strings.Join(msgs, ",")))
	f.when(len(msgs) == 0 && !strings.Contains(spec.Group, "."), field.Invalid(at.Child("group"), spec.Group, "should be a domain with at least one dot"))
	f.oneOf(at.Child("scope"), string(spec.Scope), string(apiextensions.ClusterScoped), string(apiextensions.NamespaceScoped))
	unset := func(v *apiextensions.CustomResourceValidation) bool { return v == nil || v.OpenAPIV3Schema == nil }
	for i, v := range spec.Versions {
		f.when(unset(spec.Validation) && unset(v.Schema), field.Required(at.Child("versions").Index(i).Child("schema", "openAPIV3Schema"), ""))
	}
	stored, names := 0, []string{}
	for i, v := range spec.Versions {
		at, warning := at.Child("versions").Index(i), v.DeprecationWarning
		if names = append(names, v.Name); v.Storage {
			stored++
		}
		f.label(at.Child("name"), v.Name, v.Name, "")
		f.when(warning != nil && !v.Deprecated, field.Invalid(at.Child("deprecationWarning"), warning, "can only be set for deprecated versions"))
		f.when(warning != nil && v.Deprecated && *warning == "", field.Invalid(at.Child("deprecationWarning"), warning, "must not be an empty string"))
		f.parts(at, "schema", v.Schema, v.Subresources, v.AdditionalPrinterColumns, v.SelectableFields)
	}
	all := strings.Join(names[:min(len(names), 100)], ",") // kube-apiserver shows them whole
	slices.Sort(names)
	f.when(len(slices.Compact(names)) < len(spec.Versions), field.Invalid(at.Child("versions"), all, "must contain unique version names"))
	f.when(stored != 1, field.Invalid(at.Child("versions"), all, "must have exactly one version marked as storage version"))
	f.names(at.Child("names"), &spec.Names)
	f.parts(at, "validation", spec.Validation, spec.Subresources, spec.AdditionalPrinterColumns, spec.SelectableFields)
	f.conversion(at.Child("conversion"), spec.Conversion)
	f.when(ptr.Deref(spec.PreserveUnknownFields, false), field.Invalid(at.Child("preserveUnknownFields"), true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	return f.errs
}

func (f *findings) names(at *field.Path, n *apiextensions.CustomResourceDefinitionNames) {
	for _, name := range []struct{ field, value string }{{"plural", n.Plural}, {"singular", n.Singular}, {"kind", n.Kind}, {"listKind", n.ListKind}} {
		at := at.Child(name.field)
		switch {
		case name.value == "":
			f.when(true, field.Required(at, ""))
		case strings.HasSuffix(strings.ToLower(name.field), "kind"):
			f.label(at, name.value, strings.ToLower(name.value), "may have mixed case, but should otherwise match: ")
		default:
			f.label(at, name.value, name.value, "")
		}
	}
	for i, name := range n.ShortNames {
		f.label(at.Child("shortNames").Index(i), name, name, "")
	}
	f.when(n.Kind != "" && n.Kind == n.ListKind, field.Invalid(at.Child("listKind"), n.ListKind, "kind and listKind may not be the same"))
	for i, name := range n.Categories {
		f.label(at.Child("categories").Index(i), name, name, "")
	}
}

// conversion checks a conversion, whose fields have the names of kube-apiserver's sources.
func (f *findings) conversion(at *field.Path, c *apiextensions.CustomResourceConversion) {
	client, reviews := at.Child("webhookClientConfig"), at.Child("conversionReviewVersions")
	f.oneOf(at.Child("strategy"), string(c.Strategy), string(apiextensions.NoneConverter), string(apiextensions.WebhookConverter))
	if c.Strategy != apiextensions.WebhookConverter {
		const unset = "should not be set when strategy is not set to Webhook"
		f.when(c.WebhookClientConfig != nil, field.Forbidden(client, unset))
		f.when(len(c.ConversionReviewVersions) > 0, field.Forbidden(reviews, unset))
		return
	}
	switch hook := c.WebhookClientConfig; {
	case hook == nil:
		f.when(true, field.Required(client, "required when strategy is set to Webhook"))
	case (hook.URL == nil) == (hook.Service == nil):
		f.when(true, field.Required(client, "exactly one of url or service is required"))
	case hook.Service != nil:
		at := client.Child("service")
		f.when(hook.Service.Namespace == "", field.Required(at.Child("name"), "")) // kube-apiserver, too, confuses the two
		f.when(hook.Service.Name == "", field.Required(at.Child("namespace"), ""))
		msgs := utilvalidation.IsValidPortNum(int(hook.Service.Port))
		f.when(len(msgs) > 0, field.Invalid(at.Child("port"), hook.Service.Port, "port is not valid: "+strings.Join(msgs, ", ")))
	default:
		const form = "; desired format: https://host[/path]"
		at := client.Child("url")
		u, err := url.Parse(*hook.URL)
		if err != nil {
			f.when(true, field.Required(at, "url must be a valid URL: "+err.Error()+form))
			break
		}
		f.when(u.Scheme != "https", field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
		f.when(u.Host == "", field.Invalid(at, u.Host, "host must be specified"+form))
		f.when(u.User != nil, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
		f.when(u.Fragment != "", field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
		f.when(u.RawQuery != "", field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	all := c.ConversionReviewVersions
	f.when(len(all) == 0, field.Required(reviews, ""))
	for i, v := range all {
		if slices.Contains(all[:i], v) {
			f.when(true, field.Invalid(reviews.Index(i), v, "duplicate version"))
			continue
		}
		f.label(reviews.Index(i), v, v, "")
	}
	f.when(len(all) > 0 && !slices.ContainsFunc(all, IsReviewVersion), field.Invalid(reviews, all, "must include at least one of v1, v1beta1"))
}

// IsReviewVersion reports whether a version of ConversionReview is known.
func IsReviewVersion(v string) bool { return v == "v1" || v == "v1beta1" }

// Sorted, as the messages have them.
var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
	schemaTypes   = []string{"array", "boolean", "integer", "number", "object", "string"}
)

// parts checks what a version has, or all versions have alike.
func (f *findings) parts(at *field.Path, named string, v *apiextensions.CustomResourceValidation, sub *apiextensions.CustomResourceSubresources,
	columns []apiextensions.CustomResourceColumnDefinition, selectable []apiextensions.SelectableField) {
	var root *structuralschema.Structural
	if v != nil && v.OpenAPIV3Schema != nil {
		root = f.root(at.Child(named, "openAPIV3Schema"), v.OpenAPIV3Schema)
	}
	simple := func(at *field.Path, path, why string, below ...string) {
		is := func(start string) bool { return strings.HasPrefix(path, start) }
		f.when(path == "", field.Required(at, ""))
		f.when(path != "" && path[0] != '.', field.Invalid(at, path, "must be a simple json path starting with ."))
		f.when(is(".") && why != "" && !slices.ContainsFunc(below, is), field.Invalid(at, path, "should be a json path under "+why))
	}
	if sub != nil && sub.Scale != nil {
		at := at.Child("subresources", "scale")
		simple(at.Child("specReplicasPath"), sub.Scale.SpecReplicasPath, ".spec", ".spec.")
		simple(at.Child("statusReplicasPath"), sub.Scale.StatusReplicasPath, ".status", ".status.")
		if path := sub.Scale.LabelSelectorPath; path != nil && *path != "" {
			simple(at.Child("labelSelectorPath"), *path, "either .spec or .status", ".spec.", ".status.")
		}
	}
	for i, c := range columns {
		at, types := at.Child("additionalPrinterColumns").Index(i), "must be one of "+strings.Join(columnTypes, ",")
		f.when(c.Name == "", field.Required(at.Child("name"), ""))
		f.when(c.Type == "", field.Required(at.Child("type"), types))
		f.when(c.Type != "" && !slices.Contains(columnTypes, c.Type), field.Invalid(at.Child("type"), c.Type, types))
		f.when(c.Format != "" && !slices.Contains(columnFormats, c.Format), field.Invalid(at.Child("format"), c.Format, "must be one of "+strings.Join(columnFormats, ",")))
		simple(at.Child("JSONPath"), c.JSONPath, "")
	}
	at = at.Child("selectableFields")
	f.when(len(selectable) > 0 && root == nil, field.Invalid(at, "", "may only be set when validations.schema is included"))
	seen := map[string]bool{}
	for i, s := range selectable {
		at, path := at.Index(i).Child("jsonPath"), s.JSONPath
		found, err := follow(root, path)
		switch {
		case path == "":
			f.when(true, field.Required(at, ""))
			continue
		case err != nil:
			f.when(true, field.Invalid(at, path, "is an invalid path: "+err.Error()))
			continue
		}
		f.when(strings.HasPrefix(path, ".metadata."), field.Invalid(at, path, "must not point to fields in metadata"))
		f.when(!slices.Contains([]string{"string", "boolean", "integer"}, found.Type), field.Invalid(at, path, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."))
		f.when(seen[path], field.Duplicate(at, path))
		seen[path] = true
	}
	f.when(len(seen) > 8, field.TooMany(at, len(seen), 8))
}

// follow returns the schema at a path such as .spec.size.
func follow(s *structuralschema.Structural, path string) (*structuralschema.Structural, error) {
	names := strings.Split(path, ".")
	if names[0] != "" || s == nil {
		return s, fmt.Errorf("expected [ or . but got: %s", names[0])
	}
	for _, name := range names[1:] {
		p, ok := s.Properties[name]
		if !ok {
			return s, fmt.Errorf("does not refer to a valid field")
		}
		s = &p
	}
	return s, nil
}

// root checks the schema of an object and returns it if it is structural.
func (f *findings) root(at *field.Path, s *apiextensions.JSONSchemaProps) *structuralschema.Structural {
	structural, err := structuralschema.NewStructural(s)
	if err != nil {
		f.when(true, field.Invalid(at, "", err.Error()))
		return nil
	}
	f.errs = append(f.errs, structuralschema.ValidateStructural(at, structural)...)
	f.schema(at, structural)
	return structural
}

// schema checks a structural schema and those within it.
func (f *findings) schema(at *field.Path, s *structuralschema.Structural) {
	if s == nil {
		return
	}
	f.when(s.Type != "" && !slices.Contains(schemaTypes, s.Type), field.NotSupported(at.Child("type"), s.Type, schemaTypes))
	f.when(s.ValueValidation != nil && s.ValueValidation.UniqueItems, field.Forbidden(at.Child("uniqueItems"), "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"))
	if value := s.Default.Object; value != nil {
		pruned := runtime.DeepCopyJSONValue(value)
		pruning.Prune(pruned, s, s.XEmbeddedResource)
		f.when(!apiequality.Semantic.DeepEqual(pruned, value), field.Invalid(at.Child("default"), value, "must not have unknown fields"))
		f.errs = append(f.errs, schemaErrors(at.Child("default"), validatorOf(s.ToKubeOpenAPI()), value)...)
	}
	if a := s.AdditionalProperties; a != nil {
		f.when(len(s.Properties) > 0, field.Forbidden(at.Child("additionalProperties"), "additionalProperties and properties are mutual exclusive"))
		f.schema(at.Child("additionalProperties"), a.Structural)
	}
	f.when(ptr.Deref(s.XListType, "") == "map" && len(s.XListMapKeys) == 0, field.Required(at.Child("x-kubernetes-list-map-keys"), "must not be empty if x-kubernetes-list-type is map"))
	for _, key := range s.XListMapKeys {
		item := ptr.Deref(s.Items, structuralschema.Structural{})
		p, ok := item.Properties[key]
		needed := item.ValueValidation != nil && slices.Contains(item.ValueValidation.Required, key)
		f.when(!ok, field.Invalid(at.Child("x-kubernetes-list-map-keys"), s.XListMapKeys, "entries must all be names of item properties"))
		f.when(ok && !needed && p.Default.Object == nil, field.Required(at.Child("items", "properties").Key(key).Child("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
	}
	f.schema(at.Child("items"), s.Items)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		f.schema(at.Child("properties").Key(name), &p)
	}
}

// Validate returns the errors of an object by its schema.
func (c *Custom) Validate(object map[string]any) field.ErrorList {
	return schemaErrors(nil, c.validator, object)
}

// validatorOf returns the validator of a schema, with a type in place of x-kubernetes-int-or-string, and without unknown
// formats.
func validatorOf(s *spec.Schema) *validate.SchemaValidator {
	change := func(s *spec.Schema) *spec.Schema {
		changed := *s
		if either, _ := s.Extensions.GetBool("x-kubernetes-int-or-string"); either {
			changed.Type = spec.StringOrArray{"integer", "string"}
		}
		if known := []string{"int32", "int64", "float", "double"}; !slices.Contains(known, s.Format) && !strfmt.Default.ContainsName(s.Format) {
			changed.Format = ""
		}
		return &changed
	}
	walker := schemamutation.Walker{RefCallback: schemamutation.RefCallbackNoop, SchemaCallback: change}
	return validate.NewSchemaValidator(walker.WalkSchema(s), nil, "", strfmt.Default)
}

// schemaErrors returns the errors of a value by its schema, with the paths of apiextensions-apiserver (where it needs CEL).
func schemaErrors(at *field.Path, v *validate.SchemaValidator, value any) (errs field.ErrorList) {
	for _, err := range v.Validate(value).Errors {
		errs = append(errs, fieldError(at, err))
	}
	return errs
}

func fieldError(path *field.Path, err error) *field.Error {
	v, ok := errors.AsType[*openapierrors.Validation](err)
	if !ok {
		return field.Invalid(path, "", err.Error())
	}
	if name := strings.TrimPrefix(v.Name, "."); name != "" {
		path = path.Child(name)
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
