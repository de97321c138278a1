package server

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
)

// authors tells whose request made a change, from the answers to all writes.
//
// A change counts as visible when its request was sent. A later time, such as the arrival at a watch of this
// process, may be after the controller's answer, whose watch may be faster.
type authors struct {
	mu       sync.Mutex // guards the fields below
	done     *sync.Cond // a write has ended
	next     int
	writing  map[int]struct{}
	versions map[string]author // of answered objects
	// quiet are the last requests whose answer may have no version, by the path of the object.
	quiet map[string]author
}

type author struct {
	by             string
	sent, intended time.Time
}

func newAuthors() *authors {
	a := &authors{writing: map[int]struct{}{}, versions: map[string]author{}, quiet: map[string]author{}}
	a.done = sync.NewCond(&a.mu)
	return a
}

// of returns the author of a change, after the writes that were on their way when it arrived. The author is
// unknown for the changes of kube-apiserver itself.
func (a *authors) of(version, path string, quiet bool) (by author, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.next
	for a.earlier(before) {
		a.done.Wait()
	}
	if by, known = a.versions[version]; !known && quiet {
		by, known = a.quiet[path]
	}
	return by, known
}

func (a *authors) earlier(than int) bool {
	for n := range a.writing {
		if n < than {
			return true
		}
	}
	return false
}

// transport notes the answers to the writes of a client; an empty one is that of the request's context.
func (a *authors) transport(by string, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		own := author{cmp.Or(by, apiserver.ClientOf(r.Context())), time.Now(), apiserver.IntendedOf(r.Context())}
		a.mu.Lock()
		n := a.next
		a.next++
		a.writing[n] = struct{}{}
		// A patch removes an object with its last finalizer.
		if path, binding := strings.CutSuffix(r.URL.Path, "/binding"); binding || r.Method == http.MethodDelete || r.Method == http.MethodPatch {
			a.quiet[path] = own
		}
		a.mu.Unlock()
		res, body, err := roundTrip(next, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.writing, n)
		a.done.Broadcast()
		version := record.VersionOf(body)
		// A write without a change answers an older version.
		if _, old := a.versions[version]; !old && version != "" {
			a.versions[version] = own
		}
		return res, err
	})
}

// roundTrip returns the body of the answer, too.
func roundTrip(rt http.RoundTripper, r *http.Request) (*http.Response, []byte, error) {
	res, err := rt.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, err
	}
	read := *res
	read.Body = io.NopCloser(bytes.NewReader(body))
	return &read, body, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
