package source

import (
	"context"
	"net/rpc"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/impls/decode"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// childVariable is the environment variable that makes a program the server's process.
const childVariable = "WATCHLAB_APISERVER_PROCESS"

// mayStart is set by [RunChild]. Without it, a child would run its whole program again.
var mayStart atomic.Bool

// RunChild serves a storm and does not return, if this process is the child of a program that plays
// from an API server. Such a program calls it at the start of main; a test calls it in TestMain.
func RunChild() {
	if os.Getenv(childVariable) != "" {
		serve()
		os.Exit(1)
	}
	mayStart.Store(true)
}

// serve answers calls until the end of standard input.
func serve() {
	signal.Ignore(os.Interrupt) // A terminal sends it to the parent too, which decides.
	conn := pipes{endless{os.Stdin}, os.Stdout}
	os.Stdout = os.Stderr
	server := rpc.NewServer()
	if err := server.RegisterName(service, &child{servers: map[string]*serving{}}); err != nil {
		panic(err) // a method's signature
	}
	server.ServeConn(conn)
}

// endless is standard input. Its end is that of the process, also while calls are in progress.
type endless struct{ *os.File }

func (e endless) Read(b []byte) (int, error) {
	n, err := e.File.Read(b)
	if err != nil {
		os.Exit(0)
	}
	return n, err
}

const service = "Child"

// child has the methods that the parent calls.
type child struct {
	storm    storm.Storm
	options  Options
	prepared *apiserver.Prepared

	mu      sync.Mutex
	servers map[string]*serving
}

// serving is the server of a play.
type serving struct {
	*child
	server   *apiserver.Server
	injector *fault.Injector // nil without faults
	started  sync.Once
	schedule pace.Schedule
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	released atomic.Int64 // number of released events after the initial list
	times    []int64      // and their times
}

// Prepare receives the storm without its events.
func (c *child) Prepare(p preparation, _ *int) error {
	c.storm, c.options = p.Storm, p.Options
	c.storm.Events = make([]storm.Event, p.Events)
	return nil
}

// Append receives some of the events, in any order.
func (c *child) Append(part chunk, _ *int) error {
	for i, data := range part.Objects {
		o, err := scheme.Scheme.New(c.storm.Kind)
		if err != nil {
			return err
		}
		if err := o.(message).Unmarshal(data); err != nil {
			return err
		}
		part.Events[i].Object = o
	}
	copy(c.storm.Events[part.First:], part.Events)
	return nil
}

// Encode encodes the storm, which is complete.
func (c *child) Encode(_ int, _ *int) (err error) {
	media := map[decode.Encoding]wire.Media{decode.JSON: wire.JSON, decode.Protobuf: wire.Protobuf, decode.CBOR: wire.CBOR}
	w := c.options.Wire
	c.prepared, err = apiserver.Prepare(&c.storm, media[w.Encoding], w.Compression != Uncompressed && w.InitialList != List)
	return err
}

// Open starts a server.
func (c *child) Open(_ int, o *opened) (err error) {
	s := &serving{child: c, schedule: pace.Unpaced, times: make([]int64, len(c.storm.Events)-c.storm.Initial)}
	var opts apiserver.Options
	if len(c.options.Faults) > 0 {
		if s.injector, err = fault.New(c.options.Faults, c.options.Seed); err != nil {
			return err
		}
		opts.Wrap = s.injector.Wrap
	}
	if s.server, err = apiserver.Open(opts, c.prepared); err != nil {
		return err
	}
	if o.URL, err = s.server.Start(); err != nil {
		return err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	o.ID = strconv.Itoa(len(c.servers))
	c.servers[o.ID] = s
	return nil
}

func (c *child) get(id string) (*serving, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.servers[id]; s != nil {
		return s, nil
	}
	return nil, ErrClosed
}

// Ready receives the schedule of a server.
func (c *child) Ready(r readied, _ *int) error {
	s, err := c.get(r.ID)
	if err == nil && r.Due != nil {
		s.schedule = pace.Func(func(i int) time.Duration { return time.Duration(r.Due[i]) })
	}
	return err
}

// Play releases the next events of a server.
func (c *child) Play(p segment, _ *int) error {
	s, err := c.get(p.ID)
	if err != nil {
		return err
	}
	if s.injector != nil {
		s.started.Do(func() { err = s.injector.Start() })
		if err != nil {
			return err
		}
	}
	pacer := pace.On(s.schedule)
	defer func() { _ = pacer.Close() }()
	pacer.Start(pace.FromMachine(p.Start))
	for i := int(s.released.Load()); i < min(len(s.times), int(p.Upto)-c.storm.Initial); i++ {
		if err := pacer.Wait(s.ctx, i); err != nil {
			return err
		}
		s.times[i] = pace.Machine(time.Now())
		s.released.Store(int64(i + 1))
		s.server.Release(uint64(c.storm.Initial + i + 1))
	}
	return nil
}

// Read returns further release times and the counters of a server.
func (c *child) Read(r reading, out *readout) error {
	s, err := c.get(r.ID)
	if err != nil {
		return err
	}
	out.Released = s.times[r.From:s.released.Load()]
	out.Counters = Counters{Snapshots: s.server.Snapshots(), WireBytes: s.server.WireBytes()}
	if s.injector != nil {
		out.Counters.Faults = s.injector.Counts()
	}
	return nil
}

// Disconnect closes the connections of a server.
func (c *child) Disconnect(id string, _ *int) error {
	s, err := c.get(id)
	if err == nil {
		s.server.Disconnect()
	}
	return err
}

// Close ends a play and its server.
func (c *child) Close(id string, _ *int) error {
	s, err := c.get(id)
	if err != nil {
		return err
	}
	s.cancel()
	if s.injector != nil {
		s.injector.Stop()
	}
	c.mu.Lock()
	c.servers[id] = nil // Its number is not used again.
	c.mu.Unlock()
	return s.server.Close()
}
