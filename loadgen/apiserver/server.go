// Package apiserver is a simulated Kubernetes API server over real HTTP for any
// controller. It serves storms, whose events become visible when they are released, and
// all other resources that clients create and change.
//
//	prepared, err := apiserver.Prepare(storm, wire.JSON, false)
//	srv, err := apiserver.Open(apiserver.Options{}, prepared)
//	url, err := srv.Start()  // on loopback; the initial list is visible
//	srv.Release(seq)         // all events up to seq become visible
//	err = srv.Close()
//
// It simulates all stable resources of client-go and custom resources; discovery, OpenAPI,
// /version and health (package resources); LIST with pages of one snapshot and WATCH with
// initial events and bookmarks, both with selectors; all writes, dry run, preconditions,
// finalizers, field validation, and the defaults and strategies of built-in kinds (package patch);
// all subresources that need no kubelet, and reviews; JSON, protobuf and CBOR, objects, metadata and
// tables (package wire). Objects need an existing namespace, and its deletion deletes them. Objects
// of a storm can be written, too; see [store.Log.Release].
//
// A resourceVersion is a revision of the whole server (package store), as of etcd. Without writes to a storm's
// resource, it is the sequence number of the storm's event.
//
// docs/fidelity.md, written by a test of bench/e2e, compares the answers with those of
// kube-apiserver v1.37.2 field by field.
//
// # Not simulated
//
//   - Controllers (also that of quotas), kubelet, garbage collector, RBAC, priority and fairness, and most of
//     admission and validation of built-in kinds. A deleted pod is gone at once unless
//     [Options].Graceful is set.
//   - Alpha and beta versions of a built-in resource as views of one resource.
//   - The cost of a real server's watch cache, which filters for each watch and ends a watch
//     that does not read for some milliseconds. Here a slow watch delays neither Release nor
//     writes nor other watches. It ends when the events that it lacks are no longer kept;
//     see [Options].Retain.
//   - Waiting for a future version, which is an error at once. A real server waits for up
//     to 3 s (LIST) or without limit (WATCH).
//   - A default timeout: a watch without timeoutSeconds has no end. A real server ends it
//     after 30 to 60 minutes.
//   - The limits of a real server's flushes: initial events are one gzip member, and each later event is one, where
//     a real server has one for all events that wait.
package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// DefaultBookmarkInterval is that of a real server's watch cache.
const DefaultBookmarkInterval = time.Minute

// ErrState means that a method was called too early, too late or twice.
var ErrState = errors.New("wrong state")

// Options configure a [Server].
type Options struct {
	BookmarkInterval time.Duration // of a watch that allows bookmarks; 0 means [DefaultBookmarkInterval]
	// Retain is the number of events by which the start version of a watch may lag; an
	// older version is Gone. After the first write, it is the number of events kept for
	// watches, too. 0 means all events of a storm, and the newest [store.DefaultHistory]
	// events after the first write.
	Retain int
	// Wrap adds faults or a check of tokens to the server's handler, for example.
	Wrap func(http.Handler) http.Handler
	// Graceful deletes as a cluster with kubelets and a garbage collector does, which are the caller's part;
	// see [patch.Editor.Delete]. Without it, a deleted pod is gone at once and propagation policies have no
	// effect.
	Graceful bool
	// ForeignNamespaces leaves a namespace that is being deleted to a client that empties and finalizes it.
	ForeignNamespaces bool
	// Plain leaves all answers uncompressed, as a server before 1.37 does with watches.
	Plain bool
	// Changed is called for each event that becomes visible: in the order of its resource, after watches
	// can see it, and before a request that could depend on it ends. Open reports the initial lists. It
	// holds up writes and releases of the resource; it must be quick and must not call the server.
	Changed func(Change)
}

// Server is a simulated API server. Its methods are safe for concurrent use.
type Server struct {
	opts       Options
	registry   *resources.Registry
	editor     *patch.Editor
	budget     *store.Budget
	storms     []*collection // in the order of Open
	namespaces []string      // of the storms' objects

	colMu       sync.RWMutex                                // guards collections
	collections map[schema.GroupVersionResource]*collection // by keyOf
	revision    store.Revision                              // of all their logs

	snapshots            atomic.Int64 // requests
	addresses, nodePorts atomic.Int64 // allocated to services
	wire                 atomic.Int64 // written bytes
	watching             watching
	seats                chan struct{} // of requests in progress besides watches; others wait
	handler              http.Handler  // with [Options].Wrap
	served               chan error    // receives the result of http.Serve

	mu       sync.Mutex         // guards the fields below
	http     *http.Server       // set by Serve
	closed   bool               // set by Close
	conns    map[*conn]struct{} // open
	handlers sync.WaitGroup     // requests in progress; Add runs under mu, so that Close misses none
}

// New prepares a storm and returns a server for it; see [Prepare] and [Open].
func New(s *storm.Storm, opts Options) (*Server, error) {
	p, err := Prepare(s, wire.JSON, false)
	if err != nil {
		return nil, err
	}
	return Open(opts, p)
}

// Open returns a server of zero or more storms, each of another resource. O(resources).
func Open(opts Options, storms ...*Prepared) (*Server, error) {
	if opts.BookmarkInterval <= 0 {
		opts.BookmarkInterval = DefaultBookmarkInterval
	}
	s := &Server{
		opts:        opts,
		registry:    resources.New(),
		editor:      patch.New(),
		collections: map[schema.GroupVersionResource]*collection{},
		served:      make(chan error, 1),
		seats:       make(chan struct{}, 600), // as in a real server
		conns:       map[*conn]struct{}{},
	}
	s.editor.Graceful, s.editor.ForeignNamespaces = opts.Graceful, opts.ForeignNamespaces
	s.editor.Admit, s.editor.InUse = s.admit, s.inUse
	for _, p := range storms {
		if err := s.add(p); err != nil {
			return nil, err
		}
	}
	if s.budget == nil {
		s.budget = store.NewBudget(0)
	}
	for _, c := range s.storms {
		s.observe(c)
	}
	if opts.Changed != nil {
		for _, res := range s.registry.All() { // Nothing is created later on.
			if seeded(seedsText, res) || res.GVR == namespaceResource {
				s.collection(res)
			}
		}
	}
	s.handler = s
	if opts.Wrap != nil {
		s.handler = opts.Wrap(s)
	}
	if !opts.Plain {
		s.handler = s.compressed(s.handler)
	}
	return s, nil
}

// Start serves HTTP on a free loopback port and returns the URL of the server.
func (s *Server) Start() (url string, err error) {
	l, err := Access{}.Listen("127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("apiserver: %w", err)
	}
	return s.Serve(l, nil)
}

// Serve serves on a listener, which Close closes, and returns the URL. With a TLS
// configuration it serves HTTPS and HTTP/2. The initial lists of the storms are visible.
func (s *Server) Serve(l net.Listener, config *tls.Config) (url string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "", errors.Join(fmt.Errorf("apiserver: %w: closed", ErrState), l.Close())
	case s.http != nil:
		return "", errors.Join(fmt.Errorf("apiserver: %w: started already", ErrState), l.Close())
	}
	s.http = HTTPServer(l, s.handler, 0)         // The number of watches is the client's.
	s.http.ErrorLog = log.New(io.Discard, "", 0) // Clients that go away are nothing to write about.
	counted := &listener{Listener: l, server: s}
	if config == nil {
		go func() { s.served <- s.http.Serve(counted) }()
		return "http://" + l.Addr().String(), nil
	}
	s.http.TLSConfig = config
	// A client may have any number of watches on one connection.
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1 << 20, WriteByteTimeout: writeTimeout}
	go func() { s.served <- s.http.ServeTLS(counted, "", "") }()
	return "https://" + l.Addr().String(), nil
}

// Snapshots returns the number of requests for the whole state: a LIST, without its
// further pages, or a watch with initial state.
func (s *Server) Snapshots() int64 { return s.snapshots.Load() }

// WireBytes returns the number of written bytes: bodies, headers and chunk sizes.
func (s *Server) WireBytes() int64 { return s.wire.Load() }

// Disconnect closes all connections abruptly, as a failing network does. Clients may connect again.
func (s *Server) Disconnect() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // an error leaves nothing to do
	}
}

// Close ends all watches, closes the connections and waits for requests in progress. A
// second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	server := s.http
	s.mu.Unlock()

	var err error
	if server != nil {
		err = server.Close()
	}
	s.handlers.Wait()
	s.colMu.RLock()
	defer s.colMu.RUnlock()
	for _, c := range s.collections {
		c.log.Close()
	}
	if server != nil {
		if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
	}
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	return nil
}

// enter registers a request. It returns false if the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// listener tracks its connections and the bytes that they write.
type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &conn{Conn: c, server: l.server}
	l.server.mu.Lock()
	l.server.conns[counted] = struct{}{}
	l.server.mu.Unlock()
	return counted, nil
}

type conn struct {
	net.Conn
	server *Server
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.server.wire.Add(int64(n))
	return n, err
}

// NetConn returns the underlying connection, like tls.Conn; faults reset it.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}
