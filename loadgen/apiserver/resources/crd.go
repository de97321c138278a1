package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ErrNotDefinition is the error of a manifest that is not a
// CustomResourceDefinition in apiextensions.k8s.io/v1.
var ErrNotDefinition = errors.New("not a CustomResourceDefinition of apiextensions.k8s.io/v1")

// Custom is what a CustomResourceDefinition says about one version of its
// resource. It is shared and must not be changed.
type Custom struct {
	Definition       string
	Schema           *spec.Schema
	Columns          []Column
	Scale            *ScalePaths
	Versions         []*Resource
	SelectableFields []string
}

// Column is a further column of a table.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
	Priority    int32  `json:"priority,omitempty"`
	JSONPath    string `json:"jsonPath"`
}

// ScalePaths are the JSON paths that a scale subresource is made of,
// ".spec.replicas".
type ScalePaths struct {
	SpecReplicas   string `json:"specReplicasPath"`
	StatusReplicas string `json:"statusReplicasPath"`
	LabelSelector  string `json:"labelSelectorPath,omitempty"`
}

// definition is one CustomResourceDefinition that is served.
type definition struct {
	group     string
	kind      string
	resources []*Resource
}

// manifest is the part of a CustomResourceDefinition that the registry reads,
// and the names of what it doesn't, so that strict decoding knows them.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       manifestSpec      `json:"spec"`
	Status     json.RawMessage   `json:"status,omitempty"`
}

type manifestSpec struct {
	Group      string            `json:"group"`
	Names      names             `json:"names"`
	Scope      string            `json:"scope"`
	Versions   []manifestVersion `json:"versions"`
	Conversion *struct {
		Strategy string          `json:"strategy"`
		Webhook  json.RawMessage `json:"webhook,omitempty"`
	} `json:"conversion,omitempty"`
	PreserveUnknownFields bool `json:"preserveUnknownFields,omitempty"`
}

type names struct {
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

type manifestVersion struct {
	Name               string  `json:"name"`
	Served             bool    `json:"served"`
	Storage            bool    `json:"storage"`
	Deprecated         bool    `json:"deprecated,omitempty"`
	DeprecationWarning *string `json:"deprecationWarning,omitempty"`
	Schema             *struct {
		OpenAPIV3Schema *spec.Schema `json:"openAPIV3Schema,omitempty"`
	} `json:"schema,omitempty"`
	Subresources *struct {
		Status *struct{}   `json:"status,omitempty"`
		Scale  *ScalePaths `json:"scale,omitempty"`
	} `json:"subresources,omitempty"`
	AdditionalPrinterColumns []Column `json:"additionalPrinterColumns,omitempty"`
	SelectableFields         []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields,omitempty"`
}

// AddCRD serves the custom resource that a manifest, YAML or JSON, defines,
// in place of an earlier definition of that name. Fields that no
// CustomResourceDefinition has, and fields given twice, are errors; see
// [Registry.Define] for the others. It returns the resource in each version
// that the manifest says is served, the preferred one first.
func (r *Registry) AddCRD(data []byte) ([]*Resource, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("custom resource definition: %w", err)
	}
	var m manifest
	wrong, err := kjson.UnmarshalStrict(text, &m)
	if err = errors.Join(append(wrong, err)...); err != nil {
		return nil, fmt.Errorf("custom resource definition: %w", err)
	}
	return r.define(&m)
}

// Define serves the custom resource that an object defines, in place of an
// earlier definition of that name.
//
// The error of an object of another kind wraps [ErrNotDefinition]; what is
// wrong in a definition comes as the API's Invalid, naming each field. Checked
// are the names, the scope, that one version is stored, and that each schema
// is structural: an object whose every part has a type. Not checked are
// x-kubernetes-validations, which the simulated server doesn't run, and
// conversion webhooks are refused, for it calls none.
func (r *Registry) Define(object map[string]any) ([]*Resource, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("custom resource definition: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("custom resource definition: %v", err))
	}
	return r.define(&m)
}

func (r *Registry) define(m *manifest) ([]*Resource, error) {
	if m.APIVersion != definitionsKind.GroupVersion().String() || m.Kind != definitionsKind.Kind {
		return nil, fmt.Errorf("custom resource definition: %w: %s %s", ErrNotDefinition, m.APIVersion, m.Kind)
	}
	if errs := m.validate(); len(errs) > 0 {
		return nil, apierrors.NewInvalid(definitionsKind.GroupKind(), m.Metadata.Name, errs)
	}
	d := m.definition()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range builtins() {
		if b.GVR.Group == d.group {
			err := field.Invalid(field.NewPath("spec", "group"), d.group, "is a group of the server's own")
			return nil, apierrors.NewInvalid(definitionsKind.GroupKind(), m.Metadata.Name, field.ErrorList{err})
		}
	}
	for name, other := range r.definitions {
		if name != m.Metadata.Name && other.group == d.group && other.kind == d.kind {
			err := field.Invalid(field.NewPath("spec", "names", "kind"), d.kind, "is already that of "+name)
			return nil, apierrors.NewInvalid(definitionsKind.GroupKind(), m.Metadata.Name, field.ErrorList{err})
		}
	}
	r.definitions[m.Metadata.Name] = d
	r.publish()
	return d.resources, nil
}

// Undefine stops serving the custom resource of that definition and returns
// what was served of it, nothing if there is no such definition.
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

// Defaulted fills in the names that a definition may leave out, as the API
// server does before it stores one: singular, listKind and conversion.
func Defaulted(crd *unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	if kind == "" {
		return
	}
	setMissing(crd.Object, strings.ToLower(kind), "spec", "names", "singular")
	setMissing(crd.Object, kind+"List", "spec", "names", "listKind")
	setMissing(crd.Object, "None", "spec", "conversion", "strategy")
}

func setMissing(object map[string]any, value string, path ...string) {
	if s, found, err := unstructured.NestedString(object, path...); err == nil && (!found || s == "") {
		// It fails where a parent is no map, which validation reports.
		_ = unstructured.SetNestedField(object, value, path...)
	}
}

// Establish writes the status of a definition that is served: its names are
// accepted and it is established, as of now.
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

// validate returns what is wrong with the definition.
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
	if want := m.Spec.Names.Plural + "." + m.Spec.Group; m.Metadata.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), m.Metadata.Name, "must be spec.names.plural+\".\"+spec.group"))
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
	if scopes := []string{"Cluster", "Namespaced"}; !slices.Contains(scopes, m.Spec.Scope) {
		errs = append(errs, field.NotSupported(at.Child("scope"), m.Spec.Scope, scopes))
	}
	if c := m.Spec.Conversion; c != nil && c.Strategy != "None" && c.Strategy != "" {
		errs = append(errs, field.NotSupported(at.Child("conversion", "strategy"), c.Strategy, []string{"None"}))
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
		if s := v.Schema.OpenAPIV3Schema; len(s.Type) != 1 || s.Type[0] != "object" {
			errs = append(errs, field.Invalid(root.Child("type"), strings.Join(s.Type, ","), "must be object at the root"))
			continue
		}
		errs = append(errs, structural(root, v.Schema.OpenAPIV3Schema)...)
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(at, m.versionNames(), "must have exactly one version marked as storage version"))
	}
	return errs
}

func (m *manifest) versionNames() string {
	var all []string
	for _, v := range m.Spec.Versions {
		all = append(all, v.Name)
	}
	return strings.Join(all, ",")
}

// structural returns the parts of a schema that have no type where one is
// needed to tell what to keep of an object.
func structural(at *field.Path, s *spec.Schema) field.ErrorList {
	var errs field.ErrorList
	untyped := Extension(s, "x-kubernetes-int-or-string") || Extension(s, "x-kubernetes-preserve-unknown-fields")
	if len(s.Type) == 0 && !untyped {
		errs = append(errs, field.Required(at.Child("type"), "must not be empty for specified object fields"))
	}
	if len(s.Properties) > 0 && s.AdditionalProperties != nil {
		errs = append(errs, field.Forbidden(at.Child("additionalProperties"), "additionalProperties and properties are mutual exclusive"))
	}
	for _, name := range sortedKeys(s.Properties) {
		p := s.Properties[name]
		errs = append(errs, structural(at.Child("properties").Key(name), &p)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		errs = append(errs, structural(at.Child("additionalProperties"), s.AdditionalProperties.Schema)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		errs = append(errs, structural(at.Child("items"), s.Items.Schema)...)
	} else if slices.Contains(s.Type, "array") {
		errs = append(errs, field.Required(at.Child("items"), "must be specified"))
	}
	return errs
}

// Extension tells whether a schema has that x-kubernetes- extension set to
// true.
func Extension(s *spec.Schema, name string) bool {
	on, ok := s.Extensions.GetBool(name)
	return ok && on
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// definition makes the resources of a valid manifest.
func (m *manifest) definition() *definition {
	d := &definition{group: m.Spec.Group, kind: m.Spec.Names.Kind}
	var stored schema.GroupVersionResource
	for _, v := range m.Spec.Versions {
		if v.Storage {
			stored = schema.GroupVersionResource{Group: m.Spec.Group, Version: v.Name, Resource: m.Spec.Names.Plural}
		}
	}
	for i := range m.Spec.Versions {
		if v := &m.Spec.Versions[i]; v.Served {
			d.resources = append(d.resources, m.resource(v, stored))
		}
	}
	slices.SortFunc(d.resources, inDiscoveryOrder)
	for _, res := range d.resources {
		res.Custom.Versions = d.resources
	}
	return d
}

func (m *manifest) resource(v *manifestVersion, stored schema.GroupVersionResource) *Resource {
	gv := schema.GroupVersion{Group: m.Spec.Group, Version: v.Name}
	res := &Resource{
		GVR:        gv.WithResource(m.Spec.Names.Plural),
		GVK:        gv.WithKind(m.Spec.Names.Kind),
		ListKind:   m.Spec.Names.ListKind,
		Singular:   m.Spec.Names.Singular,
		Namespaced: m.Spec.Scope == "Namespaced",
		ShortNames: m.Spec.Names.ShortNames,
		Categories: m.Spec.Names.Categories,
		Verbs:      []string{Delete, DeleteCollection, Get, List, Patch, Create, Update, Watch},
		Stored:     stored,
		Custom: &Custom{
			Definition: m.Metadata.Name,
			Schema:     v.Schema.OpenAPIV3Schema,
			Columns:    v.AdditionalPrinterColumns,
		},
	}
	if res.ListKind == "" {
		res.ListKind = res.GVK.Kind + "List"
	}
	if res.Singular == "" {
		res.Singular = strings.ToLower(res.GVK.Kind)
	}
	for _, f := range v.SelectableFields {
		res.Custom.SelectableFields = append(res.Custom.SelectableFields, f.JSONPath)
	}
	if sub := v.Subresources; sub != nil {
		own := []string{Get, Patch, Update}
		if sub.Scale != nil {
			res.Custom.Scale = sub.Scale
			res.Subresources = append(res.Subresources, Subresource{Name: Scale, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Verbs: own})
		}
		if sub.Status != nil {
			res.Subresources = append(res.Subresources, Subresource{Name: Status, Kind: res.GVK, Verbs: own})
		}
	}
	res.describe()
	return res
}
