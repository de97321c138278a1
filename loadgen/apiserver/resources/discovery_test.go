package resources

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/gnostic-models/openapiv2"
	"github.com/google/gnostic-models/openapiv3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// filtered returns a handler for the resources that pass the filter.
func filtered(registry *Registry, filter func(*Resource) bool) http.Handler {
	return newDocuments(slices.DeleteFunc(slices.Clone(registry.All()), func(r *Resource) bool { return !filter(r) }))
}

// serve starts a server with discovery only and returns its client.
func serve(t *testing.T, registry *Registry) *clientdiscovery.DiscoveryClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !Handles(req.URL.Path) {
			t.Errorf("client-go asks for %s", req.URL)
		}
		registry.ServeHTTP(w, req)
	}))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	client, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL, Transport: transport, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestClientGo compares the results of client-go's discovery, aggregated and plain, with
// the registry.
func TestClientGo(t *testing.T) {
	registry := New()
	if _, err := addCRD(registry, []byte(widgets)); err != nil {
		t.Fatal(err)
	}
	client := serve(t, registry)
	for _, mode := range []string{"aggregated", "plain"} {
		t.Run(mode, func(t *testing.T) {
			var d clientdiscovery.DiscoveryInterface = client
			if mode == "plain" {
				d = client.WithLegacy()
			}
			groups, lists, err := d.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := groups[0].Name+" "+groups[1].Name+" "+groups[len(groups)-1].Name, " apiregistration.k8s.io example.com"; got != want {
				t.Errorf("groups %q, want %q first and last", got, want)
			}
			var got, want []string
			for _, list := range lists {
				for _, r := range list.APIResources {
					if strings.Contains(r.Name, "/") {
						r.SingularName = "" // client-go derives it from aggregated discovery
					}
					got = append(got, strings.Join([]string{list.GroupVersion, r.Name, r.Kind, r.SingularName, strings.Join(r.Verbs, ","), strings.Join(r.ShortNames, ","), strings.Join(r.Categories, ",")}, " "))
				}
			}
			for _, res := range registry.All() {
				line := []string{res.GroupVersion().String(), res.GVR.Resource, res.GVK.Kind, res.Singular, strings.Join(res.Verbs, ","), strings.Join(res.ShortNames, ","), strings.Join(res.Categories, ",")}
				want = append(want, strings.Join(line, " "))
				for _, sub := range res.Subresources {
					want = append(want, strings.Join([]string{res.GroupVersion().String(), res.GVR.Resource + "/" + sub.Name, sub.Kind.Kind, "", strings.Join(sub.Verbs, ","), "", ""}, " "))
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("resources (-registry +discovery):\n%s", diff)
			}
		})
	}
}

// TestNewResource adds and removes a custom resource. Discovery, a client's mapper and
// OpenAPI show the changes.
func TestNewResource(t *testing.T) {
	registry := New()
	client := serve(t, registry)
	find := func() string {
		groups, err := restmapper.GetAPIGroupResources(client)
		if err != nil {
			t.Fatal(err)
		}
		mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
		if err != nil {
			return ""
		}
		return mapping.Resource.String()
	}
	if got := find(); got != "" {
		t.Errorf("widgets before they are defined: %s", got)
	}
	if _, err := addCRD(registry, []byte(widgets)); err != nil {
		t.Fatal(err)
	}
	if got, want := find(), "example.com/v1, Resource=widgets"; got != want {
		t.Errorf("widgets are %q, want %q", got, want)
	}
	doc, err := openapi3.NewRoot(client.OpenAPIV3()).GVSpec(schema.GroupVersion{Group: "example.com", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	widget := doc.Components.Schemas["com.example.v1.Widget"]
	if widget == nil || widget.Description != "Widget is a thing." || widget.Properties["spec"].Properties["replicas"].Description != "How many." {
		t.Errorf("the widgets' schema is %+v", widget)
	}
	registry.Undefine("widgets.example.com")
	if got := find(); got != "" {
		t.Errorf("widgets after they are gone: %s", got)
	}
}

// get requests a document and returns the answer's status, headers and body.
func get(t *testing.T, h http.Handler, path string, header ...string) (int, http.Header, []byte) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Code, rec.Header(), body
}

func TestNegotiation(t *testing.T) {
	h := filtered(New(), func(r *Resource) bool { return r.GVR.Group == "apps" || r.GVR.Group == "batch" })
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, tt := range []struct {
		path, accept string
		code         int
		contentType  string
	}{
		{"/api", "", 200, "application/json"},
		{"/apis", "application/json", 200, "application/json"},
		{"/apis", aggregated, 200, aggregated},
		{"/apis/", aggregated + ",application/json", 200, aggregated},
		{"/apis", aggregated + ";q=0.1,application/json", 200, "application/json"},
		{"/apis", strings.Replace(aggregated, "v2", "v2beta1", 1) + ",application/json", 200, "application/json"},
		{"/apis", strings.Replace(aggregated, "v2", "v2beta1", 1) + "," + aggregated, 200, aggregated},
		{"/apis/apps", aggregated, 200, "application/json"},
		{"/apis/apps/v1", "application/vnd.kubernetes.protobuf,application/json", 200, "application/json"},
		{"/apis/apps/v7", "", 404, "text/plain; charset=utf-8"},
		{"/apis/no.such", "", 404, "text/plain; charset=utf-8"},
		{"/api/v2", "", 404, "text/plain; charset=utf-8"},
		{"/openapi/v2", "", 200, "application/json"},
		{"/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", 200, protoV2},
		{"/openapi/v3", "", 200, "application/json"},
		{"/openapi/v3/apis/batch/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", 200, protoV3},
		{"/openapi/v3/apis/batch/v1", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf;q=0.5,*/*;q=0.1", 200, protoV3},
		{"/openapi/v3/apis/batch/v1", "text/html", 200, "application/json"},
		{"/openapi/v3/apis/no.such/v1", "", 404, "text/plain; charset=utf-8"},
		{"/openapi/v4", "", 404, "text/plain; charset=utf-8"},
		{"/version", "", 200, "application/json"},
	} {
		code, header, _ := get(t, h, tt.path, "Accept", tt.accept)
		if code != tt.code || header.Get("Content-Type") != tt.contentType {
			t.Errorf("GET %s as %q: %d %s, want %d %s", tt.path, tt.accept, code, header.Get("Content-Type"), tt.code, tt.contentType)
		}
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/apis", nil))
	if rec.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /apis: %d", rec.Code)
	}
}

// TestNotModified repeats requests with the ETags of the answers.
func TestNotModified(t *testing.T) {
	registry := New()
	_, header, _ := get(t, registry, "/apis", "Accept", aggregatedJSON)
	etag := header.Get("ETag")
	again := []string{"Accept", aggregatedJSON, "If-None-Match", etag}
	if code, _, body := get(t, registry, "/apis", again...); code != http.StatusNotModified || len(body) > 0 {
		t.Errorf("conditional request: %d with %d bytes", code, len(body))
	}
	if _, err := addCRD(registry, []byte(widgets)); err != nil {
		t.Fatal(err)
	}
	if code, header, _ := get(t, registry, "/apis", again...); code != http.StatusOK || header.Get("ETag") == etag {
		t.Errorf("conditional request after a change: %d, %s", code, header.Get("ETag"))
	}
}

// TestOpenAPIWhole reads all documents in both encodings, checks references, and
// compares hashes with the index.
func TestOpenAPIWhole(t *testing.T) {
	registry := New()
	if !registry.Serve(schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3"}) {
		t.Fatal("no v1beta3")
	}
	if _, err := addCRD(registry, []byte(widgets)); err != nil {
		t.Fatal(err)
	}
	h := filtered(registry, func(*Resource) bool { return true })
	_, _, body := get(t, h, "/openapi/v3")
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string } `json:"paths"`
	}
	if err := json.Unmarshal(body, &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Paths) < 20 {
		t.Errorf("the index has %d paths", len(index.Paths))
	}
	for path, entry := range index.Paths {
		code, header, body := get(t, h, entry.ServerRelativeURL)
		if code != http.StatusOK || !strings.HasSuffix(entry.ServerRelativeURL, "hash="+strings.Trim(header.Get("ETag"), `"`)) {
			t.Errorf("%s: %d, hash %s", entry.ServerRelativeURL, code, header.Get("ETag"))
		}
		checkRefs(t, path, body, "components", "schemas")
		if !slices.Contains([]string{"apis/batch/v1", "apis/example.com/v1", "apis/flowcontrol.apiserver.k8s.io/v1beta3"}, path) {
			continue // the race detector makes the others slow
		}
		code, _, body = get(t, h, "/openapi/v3/"+path, "Accept", protoV3)
		if code != http.StatusOK || proto.Unmarshal(body, new(openapi_v3.Document)) != nil {
			t.Errorf("%s as protobuf: %d", path, code)
		}
	}
	_, _, body = get(t, h, "/openapi/v2")
	checkRefs(t, "v2", body, "definitions")
	// The race detector makes protobuf of all documents slow.
	apps := filtered(registry, func(r *Resource) bool { return r.GVR.Group == "apps" })
	_, _, body = get(t, apps, "/openapi/v2", "Accept", protoV2)
	doc := new(openapi_v2.Document)
	if err := proto.Unmarshal(body, doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Definitions.AdditionalProperties) < 100 || len(doc.Paths.Path) < 20 {
		t.Errorf("v2 has %d definitions and %d paths", len(doc.Definitions.AdditionalProperties), len(doc.Paths.Path))
	}
}

// checkRefs reports references to missing models.
func checkRefs(t *testing.T, name string, body []byte, where ...string) {
	t.Helper()
	var doc any
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	at := doc
	for _, w := range where {
		at = at.(map[string]any)[w]
	}
	known := at.(map[string]any)
	prefix := "#/" + strings.Join(where, "/") + "/"
	var walk func(any)
	walk = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			if ref, ok := x["$ref"].(string); ok {
				if _, ok := known[strings.TrimPrefix(ref, prefix)]; !ok {
					t.Errorf("%s: %s is a broken reference", name, ref)
				}
			}
			for _, v := range x {
				walk(v)
			}
		case []any:
			for _, v := range x {
				walk(v)
			}
		}
	}
	walk(doc)
}

// TestModels compares some models with those of a real kube-apiserver.
func TestModels(t *testing.T) {
	f, err := os.Open("testdata/models-v1.37.2.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	want := make(map[string][]string)
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if line := scan.Text(); !strings.HasPrefix(line, "#") {
			model, _, _ := strings.Cut(line, " ")
			want[model] = append(want[model], line)
		}
	}
	m := models{}
	for _, res := range New().All() {
		m.addKind(res, false)
	}
	got := make(map[string][]string)
	for name, s := range m {
		parts := strings.Split(name, ".")
		short := strings.Join(parts[len(parts)-2:], ".")
		if _, ok := want[short]; !ok || strings.Contains(name, "autoscaling") {
			continue
		}
		for field, p := range s.Properties {
			got[short] = append(got[short], describeField(short, field, &p, slices.Contains(s.Required, field)))
		}
		slices.Sort(got[short])
	}
	for model, lines := range want {
		slices.Sort(lines)
		if diff := cmp.Diff(lines, got[model]); diff != "" {
			t.Errorf("%s (-kube-apiserver +simulated):\n%s", model, diff)
		}
	}
}

func describeField(model, name string, p *spec.Schema, required bool) string {
	parts := []string{model, name, describeType(p)}
	if required {
		parts = append(parts, "required")
	}
	for _, e := range []string{"list-type", "list-map-keys", "map-type", "patch-strategy", "patch-merge-key"} {
		switch v := p.Extensions["x-kubernetes-"+e].(type) {
		case string:
			parts = append(parts, e+"="+v)
		case []any:
			var keys []string
			for _, k := range v {
				keys = append(keys, k.(string))
			}
			parts = append(parts, e+"="+strings.Join(keys, ","))
		}
	}
	return strings.Join(parts, " ")
}

func describeType(p *spec.Schema) string {
	ref := p.Ref.String()
	if len(p.AllOf) > 0 {
		ref = p.AllOf[0].Ref.String()
	}
	switch {
	case ref != "":
		return ref[strings.LastIndex(ref, "/")+1:]
	case p.Items != nil:
		return "[]" + describeType(p.Items.Schema)
	case p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil:
		return "map:" + describeType(p.AdditionalProperties.Schema)
	case p.Format != "":
		return p.Type[0] + ":" + p.Format
	}
	return p.Type[0]
}
