package resources

import (
	"encoding/json"
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"
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
	validator  *validate.SchemaValidator    // of objects
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
// field. x-kubernetes-validations are neither compiled nor run.
func (r *Registry) Define(old, crd *apiextensionsv1.CustomResourceDefinition) (*Resource, error) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	m := (*manifest)(crd)
	errs := ValidateDefinition(old, crd)
	var d *definition
	var stored *Resource
	if len(errs) == 0 {
		var err error
		if d, stored, err = m.definition(); err != nil {
			return nil, err
		}
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

// ValidateDefinition returns the errors of a definition with its defaults, which may replace an old one.
func ValidateDefinition(old, crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	m := (*manifest)(crd)
	errs := m.validate()
	if old != nil {
		errs = append(errs, m.validateUpdate(old)...)
	} else if m.Name != m.Spec.Names.Plural+"."+m.Spec.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), m.Name, "must be spec.names.plural+\".\"+spec.group"))
	}
	return errs
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

// Undefine stops serving a definition.
func (r *Registry) Undefine(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.definitions, name)
	r.publish()
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

// validateUpdate returns the errors of a change (k8s.io/apiextensions-apiserver v0.37, pkg/apis/apiextensions/validation).
func (m *manifest) validateUpdate(old *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
	at, status := field.NewPath("spec"), field.NewPath("status", "storedVersions")
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Scope, old.Spec.Scope, at.Child("scope"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Names.Kind, old.Spec.Names.Kind, at.Child("names", "kind"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Group, old.Spec.Group, at.Child("group"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(m.Spec.Names.Plural, old.Spec.Names.Plural, at.Child("names", "plural"))...)
	for i, v := range m.Status.StoredVersions {
		if !slices.ContainsFunc(m.Spec.Versions, func(now apiextensionsv1.CustomResourceDefinitionVersion) bool { return now.Name == v }) {
			errs = append(errs, field.Invalid(status.Index(i), v, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", v)))
		}
	}
	return errs
}

// definition returns the resources of a valid manifest and the one that is stored.
func (m *manifest) definition() (*definition, *Resource, error) {
	d := &definition{kind: m.kind()}
	shared := &Definition{Name: m.Name, Conversion: m.Spec.Conversion, All: map[string]*Custom{}}
	stored := schema.GroupVersionResource{Group: m.Spec.Group, Resource: m.Spec.Names.Plural}
	stored.Version = m.Spec.Versions[slices.IndexFunc(m.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })].Name
	for i := range m.Spec.Versions {
		v := &m.Spec.Versions[i]
		custom, err := m.custom(v)
		if err != nil {
			return nil, nil, err
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
	return d, shared.Storage, nil
}

// deprecations are the warnings of built-in kinds.
var deprecations = map[schema.GroupVersionKind]string{
	corev1.SchemeGroupVersion.WithKind("ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
	corev1.SchemeGroupVersion.WithKind("Endpoints"):       "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}

// Deprecation returns the warning of a deprecated version, or "".
func (r *Resource) Deprecation() string {
	if r.Custom != nil {
		return r.Custom.Warning
	}
	return deprecations[r.GVK]
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
func (m *manifest) custom(v *apiextensionsv1.CustomResourceDefinitionVersion) (*Custom, error) {
	c := &Custom{Version: v, Schema: new(spec.Schema)}
	var internal apiextensions.JSONSchemaProps
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil)
	if err != nil {
		return nil, err
	}
	if c.Structural, err = structuralschema.NewStructural(&internal); err != nil {
		return nil, err
	}
	data, err := json.Marshal(v.Schema.OpenAPIV3Schema)
	if err == nil {
		err = json.Unmarshal(data, c.Schema)
	}
	c.validator = validatorOf(c.Schema)
	return c, err
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
