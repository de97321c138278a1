package live

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// FuzzControl: a request to the transport of a storm changes it, or is the client's error.
func FuzzControl(f *testing.F) {
	for _, seed := range [][2]string{{"/pause", "{}"}, {"/step", `{"events":1e9}`}, {"/seek", `{"at":-1}`}, {"/speed", `{"speed":1e999}`}, {"/resume", "["}, {"/x", "null"}, {"/seek ", `{"at":9e18}`}} {
		f.Add(seed[0], "application/json", "http://127.0.0.1:1", seed[1])
	}
	f.Fuzz(func(t *testing.T, path, content, origin, body string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		p := &player{}
		req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:1/", strings.NewReader(body))
		req.URL.Path = path
		req.Header.Set("Content-Type", content)
		req.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		stormHandler(storming(p)).ServeHTTP(w, req)
		if w.Code >= http.StatusInternalServerError || w.Code >= http.StatusBadRequest && len(p.calls) > 0 {
			t.Fatalf("%s %q: %d after %v: %s", path, body, w.Code, p.calls, w.Body)
		}
		if p.at < 0 {
			t.Fatalf("%s %q: at %v", path, body, p.at)
		}
	})
}
