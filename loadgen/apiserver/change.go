package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"watchlab/loadgen/apiserver/store"
)

// Change is one event that became visible; see [Options]. Requests are due by [WithIntended]. By is the client of the
// request ([WithClient]), empty without one; "storm" for released events, "manifest" for objects of
// [Server.Create] and those that the server creates, and "kube-apiserver" for what admission changes beside.
type Change = store.Change

const byManifest, byAdmission = "manifest", "kube-apiserver"

type originKey struct{}

func originOf(ctx context.Context) store.Origin {
	o, _ := ctx.Value(originKey{}).(store.Origin)
	return o
}

// observe reports the changes of a collection.
func (s *Server) observe(c *collection) {
	if s.opts.Changed == nil {
		return
	}
	c.log.Observe(func(change Change) {
		change.Resource = c.stored.GVR
		s.opts.Changed(change)
	})
}

// WithClient names the client of a request, for [Change] and [Lag].
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, originKey{}, store.Origin{By: name, Intended: IntendedOf(ctx)})
}

// ClientOf returns the name of the client, or "".
func ClientOf(ctx context.Context) string { return originOf(ctx).By }

// WithIntended says when a request of this process was due, for [Change].
func WithIntended(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, originKey{}, store.Origin{By: ClientOf(ctx), Intended: at})
}

// IntendedOf returns the time of [WithIntended], or the zero time.
func IntendedOf(ctx context.Context) time.Time { return originOf(ctx).Intended }

// Transport returns a transport to the server without a connection, without [Options].Wrap and thus without
// faults and tokens, for clients in this process. Watches are not served.
func (s *Server) Transport(client string) http.RoundTripper { return inProcess{s, client} }

type inProcess struct {
	server *Server
	client string
}

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	served := r.WithContext(WithClient(r.Context(), p.client))
	if served.Body == nil {
		served.Body = http.NoBody // as in a server
	}
	p.server.ServeHTTP(w, served)
	_ = served.Body.Close()
	answer := w.Result()
	answer.Request = r
	return answer, nil
}
