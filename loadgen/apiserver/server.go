// Package apiserver is a simulated Kubernetes API server for one storm: it
// serves the storm's resource over real HTTP on loopback, and makes events
// visible when it is told to.
//
//	srv, err := apiserver.New(storm, apiserver.Options{})
//	url, err := srv.Start()  // the initial list is visible
//	srv.Release(seq)         // and now all events up to seq
//	err = srv.Close()
//
// Every event is encoded once, by Prepare, into the bytes of its watch frame. The
// frames of a storm lie in one piece of memory, in order, so that a watch that
// finds many of them ready writes them with one call, without copying or
// allocating.
//
// # What is simulated
//
//   - LIST of all namespaces or of one: resourceVersion and
//     resourceVersionMatch, limit and continue (pages of one snapshot, sorted by
//     key), labelSelector, fieldSelector on metadata.name, metadata.namespace
//     and, for pods, spec.nodeName.
//   - WATCH: from a resourceVersion, with sendInitialEvents and its annotated
//     bookmark, periodic bookmarks, timeoutSeconds, and the same selectors, with
//     the events that objects cause by coming under a selector and leaving it.
//     A version that is no longer retained gives a 410 ERROR event, as a real
//     server's watch cache does.
//   - GET of one object.
//   - Errors as metav1.Status: 400 for malformed parameters, 404, 405 for
//     writes, 406 for clients that don't take JSON, 410, and 504 with the cause
//     ResourceVersionTooLarge.
//   - Discovery (/api, /apis, group and version), /version, /healthz, /livez,
//     /readyz: enough for a RESTMapper and for kubectl.
//
// Resource versions are the sequence numbers of the storm's events.
//
// # What is not
//
//   - Writes, subresources, other resources, tables, protobuf and CBOR.
//   - TLS, HTTP/2, authentication, admission, priority and fairness, gzip (a
//     real server compresses lists beyond 128 kB for clients that ask).
//   - Cost: a real server's watch cache encodes and filters per watch and ends
//     a watch that is too slow. Here a watch may be as slow as it likes; it holds
//     up neither Release nor other watches.
//   - Waiting: a version in the future is refused at once, where a real server
//     waits for up to 3 s (LIST) or for as long as it takes (WATCH).
//   - A time-out of its own: a watch without timeoutSeconds runs until it is
//     closed, where a real server ends it after 30 to 60 minutes.
package apiserver

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"watchlab/loadgen/source/stream"
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
	// BookmarkInterval is how often a watch that allows bookmarks gets one; 0
	// means [DefaultBookmarkInterval].
	BookmarkInterval time.Duration
	// Retain is how many of the newest events a watch may still start before;
	// an older version is Gone. 0 retains everything.
	Retain int
}

// Server serves one storm. Its methods are safe for concurrent use.
type Server struct {
	storm    *storm.Storm
	stream   *stream.Stream
	frames   *frames
	bookmark time.Duration
	// namespaced is the scope of the resource.
	namespaced bool

	lists, watches, snapshots atomic.Int64
	wire                      atomic.Int64

	http *http.Server
	// served has the result of http.Serve.
	served chan error

	mu sync.Mutex
	// listener is set by Start. Guarded by mu.
	listener net.Listener
	// closed is set by Close. Guarded by mu.
	closed bool
	// conns are the open connections. Guarded by mu.
	conns map[*conn]struct{}
	// handlers are the requests being served; added to under mu.
	handlers sync.WaitGroup
}

// Prepared is a storm that is encoded, to be served by any number of servers.
// It is immutable.
type Prepared struct {
	storm      *storm.Storm
	frames     *frames
	namespaced bool
}

// Prepare encodes the storm's events. The error wraps [storm.ErrInvalid], or is
// an object's that cannot be encoded. O(bytes of the storm as JSON), in time and
// in memory.
func Prepare(s *storm.Storm) (*Prepared, error) {
	fail := func(err error) (*Prepared, error) {
		return nil, fmt.Errorf("apiserver: storm %s: %w", s.Name, err)
	}
	if err := s.Validate(); err != nil {
		return fail(err)
	}
	namespaced, err := scope(s)
	if err != nil {
		return fail(err)
	}
	f, err := encode(s)
	if err != nil {
		return fail(err)
	}
	return &Prepared{storm: s, frames: f, namespaced: namespaced}, nil
}

// New prepares the storm and returns a server for it; see [Prepare] and
// [Prepared.New].
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

// New returns a server that Start starts. The error wraps [ErrOptions]. O(1).
func (p *Prepared) New(opts Options) (*Server, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	srv := &Server{
		storm:      p.storm,
		stream:     stream.New(p.storm, opts.Retain),
		frames:     p.frames,
		bookmark:   opts.BookmarkInterval,
		namespaced: p.namespaced,
		served:     make(chan error, 1),
		conns:      map[*conn]struct{}{},
	}
	srv.http = &http.Server{
		Handler:           srv,
		ReadHeaderTimeout: 10 * time.Second,
		// Clients that go away are nothing to write about.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return srv, nil
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

// scope reports whether the storm's objects have namespaces; without objects,
// it takes them to have.
func scope(s *storm.Storm) (namespaced bool, err error) {
	for i := range s.Events {
		o, err := meta.Accessor(s.Events[i].Object)
		if err != nil {
			return false, err
		}
		has := o.GetNamespace() != ""
		if i > 0 && has != namespaced {
			return false, fmt.Errorf("%w: event %d: %s: objects with and without a namespace", storm.ErrInvalid, i+1, s.Events[i].Key)
		}
		namespaced = has
	}
	return namespaced || len(s.Events) == 0, nil
}

// Start listens on a free port of the loopback interface and returns the URL
// of the server. The initial list is visible.
func (s *Server) Start() (url string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "", fmt.Errorf("apiserver: %w: closed", ErrState)
	case s.listener != nil:
		return "", fmt.Errorf("apiserver: %w: started already", ErrState)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("apiserver: %w", err)
	}
	s.listener = l
	go func() { s.served <- s.http.Serve(&listener{Listener: l, server: s}) }()
	return "http://" + l.Addr().String(), nil
}

// Release makes the events up to seq visible. It never blocks. A seq that is
// visible already changes nothing; one beyond the storm releases all of it.
func (s *Server) Release(seq uint64) { s.stream.Release(seq) }

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

func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}
