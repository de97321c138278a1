package resources

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// ErrNotDefinition is the error for a manifest of another kind than
// CustomResourceDefinition in apiextensions.k8s.io/v1.
var ErrNotDefinition = errors.New("not a CustomResourceDefinition of apiextensions.k8s.io/v1")

// Custom is one version of a custom resource. It is shared and must not be
// changed.
type Custom struct {
	// Definition is the name of the CustomResourceDefinition, "widgets.example.com".
	Definition string
	// Version is the definition of this version.
	Version *apiextensionsv1.CustomResourceDefinitionVersion
	// Schema is the schema for OpenAPI, never nil. It describes apiVersion, kind and
	// metadata only if the manifest does.
	Schema *spec.Schema
	// Structural is the schema for pruning and defaults.
	Structural *structuralschema.Structural
	// Validator validates objects against the schema.
	Validator *validate.SchemaValidator
	// Versions are all served versions, this one included, the preferred one first.
	Versions []*Resource
}

// Scale returns the paths of the scale subresource, or nil.
func (c *Custom) Scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if c.Version.Subresources == nil {
		return nil
	}
	return c.Version.Subresources.Scale
}

// definition is one CustomResourceDefinition that is served.
type definition struct {
	group     string
	kind      string
	resources []*Resource
}

// manifest is a CustomResourceDefinition.
type manifest apiextensionsv1.CustomResourceDefinition

// Define serves the custom resource of a definition. It replaces an earlier
// definition of that name and returns the served versions, the preferred one first.
//
// The error for another kind wraps [ErrNotDefinition]. An invalid definition is
// the API's Invalid error, which names each field: the names, the scope, the
// stored version, and schemas that are not structural. x-kubernetes-validations
// are neither checked nor run. Conversion webhooks are refused.
func (r *Registry) Define(object map[string]any) ([]*Resource, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("custom resource definition: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("custom resource definition: %v", err))
	}
	if m.APIVersion != definitionsKind.GroupVersion().String() || m.Kind != definitionsKind.Kind {
		return nil, fmt.Errorf("custom resource definition: %w: %s %s", ErrNotDefinition, m.APIVersion, m.Kind)
	}
	invalid := func(errs ...*field.Error) ([]*Resource, error) {
		return nil, apierrors.NewInvalid(definitionsKind.GroupKind(), m.Name, errs)
	}
	if errs := m.validate(); len(errs) > 0 {
		return invalid(errs...)
	}
	d, errs := m.definition()
	if len(errs) > 0 {
		return invalid(errs...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range builtins() {
		if b.GVR.Group == d.group {
			return invalid(field.Invalid(field.NewPath("spec", "group"), d.group, "is a group of the server's own"))
		}
	}
	for name, other := range r.definitions {
		if name != m.Name && other.group == d.group && other.kind == d.kind {
			return invalid(field.Invalid(field.NewPath("spec", "names", "kind"), d.kind, "is already that of "+name))
		}
	}
	r.definitions[m.Name] = d
	r.publish()
	return d.resources, nil
}

// Undefine stops serving a definition and returns its resources, or nil.
func (r *Registry) Undefine(name string) []*Resource {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.definitions[name]
	if !ok {
		return nil
	}
	delete(r.definitions, name)
	r.publish()
	return d.resources
}

// Defaulted sets the optional names and the conversion strategy of a definition,
// as an API server does before it stores one.
func Defaulted(crd *unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	if kind == "" {
		return
	}
	setMissing := func(value string, path ...string) {
		if s, found, err := unstructured.NestedString(crd.Object, path...); err == nil && (!found || s == "") {
			// It fails if a parent is no map, which validation reports.
			_ = unstructured.SetNestedField(crd.Object, value, path...)
		}
	}
	setMissing(strings.ToLower(kind), "spec", "names", "singular")
	setMissing(kind+"List", "spec", "names", "listKind")
	setMissing("None", "spec", "conversion", "strategy")
}

// Establish sets the status of a served definition: names accepted and
// established.
func Establish(crd *unstructured.Unstructured, now time.Time) error {
	accepted, _, err := unstructured.NestedMap(crd.Object, "spec", "names")
	if err != nil {
		return fmt.Errorf("custom resource definition %s: %w", crd.GetName(), err)
	}
	stored := []any{}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true {
			stored = append(stored, v["name"])
		}
	}
	at := now.UTC().Format(time.RFC3339)
	condition := func(kind, reason, message string) any {
		return map[string]any{"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
	}
	crd.Object["status"] = map[string]any{
		"acceptedNames":  accepted,
		"storedVersions": stored,
		"conditions": []any{
			condition("NamesAccepted", "NoConflicts", "no conflicts found"),
			condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
		},
	}
	return nil
}

// validate returns the errors of a definition, except those of its schemas.
func (m *manifest) validate() field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	label := func(path *field.Path, value string) {
		if value == "" {
			errs = append(errs, field.Required(path, ""))
			return
		}
		for _, msg := range utilvalidation.IsDNS1035Label(value) {
			errs = append(errs, field.Invalid(path, value, msg))
		}
	}
	if want := m.Spec.Names.Plural + "." + m.Spec.Group; m.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), m.Name, "must be spec.names.plural+\".\"+spec.group"))
	}
	switch msgs := utilvalidation.IsDNS1123Subdomain(m.Spec.Group); {
	case m.Spec.Group == "":
		errs = append(errs, field.Required(at.Child("group"), ""))
	case len(msgs) > 0:
		errs = append(errs, field.Invalid(at.Child("group"), m.Spec.Group, strings.Join(msgs, ",")))
	case !strings.Contains(m.Spec.Group, "."):
		errs = append(errs, field.Invalid(at.Child("group"), m.Spec.Group, "should be a domain with at least one dot"))
	}
	label(at.Child("names", "plural"), m.Spec.Names.Plural)
	label(at.Child("names", "kind"), strings.ToLower(m.Spec.Names.Kind))
	if m.Spec.Names.Singular != "" {
		label(at.Child("names", "singular"), m.Spec.Names.Singular)
	}
	for i, name := range m.Spec.Names.ShortNames {
		label(at.Child("names", "shortNames").Index(i), name)
	}
	if scopes := []apiextensionsv1.ResourceScope{"Cluster", "Namespaced"}; !slices.Contains(scopes, m.Spec.Scope) {
		errs = append(errs, field.NotSupported(at.Child("scope"), m.Spec.Scope, scopes))
	}
	if c := m.Spec.Conversion; c != nil && c.Strategy != "None" && c.Strategy != "" {
		errs = append(errs, field.NotSupported(at.Child("conversion", "strategy"), c.Strategy, []apiextensionsv1.ConversionStrategyType{"None"}))
	}
	if m.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(at.Child("preserveUnknownFields"), true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	return append(errs, m.validateVersions(at.Child("versions"))...)
}

func (m *manifest) validateVersions(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool)
	stored := 0
	for i, v := range m.Spec.Versions {
		at := at.Index(i)
		for _, msg := range utilvalidation.IsDNS1035Label(v.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, msg))
		}
		if seen[v.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		seen[v.Name] = true
		if v.Storage {
			stored++
		}
		root := at.Child("schema", "openAPIV3Schema")
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(root, "schemas are required"))
			continue
		}
		if s := v.Schema.OpenAPIV3Schema; s.Type != "object" {
			errs = append(errs, field.Invalid(root.Child("type"), s.Type, "must be object at the root"))
		}
	}
	if stored != 1 {
		var names []string
		for _, v := range m.Spec.Versions {
			names = append(names, v.Name)
		}
		errs = append(errs, field.Invalid(at, strings.Join(names, ","), "must have exactly one version marked as storage version"))
	}
	return errs
}

// definition returns the resources of a valid manifest, or the errors of its
// schemas.
func (m *manifest) definition() (*definition, field.ErrorList) {
	d := &definition{group: m.Spec.Group, kind: m.Spec.Names.Kind}
	var stored schema.GroupVersionResource
	var errs field.ErrorList
	for i := range m.Spec.Versions {
		v := &m.Spec.Versions[i]
		if v.Storage {
			stored = schema.GroupVersionResource{Group: m.Spec.Group, Version: v.Name, Resource: m.Spec.Names.Plural}
		}
		custom, wrong := m.custom(v, field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema"))
		if errs = append(errs, wrong...); v.Served && len(wrong) == 0 {
			d.resources = append(d.resources, m.resource(v, custom))
		}
	}
	slices.SortFunc(d.resources, inDiscoveryOrder)
	for _, res := range d.resources {
		res.Stored, res.Custom.Versions = stored, d.resources
	}
	return d, errs
}

// custom prepares the schema of a version for all its uses.
func (m *manifest) custom(v *apiextensionsv1.CustomResourceDefinitionVersion, at *field.Path) (*Custom, field.ErrorList) {
	c := &Custom{Definition: m.Name, Version: v, Schema: new(spec.Schema)}
	fail := func(err error) (*Custom, field.ErrorList) {
		return nil, field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	var internal apiextensions.JSONSchemaProps
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil)
	if err != nil {
		return fail(err)
	}
	if c.Structural, err = structuralschema.NewStructural(&internal); err != nil {
		return fail(err)
	}
	if errs := append(structuralschema.ValidateStructural(at, c.Structural), exclusive(at, c.Structural)...); len(errs) > 0 {
		return nil, errs
	}
	data, err := json.Marshal(v.Schema.OpenAPIV3Schema)
	if err == nil {
		err = json.Unmarshal(data, c.Schema)
	}
	if err != nil {
		return fail(err)
	}
	walker := schemamutation.Walker{RefCallback: schemamutation.RefCallbackNoop, SchemaCallback: validated}
	c.Validator = validate.NewSchemaValidator(walker.WalkSchema(c.Schema), nil, "", strfmt.Default)
	return c, nil
}

// exclusive returns the parts of a schema with properties and additionalProperties.
// In the library, this check lies in a package that needs CEL.
func exclusive(at *field.Path, s *structuralschema.Structural) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := exclusive(at.Child("items"), s.Items)
	if s.AdditionalProperties != nil {
		errs = append(errs, exclusive(at.Child("additionalProperties"), s.AdditionalProperties.Structural)...)
		if len(s.Properties) > 0 {
			errs = append(errs, field.Forbidden(at.Child("additionalProperties"), "additionalProperties and properties are mutual exclusive"))
		}
	}
	for name, p := range s.Properties {
		errs = append(errs, exclusive(at.Child("properties").Key(name), &p)...)
	}
	return errs
}

// validated prepares a schema for validation: a type in place of
// x-kubernetes-int-or-string, and no unknown formats.
func validated(s *spec.Schema) *spec.Schema {
	either, _ := s.Extensions.GetBool("x-kubernetes-int-or-string")
	unknown := s.Format != "" && !strfmt.Default.ContainsName(s.Format)
	if !either && !unknown {
		return s
	}
	changed := *s
	if either {
		changed.Type = spec.StringOrArray{"integer", "string"}
	}
	if unknown {
		changed.Format = ""
	}
	return &changed
}

func (m *manifest) resource(v *apiextensionsv1.CustomResourceDefinitionVersion, custom *Custom) *Resource {
	gv := schema.GroupVersion{Group: m.Spec.Group, Version: v.Name}
	res := &Resource{
		GVR:        gv.WithResource(m.Spec.Names.Plural),
		GVK:        gv.WithKind(m.Spec.Names.Kind),
		ListKind:   cmp.Or(m.Spec.Names.ListKind, m.Spec.Names.Kind+"List"),
		Singular:   cmp.Or(m.Spec.Names.Singular, strings.ToLower(m.Spec.Names.Kind)),
		Namespaced: m.Spec.Scope == apiextensionsv1.NamespaceScoped,
		ShortNames: m.Spec.Names.ShortNames,
		Categories: m.Spec.Names.Categories,
		Verbs:      slices.Clone(allVerbs),
		Custom:     custom,
	}
	if custom.Scale() != nil {
		res.Subresources = append(res.Subresources, Subresource{Name: Scale, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: getPatchUpdate})
	}
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		res.Subresources = append(res.Subresources, Subresource{Name: Status, Kind: res.GVK, Verbs: getPatchUpdate})
	}
	res.sort()
	return res
}
