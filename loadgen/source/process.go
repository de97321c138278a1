package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"watchlab/loadgen/storm"
)

// process is the parent's end of a process that serves a storm to any number of plays. It is this
// program again: see [RunChild]. The protocol is net/rpc over standard input and output. The process ends
// with its standard input, so also if the parent is killed.
type process struct {
	cmd    *exec.Cmd
	client *rpc.Client
	ended  chan struct{} // closed after the end of the process
	err    error         // its exit; set before ended is closed
}

var processes sync.WaitGroup

// Wait waits for the end of the processes of all API servers, after the end of their runs.
func Wait() { processes.Wait() }

// shared is what the sources of a storm share: a process for each run, which ends with it.
type shared struct {
	storm   *storm.Storm
	options Options

	mu        sync.Mutex // guards processes
	processes map[<-chan struct{}]*process
}

// use returns the process of a run, which works until its ctx ends.
func (s *shared) use(ctx context.Context) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.processes[ctx.Done()]; p != nil {
		return p, nil
	}
	p, err := startProcess(ctx, s.storm, s.options)
	if err != nil {
		return nil, err
	}
	s.processes[ctx.Done()] = p
	context.AfterFunc(ctx, func() {
		p.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.processes, ctx.Done())
	})
	return p, nil
}

// chunkEvents is the number of events that a call of the protocol carries.
const chunkEvents = 256

// senders is the number of goroutines that send chunks: one encodes while the process decodes.
const senders = 2

// The arguments of calls. They are aliases of unnamed types, since net/rpc takes exported types or
// unnamed ones.
type (
	preparation = struct {
		Storm  storm.Storm // without its events
		Events int
		Options
	}
	chunk = struct {
		First   int           // index of the first event
		Events  []storm.Event // without their objects
		Objects [][]byte      // protobuf
	}
	opened  = struct{ ID, URL string }
	readied = struct {
		ID  string
		Due []int64 // intended times; nil if unpaced
	}
	segment = struct {
		ID    string
		Start int64 // of the schedule, see [pace.Machine]
		Upto  uint64
	}
	reading = struct {
		ID   string
		From int // number of releases that the parent has
	}
	readout = struct {
		Released []int64 // further release times, see [pace.Machine]
		Counters Counters
	}
)

// message is what the API types implement.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// pipes is a connection over two pipes.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// startProcess starts the process and gives it the storm, which is valid. The end of ctx stops that.
func startProcess(ctx context.Context, s *storm.Storm, o Options) (*process, error) {
	self, err := os.Executable()
	if !mayStart.Load() {
		err = errors.New("the program does not call source.RunChild")
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "apiserver")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{}), client: rpc.NewClient(pipes{out, in})}
	processes.Go(func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	})
	started := context.AfterFunc(ctx, p.end)
	if err := p.send(s, o); err != nil {
		p.end()
		return nil, cmp.Or(ctx.Err(), err)
	}
	started()
	return p, nil
}

// end ends the process, which has nothing to lose. It may have ended already.
func (p *process) end() {
	_ = p.client.Close()
	_ = p.cmd.Process.Kill()
}

// send sends the storm, and lets the process encode it.
func (p *process) send(s *storm.Storm, o Options) error {
	head := *s
	head.Events = nil
	if err := p.call("Prepare", preparation{head, len(s.Events), o}, nil); err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(senders)
	for first := 0; first < len(s.Events); first += chunkEvents {
		group.Go(func() error {
			c := chunk{First: first, Events: slices.Clone(s.Events[first:min(first+chunkEvents, len(s.Events))])}
			for i := range c.Events {
				e := &c.Events[i]
				object, err := e.Object.(message).Marshal() // as all kinds of client-go's scheme
				if err != nil {
					return fmt.Errorf("event %d (%s): %w", e.Seq, e.Key, err)
				}
				e.Object, c.Objects = nil, append(c.Objects, object)
			}
			return p.call("Append", c, nil)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return p.call("Encode", 0, nil)
}

// call calls a method of the process. reply may be nil.
func (p *process) call(method string, args, reply any) error {
	if reply == nil {
		reply = new(int)
	}
	return p.explain(p.client.Call(service+"."+method, args, reply))
}

// explain replaces the error of a lost connection by the end of the process.
func (p *process) explain(err error) error {
	var answer rpc.ServerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return errors.New(string(answer))
	}
	p.end()
	<-p.ended
	return fmt.Errorf("the server's process has ended: %w", errors.Join(err, p.err))
}
