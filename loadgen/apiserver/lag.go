package apiserver

import (
	"context"
	"net"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/wire"
)

// Lag is the distance of an open watch from the newest event.
type Lag struct {
	Client   string // see [WithClient]
	Resource schema.GroupVersionResource
	Events   int   // visible events of the resource that the watch has not written
	Bytes    int64 // in the send queue of its connection, which other streams may share; 0 if unknown
}

// Lags returns the lags of the open watches, in the order in which they were opened. The bytes are known
// on Linux. Bytes that the client's kernel has received do not count. O(watches).
func (s *Server) Lags() []Lag {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	lags := make([]Lag, len(s.watching.all))
	for i, w := range s.watching.all {
		sent := w.sent.Load() // first, so that it is not ahead
		lags[i] = Lag{
			Client: ClientOf(w.http.Context()), Resource: w.resource.GVR,
			Events: int(w.log.Visible() - sent), Bytes: queued(connOf(w.http.Context())),
		}
	}
	return lags
}

type connKey struct{}

// connOf returns the socket of a request, below TLS and the counting of bytes, or nil.
func connOf(ctx context.Context) syscall.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	socket, _ := wire.Socket(c).(syscall.Conn)
	return socket
}
