package apiserver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// FuzzQuery: any parameters are accepted or refused with a client error.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"",
		"watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=5",
		"limit=3&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhIn0",
		"labelSelector=a+in+(b,c),!d,e!=f&fieldSelector=metadata.name%3Dx,spec.nodeName!%3Dy",
		"resourceVersion=18446744073709551616&resourceVersionMatch=Exact",
		"limit=9223372036854775807&timeoutSeconds=-9223372036854775808",
		"%zz;a&=&watch",
		"shardSelector=x&pretty=1&timeout=1m",
	} {
		f.Add(q)
	}
	srv, err := New(pods(60), Options{Retain: 10})
	if err != nil {
		f.Fatal(err)
	}
	srv.Release(50)
	log := srv.storms[0].log
	on := &target{resource: srv.storms[0].stored, namespace: "ns-0"}
	f.Fuzz(func(t *testing.T, raw string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		check := func(err error) {
			if err == nil {
				return
			}
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				t.Fatalf("%q: %v is no status", raw, err)
			}
			switch code := status.Status().Code; code {
			case http.StatusInternalServerError:
				// A real server, too, answers so to a malformed version.
				if !strings.HasPrefix(err.Error(), "resourceVersion: Invalid value") {
					t.Fatalf("%q: status %d: %v", raw, code, err)
				}
			case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusGone, http.StatusGatewayTimeout:
			default:
				t.Fatalf("%q: status %d: %v", raw, status.Status().Code, err)
			}
		}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/ns-0/pods", nil)
		r.URL.RawQuery = raw
		q, err := (&request{target: *on, collection: &collection{}, http: r}).query()
		check(err)
		if err != nil {
			return
		}
		if q.opts.Watch {
			_, err := log.Bounds().Start(q.opts.ResourceVersion, q.opts.SendInitialEvents, q.opts.AllowWatchBookmarks)
			check(err)
			return
		}
		_, err = pageOf(log, q)
		check(err)
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		if (err == nil) != (w.Code == http.StatusOK) {
			t.Fatalf("%q: %d: %s", raw, w.Code, w.Body)
		}
	})
}

// FuzzPath: any path has an answer or is not found.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"/api/v1/pods", "/api/v1/namespaces/a/pods/b", "//", "/apis//", "/api/v1/namespaces/", "/api/v1//pods"} {
		f.Add(p)
	}
	srv, err := New(pods(60), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: path}
		srv.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusNotFound {
			t.Fatalf("%q: %d: %s", path, w.Code, w.Body)
		}
	})
}
