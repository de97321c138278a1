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

// Define serves the custom resource of a definition, which may replace an old one of that name, and returns it in the
// stored version. The definition belongs to the registry.
//
// The error for an invalid definition is the API's Invalid error, which names each
// field. x-kubernetes-validations are neither compiled nor run.
func (r *Registry) Define(old, crd *apiextensionsv1.CustomResourceDefinition) (*Resource, error) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	errs := ValidateDefinition(old, crd)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(errs) == 0 {
		errs = r.conflicts(crd)
	}
	if len(errs) > 0 {
		return nil, Invalid(apiextensionsv1.Kind("CustomResourceDefinition"), crd.Name, errs)
	}
	d, err := newDefinition(crd)
	if err != nil {
		return nil, err
	}
	r.definitions[crd.Name] = d.Versions
	r.publish()
	return d.Storage, nil
}

// ValidateDefinition returns the errors of a definition with its defaults, which may replace an old one.
func ValidateDefinition(old, crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	errs := validateSpec(&crd.Spec)
	if old != nil {
		errs = append(errs, validateUpdate(old, crd)...)
	} else if crd.Name != crd.Spec.Names.Plural+"."+crd.Spec.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), crd.Name, "must be spec.names.plural+\".\"+spec.group"))
	}
	return errs
}

// Invalid is [apierrors.NewInvalid] of the first 100 errors: their text takes the square of their number.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(kind, name, errs[:min(len(errs), 100)])
}

// conflicts returns the conflicts with other resources. The caller holds r.mu.
func (r *Registry) conflicts(crd *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
	at, group, kind := field.NewPath("spec"), crd.Spec.Group, crd.Spec.Names.Kind
	if slices.ContainsFunc(builtins(), func(b *Resource) bool { return b.GVR.Group == group }) {
		errs = append(errs, field.Invalid(at.Child("group"), group, "is a group of the server's own"))
	}
	for name, other := range r.definitions {
		if name != crd.Name && len(other) > 0 && other[0].GVR.Group == group && other[0].GVK.Kind == kind {
			errs = append(errs, field.Invalid(at.Child("names", "kind"), kind, "is already that of "+name))
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

// validateUpdate returns the errors of a change (k8s.io/apiextensions-apiserver v0.37, pkg/apis/apiextensions/validation).
func validateUpdate(old, crd *apiextensionsv1.CustomResourceDefinition) (errs field.ErrorList) {
	at, status, was, now := field.NewPath("spec"), field.NewPath("status", "storedVersions"), &old.Spec, &crd.Spec
	errs = append(errs, apivalidation.ValidateImmutableField(now.Scope, was.Scope, at.Child("scope"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(now.Names.Kind, was.Names.Kind, at.Child("names", "kind"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(now.Group, was.Group, at.Child("group"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(now.Names.Plural, was.Names.Plural, at.Child("names", "plural"))...)
	for i, v := range crd.Status.StoredVersions {
		if !slices.ContainsFunc(now.Versions, func(now apiextensionsv1.CustomResourceDefinitionVersion) bool { return now.Name == v }) {
			errs = append(errs, field.Invalid(status.Index(i), v, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", v)))
		}
	}
	return errs
}

// newDefinition prepares all versions of a valid definition.
func newDefinition(crd *apiextensionsv1.CustomResourceDefinition) (*Definition, error) {
	d := &Definition{Name: crd.Name, Conversion: crd.Spec.Conversion, All: map[string]*Custom{}}
	names := &crd.Spec.Names
	stored, err := apihelpers.GetCRDStorageVersion(crd)
	if err != nil {
		return nil, err
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		custom, err := newCustom(v)
		if err != nil {
			return nil, err
		}
		custom.Definition, d.All[v.Name] = d, custom
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
		res := &Resource{
			GVR: gv.WithResource(names.Plural), GVK: gv.WithKind(names.Kind), ListKind: names.ListKind, Singular: names.Singular,
			Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, ShortNames: names.ShortNames, Categories: names.Categories,
			Verbs: customVerbs, Custom: custom,
			Stored: schema.GroupVersionResource{Group: gv.Group, Version: stored, Resource: names.Plural},
		}
		if sub := v.Subresources; sub != nil && sub.Status != nil {
			res.Subresources = append(res.Subresources, Subresource{Name: Status, Kind: res.GVK, Verbs: getPatchUpdate})
		}
		if custom.Scale() != nil {
			res.Subresources = append(res.Subresources, Subresource{Name: Scale, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: getPatchUpdate})
		}
		if v.Storage {
			d.Storage = res
		}
		if v.Served {
			d.Versions = append(d.Versions, res)
		}
	}
	slices.SortFunc(d.Versions, inDiscoveryOrder)
	return d, nil
}

// deprecations are the warnings of built-in kinds.
var deprecations = map[schema.GroupVersionKind]string{
	corev1.SchemeGroupVersion.WithKind("ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
	corev1.SchemeGroupVersion.WithKind("Endpoints"):       "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}

// Deprecation returns the warning of a deprecated version, or "".
func (r *Resource) Deprecation() string {
	switch {
	case r.Custom == nil:
		return deprecations[r.GVK]
	case !r.Custom.Version.Deprecated:
		return ""
	case r.Custom.Version.DeprecationWarning != nil:
		return *r.Custom.Version.DeprecationWarning
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

// newCustom prepares the schema of a version for all its uses.
func newCustom(v *apiextensionsv1.CustomResourceDefinitionVersion) (*Custom, error) {
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
