package fault

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Pipe is a listener of in-memory connections. An HTTP server and its clients can share a
// testing/synctest bubble, where hours of timeouts pass at once. Connections have no buffer: a
// write returns after the read.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Transport connects to the pipe, whatever the host of the URL.
func (p *Pipe) Transport() *http.Transport {
	return &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case p.conns <- server:
			return client, nil
		case <-p.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *Pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Over receives when the last occurrence of the faults that time triggers has ended.
func (i *Injector) Over() <-chan time.Time {
	last := time.Duration(0)
	for _, s := range i.Specs() {
		last = max(last, s.nth(s.Count)+time.Duration(s.Duration))
	}
	return time.After(time.Until(i.startTime.Add(last)))
}
