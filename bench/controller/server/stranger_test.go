package server

import (
	"crypto/tls"
	"net/http"
	"testing"

	"watchlab/loadgen/apiserver"
)

// TestStranger: the API server of a play answers its clients only, whose requests it tells apart, and only
// under its own name.
func TestStranger(t *testing.T) {
	const seen = "X-Client" // header of the answers
	s, err := newSimulated(Setup{
		Clients: []string{"one", "two"}, Changed: func(apiserver.Change) {}, Speed: 1,
		Wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set(seen, apiserver.ClientOf(req.Context()))
				next.ServeHTTP(w, req)
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	two := s.Kubeconfig("two")
	for _, tc := range []struct {
		token, host, client string
		code                int
	}{
		{"", "", "", http.StatusUnauthorized},
		{"wrong", "", "", http.StatusUnauthorized},
		{two.Token, "rebound.example.com", "", http.StatusForbidden},
		{two.Token, "", "two", http.StatusOK},
	} {
		for _, path := range []string{"/version", "/api/v1/pods", "/healthz"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, two.Server+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.token != "" {
				req.Header.Set("Authorization", "Bearer "+tc.token)
			}
			req.Host = tc.host
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != tc.code || res.Header.Get(seen) != tc.client {
				t.Errorf("%s with token %q for host %q: %s as %q, %v", path, tc.token, tc.host, res.Status, res.Header.Get(seen), err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
