package apiserver

import "k8s.io/apimachinery/pkg/runtime/schema"

// Lag is the distance of an open watch from the newest event.
type Lag struct {
	Client   string // see [WithClient]
	Resource schema.GroupVersionResource
	Events   int // visible events of the resource that the watch has not written
}

// Lags returns the lags of the open watches, in the order in which they were opened. O(watches).
func (s *Server) Lags() []Lag {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	lags := make([]Lag, len(s.watching.all))
	for i, w := range s.watching.all {
		sent := w.sent.Load() // first, so that it is not ahead
		lags[i] = Lag{Client: ClientOf(w.http.Context()), Resource: w.resource.GVR, Events: int(w.log.Visible() - sent)}
	}
	return lags
}
