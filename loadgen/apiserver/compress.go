package apiserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"watchlab/loadgen/apiserver/wire"
)

// compressible is the size in bytes above which a real server compresses an answer.
const compressible = 128 << 10

// compressed compresses as a real server does for a client that accepts gzip (k8s.io/apiserver v0.37.2,
// pkg/endpoints/handlers/watch.go and responsewriters): an answer above 128 kB, and a watch that begins with the
// state and bookmarks, where each flush is a gzip member. Other watches are plain. It is the outermost handler, so
// that faults see frames.
func (s *Server) compressed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Like a real server: a token with a weight is none.
		gzip := func(token string) bool { return strings.TrimSpace(token) == "gzip" }
		if !slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), gzip) || strings.HasPrefix(r.URL.Path, "/openapi/") {
			h.ServeHTTP(w, r)
			return
		}
		z := &compressor{ResponseWriter: w, stream: s.beginsWithState(r)}
		h.ServeHTTP(z, r)
		if z.code != 0 {
			z.begin(false)
		}
		_ = z.end(false) // fails if the client is gone
	})
}

// beginsWithState reports whether a request is for a watch that begins with the state and ends that with a bookmark;
// from version 0, or none, that is the default.
func (s *Server) beginsWithState(r *http.Request) bool {
	if t, ok := s.target(r.URL.Path); !ok || t.name != "" {
		return false
	}
	q := r.URL.Query()
	version := q.Get("resourceVersion")
	byDefault := !q.Has("sendInitialEvents") && q.Get("resourceVersionMatch") == "" && (version == "" || version == "0")
	return r.Method == http.MethodGet && wire.IsTrue(q["watch"]) && wire.IsTrue(q["allowWatchBookmarks"]) && (wire.IsTrue(q["sendInitialEvents"]) || byDefault)
}

// compressor is the answer of one request.
type compressor struct {
	http.ResponseWriter
	stream bool         // each flush is a member, once the watch is accepted
	code   int          // of the answer; held back until the first write, which decides
	begun  bool         // the header is written
	on     bool         // the body is compressed
	member *wire.Member // open, or nil
}

// WriteHeader implements [http.ResponseWriter].
func (z *compressor) WriteHeader(code int) {
	if z.code != 0 {
		return
	}
	z.code = code
	if z.stream = z.stream && code == http.StatusOK; z.stream {
		z.begin(true)
	}
}

// begin writes the header.
func (z *compressor) begin(on bool) {
	if z.begun {
		return
	}
	z.begun, z.on = true, on
	if on {
		z.Header().Set("Content-Encoding", "gzip")
		z.Header().Add("Vary", "Accept-Encoding")
		z.Header().Del("Content-Length")
	}
	z.ResponseWriter.WriteHeader(z.code)
}

// Write implements [http.ResponseWriter]. The first write of an answer that is no watch is the whole answer or more
// than compressible.
func (z *compressor) Write(b []byte) (int, error) {
	z.WriteHeader(http.StatusOK)
	z.begin(len(b) > compressible)
	if !z.on || len(b) == 0 {
		return z.ResponseWriter.Write(b)
	}
	if z.member == nil {
		z.member = wire.NewMember(z.ResponseWriter)
	}
	return z.member.Write(b)
}

// FlushError implements the Flush of [http.ResponseController].
func (z *compressor) FlushError() error {
	z.WriteHeader(http.StatusOK)
	z.begin(false)
	return errors.Join(z.end(true), http.NewResponseController(z.ResponseWriter).Flush())
}

// end ends a member. An answer that is no watch is one.
func (z *compressor) end(flush bool) error {
	if z.member == nil {
		return nil
	}
	err := z.member.Close(flush)
	z.member = nil
	return err
}

// Unwrap serves [http.ResponseController].
func (z *compressor) Unwrap() http.ResponseWriter { return z.ResponseWriter }
