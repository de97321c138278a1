package resources

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names:
    plural: widgets
    kind: Widget
    shortNames: [wd]
    categories: [all]
  versions:
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: string, jsonPath: .spec.size}]
    selectableFields: [{jsonPath: .spec.size}]
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        description: Widget is a thing.
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, description: How many.}
              size: {type: string}
  - name: v0
    served: false
    storage: false
    schema:
      openAPIV3Schema: {type: object}
`

// addCRD defines the custom resource of a manifest.
func addCRD(reg *Registry, data []byte) ([]*Resource, error) {
	crd := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, err
	}
	stored, err := reg.Define(nil, crd)
	if err != nil {
		return nil, err
	}
	return stored.Custom.Versions, nil
}

func TestDefine(t *testing.T) {
	reg := New()
	before := reg.current.Load()
	added, err := addCRD(reg, []byte(widgets))
	if err != nil {
		t.Fatal(err)
	}
	if len(added) != 2 || added[0].GVR.Version != "v1" || added[1].GVR.Version != "v1beta1" {
		t.Fatalf("added %v", added)
	}
	if reg.current.Load() == before {
		t.Error("the snapshot has not changed")
	}
	v1, ok := reg.Lookup("example.com", "v1", "widgets")
	if !ok || v1 != added[0] {
		t.Fatalf("Lookup: %v, %v", v1, ok)
	}
	if _, ok := reg.Lookup("example.com", "v0", "widgets"); ok {
		t.Error("an unserved version is served")
	}
	if v1.Singular != "widget" || v1.ListKind != "WidgetList" || !v1.HasStatus() || v1.Typed() || v1.Custom.Scale().SpecReplicasPath != ".spec.replicas" {
		t.Errorf("v1 is %+v", v1)
	}
	if got := fmt.Sprint(v1.Custom.Version.AdditionalPrinterColumns, v1.Custom.Version.SelectableFields, len(v1.Custom.Versions)); got != "[{Size string   0 .spec.size}] [{.spec.size}] 2" {
		t.Errorf("v1's columns, fields and versions: %s", got)
	}
	if added[1].HasStatus() || !added[1].Custom.Structural.XPreserveUnknownFields {
		t.Errorf("v1beta1 is %+v", added[1])
	}
	if added[1].Stored != v1.GVR {
		t.Errorf("v1beta1 is stored as %v", added[1].Stored)
	}
	if last := reg.All()[len(reg.All())-1]; last != added[1] {
		t.Errorf("custom resources don't come last, %v does", last)
	}

	// The same definition without one version replaces the first.
	if _, err := addCRD(reg, []byte(strings.Replace(widgets, "name: v1beta1\n    served: true", "name: v1beta1\n    served: false", 1))); err != nil {
		t.Fatal(err)
	}
	if _, ok := reg.Lookup("example.com", "v1beta1", "widgets"); ok {
		t.Error("v1beta1 is still served")
	}
	reg.Undefine("widgets.example.com")
	if _, ok := reg.ByKind(v1.GVK); ok {
		t.Error("widgets are still served")
	}
	reg.Undefine("widgets.example.com") // again
}

// TestBadCRD: the error for each mistake names its field.
func TestBadCRD(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"name", "name: widgets.example.com", "name: widgets", `metadata.name: Invalid value: "widgets": must be spec.names.plural+"."+spec.group`},
		{"group", "group: example.com", "group: example", `spec.group: Invalid value: "example": should be a domain with at least one dot`},
		{"no group", "group: example.com", `group: ""`, `spec.group: Required value`},
		{"scope", "scope: Namespaced", "scope: Everywhere", `spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"`},
		{"plural", "plural: widgets", "plural: Widgets", `spec.names.plural: Invalid value: "Widgets"`},
		{"short name", "[wd]", "[W_D]", `spec.names.shortNames[0]: Invalid value: "W_D"`},
		{"no storage", "storage: true", "storage: false", `spec.versions: Invalid value: "v1beta1,v1,v0": must have exactly one version marked as storage version`},
		{"twice", "name: v1beta1", "name: v1", `spec.versions: Invalid value: "v1,v1,v0": must contain unique version names`},
		{"no type", "size: {type: string}", "size: {description: none}", `spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[size].type: Required value`},
		{"root type", "openAPIV3Schema: {type: object, x", "openAPIV3Schema: {type: array, x", `spec.versions[0].schema.openAPIV3Schema.type: Invalid value: "array": must be object at the root`},
		{"no items", "size: {type: string}", "size: {type: array}", `properties[size].items: Required value`},
		{"no schema", "    schema:\n      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}\n", "", `spec.versions[0].schema.openAPIV3Schema: Required value`},
		{"both", "size: {type: string}", "size: {type: object, properties: {a: {type: string}}, additionalProperties: {type: string}}", `properties[size].additionalProperties: Forbidden`},
		{"webhook", "scope: Namespaced", "scope: Namespaced\n  conversion: {strategy: Webhook}", `spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook`},
		{"preserve", "scope: Namespaced", "scope: Namespaced\n  preserveUnknownFields: true", `spec.preserveUnknownFields: Invalid value: true`},
		{"the server's own", "example.com", "networking.k8s.io", `spec.group: Invalid value: "networking.k8s.io": is a group of the server's own`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(widgets, tt.old, tt.new, 1)
			if strings.Contains(tt.new, "networking") || tt.name == "group" {
				text = strings.ReplaceAll(widgets, tt.old, tt.new)
			}
			reg := New()
			before := reg.current.Load()
			_, err := addCRD(reg, []byte(text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if reg.current.Load() != before {
				t.Error("the registry has changed")
			}
		})
	}
}

func TestKindConflict(t *testing.T) {
	reg := New()
	if _, err := addCRD(reg, []byte(widgets)); err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("name: widgets.", "name: gadgets.", "plural: widgets", "plural: gadgets").Replace(widgets)
	if _, err := addCRD(reg, []byte(other)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is already that of widgets.example.com") {
		t.Errorf("two definitions of a kind: %v", err)
	}
}

func TestServe(t *testing.T) {
	reg := New()
	beta := schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1beta1"}
	if _, ok := reg.Lookup(beta.Group, beta.Version, "leases"); ok {
		t.Error("v1beta1 is served from the start")
	}
	if !reg.Serve(beta) {
		t.Error("v1beta1 can't be served")
	}
	if _, ok := reg.Lookup(beta.Group, beta.Version, "leases"); !ok {
		t.Error("v1beta1 isn't served")
	}
	if reg.Serve(schema.GroupVersion{Group: "no.such", Version: "v1"}) {
		t.Error("an undefined resource is served")
	}
	before := reg.current.Load()
	if !reg.Serve(schema.GroupVersion{Version: "v1"}) || reg.current.Load() != before {
		t.Error("serving a served version changes the documents")
	}
}

// TestConcurrent reads while definitions are added and removed. Snapshots must be
// consistent, and the race detector must be silent.
func TestConcurrent(t *testing.T) {
	reg := New()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 50 {
				if _, err := addCRD(reg, []byte(widgets)); err != nil {
					t.Error(err)
				}
				reg.Undefine("widgets.example.com")
			}
		})
		wg.Go(func() {
			for range 500 {
				if len(reg.All()) == 0 {
					t.Error("no resources")
				}
				if res, ok := reg.Lookup("example.com", "v1", "widgets"); ok && len(res.Custom.Versions) != 2 {
					t.Errorf("half a definition: %+v", res.Custom)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzDefine(f *testing.F) {
	f.Add([]byte(widgets))
	f.Add([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a.b.c"},"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"a","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`))
	f.Add([]byte("kind: CustomResourceDefinition"))
	f.Add([]byte("spec: {versions: [null]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		reg := New()
		added, err := addCRD(reg, data)
		if err != nil && len(added) > 0 {
			t.Fatalf("%v, and %v", err, added)
		}
		for _, res := range added {
			if got, ok := reg.Lookup(res.GVR.Group, res.GVR.Version, res.GVR.Resource); !ok || got != res {
				t.Fatalf("%v is not found", res)
			}
			if res.Custom.Schema == nil || res.ListKind == "" || res.Singular == "" {
				t.Fatalf("%+v is not whole", res)
			}
		}
	})
}
