package resources

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// Custom is one version of a custom resource. It is shared and must not be changed.
type Custom struct {
	Version *apiextensionsv1.CustomResourceDefinitionVersion // its definition
	// Schema is the schema for OpenAPI, never nil. It describes apiVersion, kind and
	// metadata only if the manifest does.
	Schema     *spec.Schema
	Warning    string                       // of a deprecated version, or ""
	Structural *structuralschema.Structural // for pruning and defaults
	Validator  *validate.SchemaValidator    // of objects
	*Definition
}

// Definition is what all versions of a custom resource have in common.
type Definition struct {
	Name       string      // widgets.example.com
	Versions   []*Resource // all that are served, the preferred one first
	Storage    *Resource   // in the stored version, which may not be served
	Conversion *apiextensionsv1.CustomResourceConversion
	All        map[string]*Custom // all versions by name, those that are not served included
}

// Scale returns the paths of the scale subresource, or nil.
func (c *Custom) Scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if c.Version.Subresources == nil {
		return nil
	}
	return c.Version.Subresources.Scale
}

type definition struct {
	kind      schema.GroupKind
	resources []*Resource
}

// Define serves the custom resource of a definition, which may replace an old one of that name, and returns it in the
// stored version. The definition belongs to the registry.
//
// The error for an invalid definition is the API's Invalid error, which names each
// field: the names, the scope, the stored version, the conversion, stored versions that were removed, and schemas that
// are not structural. x-kubernetes-validations are neither checked nor run.
func (r *Registry) Define(old, crd *apiextensionsv1.CustomResourceDefinition) (*Resource, error) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	m := (*manifest)(crd)
	errs := m.validate()
	if want := m.Spec.Names.Plural + "." + m.Spec.Group; old != nil {
		errs = append(errs, m.validateUpdate(old)...)
	} else if m.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), m.Name, "must be spec.names.plural+\".\"+spec.group"))
	}
	var d *definition
	var stored *Resource
	if len(errs) == 0 {
		d, stored, errs = m.definition()
	}
	if len(errs) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		errs = r.conflicts(m)
	}
	if len(errs) > 0 {
		return nil, Invalid(definitionsKind.GroupKind(), m.Name, errs)
	}
	r.definitions[m.Name] = d
	r.publish()
	return stored, nil
}

// Invalid is [apierrors.NewInvalid] of the first 100 errors: their text takes the square of their number.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(kind, name, errs[:min(len(errs), 100)])
}

// conflicts returns the conflicts with other resources. The caller holds r.mu.
func (r *Registry) conflicts(m *manifest) (errs field.ErrorList) {
	at := field.NewPath("spec")
	if slices.ContainsFunc(builtins(), func(b *Resource) bool { return b.GVR.Group == m.Spec.Group }) {
		errs = append(errs, field.Invalid(at.Child("group"), m.Spec.Group, "is a group of the server's own"))
	}
	for name, other := range r.definitions {
		if name != m.Name && other.kind == m.kind() {
			errs = append(errs, field.Invalid(at.Child("names", "kind"), other.kind.Kind, "is already that of "+name))
		}
	}
	return errs
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

// Establish sets the status of a served definition: names accepted and established. The stored versions include
// earlier ones.
func Establish(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Status.AcceptedNames = crd.Spec.Names
	if len(crd.Status.Conditions) == 0 {
		SetCondition(crd, apiextensionsv1.NamesAccepted, true, "NoConflicts", "no conflicts found")
		SetCondition(crd, apiextensionsv1.Established, true, "InitialNamesAccepted", "the initial names have been accepted")
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage && !slices.Contains(crd.Status.StoredVersions, v.Name) {
			crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
		}
	}
}

// SetCondition sets a condition of a definition, at the present time if its status changes.
func SetCondition(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType, is bool, reason, message string) {
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message}
	if is {
		c.Status = apiextensionsv1.ConditionTrue
	}
	apihelpers.SetCRDCondition(crd, c)
}

// manifest is a CustomResourceDefinition with its defaults.
type manifest apiextensionsv1.CustomResourceDefinition

func (m *manifest) kind() schema.GroupKind {
	return schema.GroupKind{Group: m.Spec.Group, Kind: m.Spec.Names.Kind}
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
	label(at.Child("names", "singular"), m.Spec.Names.Singular)
	for i, name := range m.Spec.Names.ShortNames {
		label(at.Child("names", "shortNames").Index(i), name)
	}
	if scopes := []apiextensionsv1.ResourceScope{"Cluster", "Namespaced"}; !slices.Contains(scopes, m.Spec.Scope) {
		errs = append(errs, field.NotSupported(at.Child("scope"), m.Spec.Scope, scopes))
	}
	errs = append(errs, m.validateConversion(at.Child("conversion"))...)
	if m.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(at.Child("preserveUnknownFields"), true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	return append(errs, m.validateVersions(at.Child("versions"))...)
}

// validateUpdate returns the errors of a change (k8s.io/apiextensions-apiserver v0.37, pkg/apis/apiextensions/validation).
func (m *manifest) validateUpdate(old *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
	at, status := field.NewPath("spec"), field.NewPath("status", "storedVersions")
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Scope, old.Spec.Scope, at.Child("scope"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Names.Kind, old.Spec.Names.Kind, at.Child("names", "kind"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Group, old.Spec.Group, at.Child("group"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Names.Plural, old.Spec.Names.Plural, at.Child("names", "plural"))...)
	for i, v := range old.Status.StoredVersions {
		if !slices.ContainsFunc(m.Spec.Versions, func(now apiextensionsv1.CustomResourceDefinitionVersion) bool { return now.Name == v }) {
			errs = append(errs, field.Invalid(status.Index(i), v, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", v)))
		}
	}
	return errs
}

// validateConversion returns the errors of a conversion, which have the names of fields in kube-apiserver's sources.
func (m *manifest) validateConversion(at *field.Path) (errs field.ErrorList) {
	add := func(bad bool, err *field.Error) {
		if bad {
			errs = append(errs, err)
		}
	}
	hook := m.Spec.Conversion.Webhook
	if hook == nil {
		hook = &apiextensionsv1.WebhookConversion{}
	}
	client, versions, reviews := at.Child("webhookClientConfig"), at.Child("conversionReviewVersions"), hook.ConversionReviewVersions
	switch s := m.Spec.Conversion.Strategy; s {
	case apiextensionsv1.NoneConverter:
		const unset = "should not be set when strategy is not set to Webhook"
		add(hook.ClientConfig != nil, field.Forbidden(client, unset))
		add(len(reviews) > 0, field.Forbidden(versions, unset))
		return errs
	case apiextensionsv1.WebhookConverter:
	default:
		return field.ErrorList{field.NotSupported(at.Child("strategy"), s, []apiextensionsv1.ConversionStrategyType{apiextensionsv1.NoneConverter, apiextensionsv1.WebhookConverter})}
	}
	switch c := hook.ClientConfig; {
	case c == nil:
		add(true, field.Required(client, "required when strategy is set to Webhook"))
	case (c.URL == nil) == (c.Service == nil):
		add(true, field.Required(client, "exactly one of url or service is required"))
	case c.Service != nil:
		at := client.Child("service")
		add(c.Service.Namespace == "", field.Required(at.Child("name"), "")) // kube-apiserver, too, confuses the two
		add(c.Service.Name == "", field.Required(at.Child("namespace"), ""))
		msgs := utilvalidation.IsValidPortNum(int(*c.Service.Port))
		add(len(msgs) > 0, field.Invalid(at.Child("port"), *c.Service.Port, "port is not valid: "+strings.Join(msgs, ", ")))
	default:
		const form = "; desired format: https://host[/path]"
		at := client.Child("url")
		u, err := url.Parse(*c.URL)
		if err != nil {
			add(true, field.Required(at, "url must be a valid URL: "+err.Error()+form))
			break
		}
		add(u.Scheme != "https", field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
		add(u.Host == "", field.Invalid(at, u.Host, "host must be specified"+form))
		add(u.User != nil, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
		add(u.Fragment != "", field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
		add(u.RawQuery != "", field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	add(len(reviews) == 0, field.Required(versions, ""))
	for i, v := range reviews {
		if slices.Contains(reviews[:i], v) {
			add(true, field.Invalid(versions.Index(i), v, "duplicate version"))
			continue
		}
		for _, msg := range utilvalidation.IsDNS1035Label(v) {
			add(true, field.Invalid(versions.Index(i), v, msg))
		}
	}
	add(len(reviews) > 0 && !slices.ContainsFunc(reviews, IsReviewVersion), field.Invalid(versions, reviews, "must include at least one of v1, v1beta1"))
	return errs
}

// IsReviewVersion reports whether a version of ConversionReview is known.
func IsReviewVersion(v string) bool { return v == "v1" || v == "v1beta1" }

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

// definition returns the resources of a valid manifest and the one that is stored, or the errors of its schemas.
func (m *manifest) definition() (*definition, *Resource, field.ErrorList) {
	d := &definition{kind: m.kind()}
	shared := &Definition{Name: m.Name, Conversion: m.Spec.Conversion, All: map[string]*Custom{}}
	stored := schema.GroupVersionResource{Group: m.Spec.Group, Resource: m.Spec.Names.Plural}
	stored.Version = m.Spec.Versions[slices.IndexFunc(m.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })].Name
	var errs field.ErrorList
	for i := range m.Spec.Versions {
		v := &m.Spec.Versions[i]
		custom, wrong := m.custom(v, field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema"))
		if errs = append(errs, wrong...); len(wrong) > 0 {
			continue
		}
		custom.Definition, shared.All[v.Name] = shared, custom
		res := m.resource(v, custom)
		if res.Stored = stored; v.Storage {
			shared.Storage = res
		}
		if v.Served {
			d.resources = append(d.resources, res)
		}
	}
	slices.SortFunc(d.resources, inDiscoveryOrder)
	shared.Versions = d.resources
	for _, res := range d.resources {
		if res.Custom.Version.Deprecated {
			res.Custom.Warning = res.deprecation()
		}
	}
	return d, shared.Storage, errs
}

// deprecation returns the warning of a deprecated version of a custom resource.
func (r *Resource) deprecation() string {
	if text := r.Custom.Version.DeprecationWarning; text != nil {
		return *text
	}
	say := func(r *Resource) string { return r.GVK.GroupVersion().String() + " " + r.GVK.Kind }
	text := say(r) + " is deprecated"
	for _, other := range r.Custom.Versions { // the preferred one first
		if !other.Custom.Version.Deprecated && version.CompareKubeAwareVersionStrings(other.GVR.Version, r.GVR.Version) > 0 {
			return text + "; use " + say(other)
		}
	}
	return text
}

// custom prepares the schema of a version for all its uses.
func (m *manifest) custom(v *apiextensionsv1.CustomResourceDefinitionVersion, at *field.Path) (*Custom, field.ErrorList) {
	c := &Custom{Version: v, Schema: new(spec.Schema)}
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
		ListKind:   m.Spec.Names.ListKind,
		Singular:   m.Spec.Names.Singular,
		Namespaced: m.Spec.Scope == apiextensionsv1.NamespaceScoped,
		ShortNames: m.Spec.Names.ShortNames,
		Categories: m.Spec.Names.Categories,
		Verbs:      customVerbs,
		Custom:     custom,
	}
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		res.Subresources = append(res.Subresources, Subresource{Name: Status, Kind: res.GVK, Verbs: getPatchUpdate})
	}
	if custom.Scale() != nil {
		res.Subresources = append(res.Subresources, Subresource{Name: Scale, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: getPatchUpdate})
	}
	return res
}
