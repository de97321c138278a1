package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests of this file repeat findings of the comparison with a real server
// (docs/fidelity.md, bench/e2e), without that server.

const jsonBody = "application/json"

func opened(t *testing.T, opts Options) *Server {
	t.Helper()
	srv, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// must sends a request that must succeed and decodes the answer.
func (s *Server) must(t *testing.T, into any, method, path, query, content, body string) {
	t.Helper()
	code, answer := s.ask(method, path, query, content, body)
	if code >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d: %s", method, path, code, answer)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
}

const mapsPath = "/api/v1/namespaces/default/configmaps"

func (s *Server) makeMap(t *testing.T, metadata string) {
	t.Helper()
	s.must(t, nil, "POST", mapsPath, "", jsonBody, `{"apiVersion":"v1","kind":"ConfigMap","metadata":`+metadata+`}`)
}

// The error for an expired page has a token for the rest of the current list.
func TestExpiredPageContinues(t *testing.T) {
	srv := opened(t, Options{Retain: 3})
	for _, name := range []string{"a", "b", "c"} {
		srv.makeMap(t, `{"name":"`+name+`"}`)
	}
	var first v1.ConfigMapList
	srv.must(t, &first, "GET", mapsPath, "limit=2", "", "")
	for i := range 5 {
		srv.must(t, nil, "PATCH", mapsPath+"/c", "", "application/merge-patch+json", fmt.Sprintf(`{"data":{"n":"%d"}}`, i))
	}
	code, answer := srv.ask("GET", mapsPath, url.Values{"limit": {"2"}, "continue": {first.Continue}}.Encode(), "", "")
	var status metav1.Status
	if err := json.Unmarshal([]byte(answer), &status); err != nil || code != http.StatusGone || status.Continue == "" {
		t.Fatalf("%d: %s", code, answer)
	}
	var rest v1.ConfigMapList
	srv.must(t, &rest, "GET", mapsPath, url.Values{"limit": {"2"}, "continue": {status.Continue}}.Encode(), "", "")
	if len(rest.Items) != 1 || rest.Items[0].Data["n"] != "4" {
		t.Errorf("the rest: %+v", rest.Items)
	}
}

// A watch that allows bookmarks gets one 2 s before its timeout.
func TestLastBookmark(t *testing.T) {
	for seconds, want := range map[int]int{1: 0, 2: 0, 3: 1, 30: 1} {
		synctest.Test(t, func(t *testing.T) {
			srv := opened(t, Options{})
			srv.makeMap(t, `{"name":"a"}`)
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL = &url.URL{Path: mapsPath, RawQuery: fmt.Sprintf("watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=%d", seconds)}
			srv.ServeHTTP(w, r)
			if got := strings.Count(w.Body.String(), `"BOOKMARK"`); got != want {
				t.Errorf("%d s: %d bookmarks, want %d: %s", seconds, got, want, w.Body)
			}
		})
	}
}

// The answer to the removal of the last finalizer is the object without it, at its old
// version. Watches receive the last stored state.
func TestLastFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := opened(t, Options{})
		srv.makeMap(t, `{"name":"a","finalizers":["example.com/hold"]}`)
		var marked, freed v1.ConfigMap
		srv.must(t, &marked, "DELETE", mapsPath+"/a", "", "", "")
		srv.must(t, &freed, "PATCH", mapsPath+"/a", "", "application/merge-patch+json", `{"metadata":{"finalizers":null}}`)
		if len(freed.Finalizers) > 0 || freed.ResourceVersion != marked.ResourceVersion {
			t.Errorf("freed: %+v", freed.ObjectMeta)
		}
		code, stream := srv.ask("GET", mapsPath, "watch=1&timeoutSeconds=1&resourceVersion="+marked.ResourceVersion, "", "")
		if code != http.StatusOK || !strings.Contains(stream, `{"type":"DELETED"`) || !strings.Contains(stream, "example.com/hold") {
			t.Errorf("%d: %s", code, stream)
		}
	})
}

// A generated name that is always taken is a conflict with a retry time.
func TestGeneratedNameTaken(t *testing.T) {
	srv := opened(t, Options{})
	srv.editor.Suffix = func() string { return "same1" }
	srv.makeMap(t, `{"generateName":"a-"}`)
	code, answer := srv.ask("POST", mapsPath, "", jsonBody, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`)
	if code != http.StatusConflict || !strings.Contains(answer, "not able to generate a unique name") || !strings.Contains(answer, `"retryAfterSeconds":1`) {
		t.Errorf("%d: %s", code, answer)
	}
}

// Objects written in another version get the defaults of the stored version. Their lists
// equal those of a real server.
func TestStoredVersionDefaults(t *testing.T) {
	srv := opened(t, Options{})
	const schema = `{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true%s}}`
	srv.defineCRD(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com},
spec: {group: example.com, scope: Cluster, names: {plural: things, kind: Thing}, versions: [
{name: v1, served: true, storage: true, schema: %s}, {name: v1beta1, served: true, storage: false, schema: %s}]}}`,
		fmt.Sprintf(schema, ", properties: {size: {type: integer, default: 7}}"), fmt.Sprintf(schema, "")))
	code, answer := srv.ask("POST", "/apis/example.com/v1beta1/things", "", jsonBody, `{"apiVersion":"example.com/v1beta1","kind":"Thing","metadata":{"name":"a"}}`)
	if code != http.StatusCreated || !strings.Contains(answer, `"size":7`) {
		t.Errorf("%d: %s", code, answer)
	}
	if code, answer = srv.ask("GET", "/apis/example.com/v1/things", "", "", ""); code != http.StatusOK || !strings.Contains(answer, `"metadata":{"continue":"","resourceVersion":`) {
		t.Errorf("%d: %s", code, answer)
	}
}

func TestAnswers(t *testing.T) {
	srv := opened(t, Options{})
	srv.makeMap(t, `{"name":"a"}`)
	srv.must(t, nil, "POST", "/api/v1/namespaces/default/pods", "", jsonBody,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"schedulingGates":[{"name":"example.com/gate"}]}}`)
	for _, tc := range []struct {
		method, path, query, body string
		code                      int
		says                      string
	}{
		{"GET", "/apis/nonsense.io/v1/things", "", "", 404, "404 page not found"},
		{"GET", "/api/v1/nonsense", "", "", 404, `"kind":"Status"`},
		{"DELETE", "/api/v1/configmaps", "", "", 405, "does not allow this method on the requested resource\""},
		{"DELETE", "/api/v1/namespaces/kube-system", "", "", 403, "this namespace may not be deleted"},
		{"GET", mapsPath, "fieldSelector=data.a%3D1", "", 400, `only \"metadata.name\", \"metadata.namespace\"`},
		{"GET", "/api/v1/namespaces/default/pods", "fieldSelector=data.a%3D1", "", 400, "field label not supported: data.a"},
		{"GET", mapsPath, "continue=eyJ2IjoidjAiLCJydiI6MSwic3RhcnQiOiJhIn0", "", 400, "does not recognize this encoded version v0"},
		{"GET", mapsPath, "resourceVersion=x", "", 400, "invalid resource version: "},
		{"GET", mapsPath + "/a", "resourceVersion=x", "", 500, `"message":"resourceVersion: Invalid value`},
		{"GET", mapsPath, "limit=-1&allowWatchBookmarks=maybe", "", 200, `"name":"a"`},
		{"PATCH", mapsPath + "/a", "", `{"metadata":{"uid":"x"}}`, 422, `"reason":"FieldValueInvalid","message":"Invalid value: \"x\": field is immutable","field":"metadata.uid"},{`},
		{"PATCH", mapsPath + "/a", "", `{"kind":"Secret"}`, 422, "unknown conversion"},
		{"GET", "/api/v1/namespaces/default/pods/a", "", "", 200, `"reason":"SchedulingGated"`},
		{"POST", "/api/v1/namespaces/default/pods/a/eviction", "dryRun=All", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`, 201, "Success"},
		{"DELETE", "/api/v1/namespaces/default/pods/a", "", "", 200, `"deletionGracePeriodSeconds":0`},
		{"POST", mapsPath, "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"5"}}`, 500, "resourceVersion should not be set"},
		{"POST", "/api/v1/namespaces/default/secrets", "", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, 201, `"type":"Opaque"`},
		// The answer shows the objects before the deletion.
		{"DELETE", mapsPath, "", "", 200, `"resourceVersion":"2"`},
	} {
		content := jsonBody
		if tc.method == http.MethodPatch {
			content = "application/merge-patch+json"
		}
		code, answer := srv.ask(tc.method, tc.path, tc.query, content, tc.body)
		if code != tc.code || !strings.Contains(answer, tc.says) {
			t.Errorf("%s %s?%s: %d, want %d with %q: %s", tc.method, tc.path, tc.query, code, tc.code, tc.says, answer)
		}
	}
}
