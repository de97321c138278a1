// Package apiserver is a simulated Kubernetes API server, over real HTTP, that
// any controller can be pointed at. It serves storms, whose events become
// visible when they are released, and everything else that an API server keeps,
// which clients create and change.
//
//	prepared, err := apiserver.Prepare(storm)
//	srv, err := apiserver.Open(apiserver.Options{}, prepared)
//	url, err := srv.Start()  // on loopback; the initial list is visible
//	srv.Release(seq)         // and now all events up to seq
//	err = srv.Close()
//
// # What is simulated
//
//   - All stable resources that client-go knows, and custom resources:
//     CustomResourceDefinitions are given as manifests or created by clients
//     (package resources). Discovery, OpenAPI, /version and health (package
//     discovery).
//   - LIST of all namespaces or of one: resourceVersion and
//     resourceVersionMatch, limit and continue (pages of one snapshot, sorted by
//     key), labelSelector and fieldSelector.
//   - WATCH: from a resourceVersion, with sendInitialEvents and its annotated
//     bookmark, periodic bookmarks, timeoutSeconds, and the same selectors, with
//     the events that objects cause by coming under a selector and leaving it.
//     A version that is no longer retained gives a 410 ERROR event, as a real
//     server's watch cache does.
//   - GET, POST, PUT, PATCH (JSON, merge, strategic merge, server-side apply),
//     DELETE and deletecollection, with dry runs, preconditions, finalizers,
//     optimistic concurrency and field validation (package patch); status and
//     scale, and of pods binding and eviction. Namespaces are objects: nothing
//     is created in one that isn't there, and deleting one deletes what is in
//     it. The objects of a storm are written to like any others; see
//     [store.Log.Release].
//   - JSON, protobuf and CBOR, objects, their metadata or tables, as the
//     Accept header asks (package wire).
//   - Errors as metav1.Status.
//
// A resourceVersion is a position in the log of one resource (package store): it
// compares with those of the same resource only, which is all that the API
// promises. Where nobody writes to a storm's resource, it is the sequence number
// of the storm's event.
//
// Where its answers are those of kube-apiserver v1.36.3, field by field, and where
// they are not, is in docs/fidelity.md, which a test of bench/e2e writes.
//
// # What it costs
//
// An event is encoded once in each form for all watches, and a watch that finds
// many events ready writes them with one call, without copying them, taking a
// lock or allocating. What is encoded is kept within a budget and encoded again
// where it is needed again.
//
// # What is not
//
//   - Controllers, a kubelet, a garbage collector, admission, quotas, RBAC,
//     priority and fairness, defaults of built-in kinds and their validation. A
//     pod that is deleted goes at once.
//   - Several versions of a built-in resource as views of one: autoscaling v1
//     and v2 are two resources here.
//   - Cost: a real server's watch cache filters per watch and ends a watch that
//     is too slow. Here a watch may be as slow as it likes; it holds up neither
//     Release nor writes nor other watches.
//   - Waiting: a version in the future is refused at once, where a real server
//     waits for up to 3 s (LIST) or for as long as it takes (WATCH).
//   - A time-out of its own: a watch without timeoutSeconds runs until it is
//     closed, where a real server ends it after 30 to 60 minutes.
//   - gzip, which a real server uses for lists beyond 128 kB where clients ask.
package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/storm"
)

// DefaultBookmarkInterval is how often a real server's watch cache sends
// bookmarks.
const DefaultBookmarkInterval = time.Minute

var (
	// ErrState is wrapped by the errors of methods that are called too early,
	// too late or twice.
	ErrState = errors.New("wrong state")
	// ErrOptions is wrapped by the errors for options that are not allowed.
	ErrOptions = errors.New("invalid options")
)

// Options change how a [Server] works. The zero value is a good default.
type Options struct {
	BookmarkInterval time.Duration
	Retain           int
	Registry         *resources.Registry
	Wrap             func(http.Handler) http.Handler
	Editor           patch.Options
}

// Server is a simulated API server. Its methods are safe for concurrent use.
type Server struct {
	opts       Options
	registry   *resources.Registry
	discovery  *resources.Discovery
	editor     *patch.Editor
	budget     *store.Budget
	storms     []*collection
	namespaces []string

	colMu                     sync.RWMutex
	collections               map[schema.GroupVersionResource]*collection
	lists, watches, snapshots atomic.Int64
	wire                      atomic.Int64
	watched                   chan struct{}
	watchedOnce               sync.Once
	watching                  watching
	http                      *http.Server
	served                    chan error

	mu       sync.Mutex
	listener net.Listener
	closed   bool
	conns    map[*conn]struct{}
	handlers sync.WaitGroup
}

// New prepares a storm and returns a server for it; see [Prepare] and [Open].
func New(s *storm.Storm, opts Options) (*Server, error) {
	if _, err := opts.complete(); err != nil {
		return nil, err
	}
	p, err := Prepare(s)
	if err != nil {
		return nil, err
	}
	return p.New(opts)
}

// New returns a server of the storm; see [Open].
func (p *Prepared) New(opts Options) (*Server, error) { return Open(opts, p) }

// Open returns a server of any number of storms, each of another resource, which
// Start starts. The error wraps [ErrOptions]. O(resources).
func Open(opts Options, storms ...*Prepared) (*Server, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts:        opts,
		registry:    opts.Registry,
		editor:      patch.New(opts.Editor),
		collections: map[schema.GroupVersionResource]*collection{},
		watched:     make(chan struct{}),
		served:      make(chan error, 1),
		conns:       map[*conn]struct{}{},
	}
	if s.registry == nil {
		s.registry = resources.New()
	}
	for _, p := range storms {
		if err := s.add(p); err != nil {
			return nil, err
		}
	}
	if s.budget == nil {
		s.budget = store.NewBudget(0)
	}
	s.discovery = resources.NewDiscovery(s.registry, nil)
	var handler http.Handler = s
	if opts.Wrap != nil {
		handler = opts.Wrap(handler)
	}
	s.http = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,

		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s, nil
}

// complete checks the options and fills in the defaults.
func (o Options) complete() (Options, error) {
	switch {
	case o.BookmarkInterval < 0:
		return o, fmt.Errorf("apiserver: %w: BookmarkInterval %v is negative (0 means %v)", ErrOptions, o.BookmarkInterval, DefaultBookmarkInterval)
	case o.Retain < 0:
		return o, fmt.Errorf("apiserver: %w: Retain %d is negative (0 means everything)", ErrOptions, o.Retain)
	}
	if o.BookmarkInterval == 0 {
		o.BookmarkInterval = DefaultBookmarkInterval
	}
	return o, nil
}

// Start serves HTTP on a free port of the loopback interface and returns the
// URL of the server.
func (s *Server) Start() (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("apiserver: %w", err)
	}
	return s.Serve(l, nil)
}

// Serve serves on a listener, which it closes in the end, and returns the URL:
// HTTPS, with HTTP/2 where clients offer it, if there is a TLS configuration.
// The initial lists of the storms are visible.
func (s *Server) Serve(l net.Listener, config *tls.Config) (url string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "", errors.Join(fmt.Errorf("apiserver: %w: closed", ErrState), l.Close())
	case s.listener != nil:
		return "", errors.Join(fmt.Errorf("apiserver: %w: started already", ErrState), l.Close())
	}
	s.listener = l
	counted := &listener{Listener: l, server: s}
	if config == nil {
		go func() { s.served <- s.http.Serve(counted) }()
		return "http://" + l.Addr().String(), nil
	}
	s.http.TLSConfig = config
	// A client may have any number of watches on its one connection.
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1 << 20}
	go func() { s.served <- s.http.ServeTLS(counted, "", "") }()
	return "https://" + l.Addr().String(), nil
}

// Registry returns the resources that are served.
func (s *Server) Registry() *resources.Registry { return s.registry }

// Watched returns a channel that is closed when the first watch is accepted.
func (s *Server) Watched() <-chan struct{} { return s.watched }

// Lists returns how many LIST requests were answered with a page.
func (s *Server) Lists() int64 { return s.lists.Load() }

// Watches returns how many WATCH requests were accepted.
func (s *Server) Watches() int64 { return s.watches.Load() }

// Snapshots returns how often the whole state was asked for: by a LIST (its
// further pages don't count) or by a watch that begins with it.
func (s *Server) Snapshots() int64 { return s.snapshots.Load() }

// WireBytes returns how many bytes were written to connections: bodies,
// headers and chunk sizes.
func (s *Server) WireBytes() int64 { return s.wire.Load() }

// Disconnect closes all connections in mid-sentence, as a failing network
// does. The server goes on: clients are free to connect again.
func (s *Server) Disconnect() {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		// The reader on the other side sees the end; here nothing is left
		// to be done about an error.
		_ = c.Close()
	}
}

// Close ends all watches, closes the connections and waits until no request is
// being served. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	started := s.listener != nil
	s.mu.Unlock()

	err := s.http.Close()
	s.handlers.Wait()
	if started {
		if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
	}
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	return nil
}

// enter counts a request in; it returns false where the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// listener counts what its connections write, and knows them.
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

// NetConn returns the connection below, as that of TLS does: a fault resets it.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}
