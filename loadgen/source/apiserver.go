package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// APIServer serves the storm from a simulated API server on loopback ([apiserver.Server]). It
// lists and watches with a real client-go REST client: JSON, no compression, no TLS, no rate
// limit. Each event is encoded once before Play; events beyond the server's memory budget are
// encoded during Play. client-go decodes the event for every watch.
//
// Play never waits for a watch: events wait in the server. An unpaced Play releases all events
// at once, and the socket and the decoder limit the rate.
type APIServer struct {
	storm    *storm.Storm
	server   *apiserver.Server
	injector *fault.Injector // nil without faults
	// transport belongs to lw alone. It is not one of client-go's shared transports, so Close
	// can close its connections.
	transport *http.Transport
	lw        cache.ListerWatcher
}

// prepareAPIServer encodes the storm. client-go's scheme must contain the storm's kind.
func prepareAPIServer(s *storm.Storm) (*apiserver.Prepared, error) {
	if !scheme.Scheme.Recognizes(s.Kind) {
		return nil, fmt.Errorf("storm %s: client-go has no type for %s", s.Name, s.Kind)
	}
	return apiserver.Prepare(s)
}

func startAPIServer(s *storm.Storm, prepared *apiserver.Prepared, o Options) (*APIServer, error) {
	src := &APIServer{storm: s, transport: &http.Transport{DisableCompression: true}}
	var opts apiserver.Options
	var err error
	if len(o.Faults) > 0 {
		if src.injector, err = fault.New(o.Faults, o.Seed); err != nil {
			return nil, err
		}
		opts.Wrap = src.injector.Wrap
	}
	if src.server, err = apiserver.Open(opts, prepared); err != nil {
		return nil, err
	}
	url, err := src.server.Start()
	if err != nil {
		return nil, err
	}
	if err := src.connect(url); err != nil {
		return nil, errors.Join(err, src.server.Close())
	}
	return src, nil
}

// connect creates the client and its ListerWatcher.
func (a *APIServer) connect(url string) error {
	gv := a.storm.Kind.GroupVersion()
	config := &rest.Config{
		Host:    url,
		APIPath: "/apis",
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes:   runtime.ContentTypeJSON,
			ContentType:          runtime.ContentTypeJSON,
			GroupVersion:         &gv,
			NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		},
		QPS:       -1,
		UserAgent: "watchlab",
		Transport: a.transport,
	}
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	// Generated clients and informers do the same.
	lw := cache.NewListWatchFromClient(client, a.storm.Resource.Resource, metav1.NamespaceAll, fields.Everything())
	a.lw = cache.ToListWatcherWithWatchListSemantics(lw, client)
	return nil
}

// ListerWatcher lists and watches over HTTP, with WatchList if client-go enables it.
func (a *APIServer) ListerWatcher() cache.ListerWatcher { return a.lw }

// Server returns the simulated API server, which has its address and counters.
func (a *APIServer) Server() *apiserver.Server { return a.server }

// Injector returns the fault injector; nil without faults.
func (a *APIServer) Injector() *fault.Injector { return a.injector }

// Relists returns the number of requests for the whole state after the first one. A
// [fault.Relist] also causes one.
func (a *APIServer) Relists() int { return int(max(a.server.Snapshots()-1, 0)) }

// Play releases the events after the initial list; see [Source] and [APIServer]. Faults start
// with Play and end with Close.
func (a *APIServer) Play(ctx context.Context, p *pace.Pacer, released func(seq uint64)) error {
	if a.injector != nil {
		if err := a.injector.Start(); err != nil {
			return fmt.Errorf("apiserver source: %w", err)
		}
	}
	for i, e := range a.storm.Events[a.storm.Initial:] {
		if err := p.Wait(ctx, i); err != nil {
			return err
		}
		if released != nil {
			released(e.Seq)
		}
		a.server.Release(e.Seq)
	}
	return nil
}

// Close ends all watches, stops the server and closes the client's connections.
func (a *APIServer) Close() error {
	if a.injector != nil {
		a.injector.Stop()
	}
	err := a.server.Close()
	a.transport.CloseIdleConnections()
	return err
}

// Disconnect closes all connections; see [Source].
func (a *APIServer) Disconnect() { a.server.Disconnect() }
