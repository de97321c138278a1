package record

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"watchlab/loadgen/apiserver"
)

// FuzzRequest: the recorder notes any request and answer, in any encoding, and passes both on unchanged.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/api/v1/namespaces/a/pods?dryRun=All", "application/json", `{"metadata":{"name":"x","resourceVersion":"7"}}`, "", `{"kind":"Pod","metadata":{"name":"x","resourceVersion":"8"}}`)
	f.Add("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/status", "application/apply-patch+yaml", "metadata: {name: &a x, labels: {b: *a}}", "gzip", "\x1f\x8b\x08")
	f.Add("PATCH", "/api/v1/nodes/n", "application/json-patch+json", `[{"op":"test","path":"/metadata/resourceVersion","value":"9"}]`, "", "k8s\x00\x0a\x04")
	f.Add("DELETE", "/api/v1/pods", "application/cbor", "\xd9\xd9\xf7\xa1\x44kind\x4dDeleteOptions", "", "\xd9\xd9\xf7\xbf")
	f.Add("GET", "/api/v1/namespaces/a/pods?watch=1&resourceVersion=0", "", "", "", "")
	f.Fuzz(func(t *testing.T, method, path, content, body, encoding, answer string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		req, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
		if err != nil || method == http.MethodConnect {
			return
		}
		req.Header.Set("Content-Type", content)
		req = req.WithContext(apiserver.WithClient(req.Context(), "c"))
		var got bytes.Buffer
		r := NewRecorder()
		w := httptest.NewRecorder()
		r.Wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = got.ReadFrom(req.Body)
			w.Header().Set("Content-Encoding", encoding)
			_, _ = w.Write([]byte(answer))
		})).ServeHTTP(w, req)
		if got.String() != body || w.Body.String() != answer {
			t.Fatalf("%q was passed on as %q, the answer %q as %q", body, got.String(), answer, w.Body)
		}
		r.Result()
	})
}

// FuzzFields: a body in any encoding has fields or not.
func FuzzFields(f *testing.F) {
	for _, s := range []string{"", "{", "a: [", "k8s\x00\xff", "\xd9\xd9\xf7\x5f", `{"kind":"Eviction","metadata":{"name":"x"},"deleteOptions":{"preconditions":{"resourceVersion":"3"}}}`} {
		f.Add([]byte(s), "DeleteOptions")
	}
	f.Fuzz(func(t *testing.T, body []byte, kind string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		var got fields
		got.decode(body, kind)
		got.options()
		versionOfPatch(body)
	})
}
