package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/decode"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// APIServer serves the storm from a simulated API server on loopback ([apiserver.Server]). It
// lists and watches with a real client-go REST client, in the encoding and with the decoder of
// [Wire]: no compression, no TLS, no rate limit. Each event is encoded once before Play; events
// beyond the server's memory budget are encoded during Play. Every watch decodes the event.
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
	wire      Wire
	url       string
	lw        cache.ListerWatcher
}

// Wire is how a client of the apiserver source lists, watches and decodes.
type Wire struct {
	Encoding    decode.Encoding // default: the decoder's, else JSON
	Decode      string          // variant of package decode; default: clientgo-ENCODING
	InitialList string          // [List] or [WatchList]; default: client-go's
}

// How a Reflector gets the initial state.
const (
	List      = "list"
	WatchList = "watchlist" // a watch that begins with the state
)

// Complete fills in the defaults of Encoding and Decode and refuses what cannot be played. The error
// wraps that of package decode, or [ErrInitialList].
func (w Wire) Complete() (Wire, error) {
	if w.Decode == "" {
		w.Encoding = cmp.Or(w.Encoding, decode.JSON)
		w.Decode = "clientgo-" + string(w.Encoding)
	}
	d, err := decode.New(w.Decode, decode.Options{Encoding: w.Encoding})
	if err != nil {
		return w, err
	}
	for _, e := range decode.Encodings() {
		if e.MediaType() == d.Info().MediaType {
			w.Encoding = e
		}
	}
	if w.InitialList == WatchList && !clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) {
		return w, fmt.Errorf("%w %s: client-go's feature gate %s is off", ErrInitialList, w.InitialList, clientfeatures.WatchListClient)
	}
	return w, nil
}

// listOnly tells a Reflector not to use WatchList, if true (client-go v0.37,
// util/watchlist.DoesClientNotSupportWatchListSemantics).
type listOnly bool

func (l listOnly) IsWatchListSemanticsUnSupported() bool { return bool(l) }

// prepareAPIServer encodes the storm. client-go's scheme must contain the storm's kind.
func prepareAPIServer(s *storm.Storm, e decode.Encoding) (*apiserver.Prepared, error) {
	if !scheme.Scheme.Recognizes(s.Kind) {
		return nil, fmt.Errorf("storm %s: client-go has no type for %s", s.Name, s.Kind)
	}
	media := map[decode.Encoding]wire.Media{decode.JSON: wire.JSON, decode.Protobuf: wire.Protobuf, decode.CBOR: wire.CBOR}
	return apiserver.Prepare(s, media[e])
}

func startAPIServer(s *storm.Storm, prepared *apiserver.Prepared, o Options) (*APIServer, error) {
	src := &APIServer{storm: s, transport: &http.Transport{DisableCompression: true}, wire: o.Wire}
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
	if src.url, err = src.server.Start(); err != nil {
		return nil, err
	}
	if err := src.Observe(nil); err != nil {
		return nil, errors.Join(err, src.server.Close())
	}
	return src, nil
}

// Observe makes a new client, with an observer for each response; see [decode.Options]. Call it
// before ListerWatcher.
func (a *APIServer) Observe(observe func() decode.Observer) error {
	d, err := decode.New(a.wire.Decode, decode.Options{Encoding: a.wire.Encoding, Observe: observe})
	if err != nil {
		return err
	}
	config := &rest.Config{Host: a.url, QPS: -1, UserAgent: "watchlab", Transport: a.transport}
	lw, err := decode.NewListWatch(config, d, a.storm.Resource, metav1.NamespaceAll, nil)
	if err != nil {
		return err
	}
	a.lw = cache.ToListWatcherWithWatchListSemantics(lw, listOnly(a.wire.InitialList == List))
	return nil
}

// ListerWatcher lists and watches over HTTP, with WatchList as [Wire] says.
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
