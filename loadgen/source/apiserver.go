package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/decode"
	"watchlab/impls/inflate"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// APIServer serves the storm from a simulated API server ([apiserver.Server]) on loopback. The server
// has a process of its own, this program again, so the CPU time and the memory of this process are the
// client's. Both share the processors. It lists and watches with a real client-go REST client, in the
// encoding, compression and with the decoder of [Wire]: no TLS, no rate limit. Each event is encoded and
// compressed once before Play; events beyond the server's memory budget are encoded during Play. Every
// watch decompresses and decodes the event.
//
// Play never waits for a watch: events wait in the server. An unpaced Play releases all events
// at once, and the socket and the decoder limit the rate.
type APIServer struct {
	storm   *storm.Storm
	ctx     context.Context // of the run
	process *process
	id      string      // of the server
	ready   *pace.Pacer // whose schedule the process has
	// transport belongs to lw alone. It is not one of client-go's shared transports, so Close
	// can close its connections.
	transport *http.Transport
	wire      Wire
	inflate   string // variant of package inflate
	url       string
	decoder   decode.Decoder
	lw        cache.ListerWatcher

	mu       sync.Mutex // guards the fields below
	released func(seq uint64, at time.Time)
	known    int // number of releases that were given to it
	counters Counters
	closed   bool
}

// Wire configures how a client of the apiserver source lists, watches and decodes. The tags are those of
// experiment.Spec.
type Wire struct {
	// Encoding of the API server's responses, in the informer pipeline; cbor needs no feature gate here (default: the decoder's, else json, which client-go's dynamic clients ask for; its generated clients ask for protobuf unless the config has a content type).
	Encoding decode.Encoding `json:"encoding,omitempty" flag:"encoding" help:"encoding for --source apiserver: json, protobuf, cbor (default json)" source:"apiserver" pipeline:"informer" enum:"json,protobuf,cbor"`
	// Decode is the decoder of these responses, a variant of the family decode, as `watchlab list` shows it (default: client-go's of the encoding, such as clientgo-json).
	Decode string `json:"decode,omitempty" flag:"decode" help:"decoder for --source apiserver, by name (default clientgo-ENCODING)" source:"apiserver" pipeline:"informer"`
	// InitialList is how the Reflector gets the initial state: list, or watchlist, a watch that begins with it (default: client-go's, watchlist).
	InitialList string `json:"initialList,omitempty" flag:"initial-list" help:"initial state: list, watchlist (default: client-go's)" source:"apiserver" pipeline:"informer" enum:"list,watchlist"`
	// Compression of what the server sends: gzip, as Kubernetes 1.37 compresses a watch that begins with the state and lists above 128 kB, or none, as for a client with DisableCompression (default: gzip).
	Compression string `json:"compression,omitempty" flag:"compression" help:"compression on the wire: gzip, none (default gzip)" source:"apiserver" pipeline:"informer" enum:"gzip,none"`
}

// How a Reflector gets the initial state.
const (
	List      = "list"
	WatchList = "watchlist" // a watch that begins with the state
)

// Compressions of a [Wire].
const (
	Gzip         = "gzip"
	Uncompressed = "none"
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

// Counters are those of the server of a play.
type Counters struct {
	Snapshots int64              // requests for the whole state
	WireBytes int64              // written bytes: bodies, headers and chunk sizes
	Faults    map[fault.Name]int // watches and requests that each fault hit; nil without faults
}

// prepareAPIServer checks the options, and that client-go's scheme has the storm's kind.
func prepareAPIServer(s *storm.Storm, o Options) (*shared, error) {
	var err error
	if o.Wire, err = o.Wire.Complete(); err != nil {
		return nil, err
	}
	if !scheme.Scheme.Recognizes(s.Kind) {
		return nil, fmt.Errorf("storm %s: client-go has no type for %s", s.Name, s.Kind)
	}
	return &shared{storm: s, options: o, processes: map[<-chan struct{}]*process{}}, nil
}

func startAPIServer(ctx context.Context, s *storm.Storm, of *shared) (*APIServer, error) {
	p, err := of.use(ctx)
	if err != nil {
		return nil, err
	}
	src := &APIServer{
		storm: s, ctx: ctx, process: p, wire: of.options.Wire,
		transport: &http.Transport{DisableCompression: of.options.Wire.Compression == Uncompressed},
	}
	var o opened
	if err := p.call("Open", 0, &o); err != nil {
		return nil, err
	}
	src.id, src.url = o.ID, o.URL
	if err := src.Observe(nil); err != nil {
		return nil, errors.Join(err, src.Close())
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
	reader, err := inflate.New(cmp.Or(a.inflate, inflate.Default), inflate.Options{})
	if err != nil {
		return err
	}
	config := &rest.Config{Host: a.url, QPS: -1, UserAgent: "watchlab", Transport: a.transport, DisableCompression: a.transport.DisableCompression}
	config = reader.Config(config)
	// The informers of the pipeline have no transform that changes an object.
	lw, err := decode.NewListWatch(config, decode.Untransformed(d), a.storm.Resource, metav1.NamespaceAll, nil)
	if err != nil {
		return err
	}
	a.decoder, a.lw = d, cache.ToListWatcherWithWatchListSemantics(lw, listOnly(a.wire.InitialList == List))
	return nil
}

// SetStages makes a new client with a decoder for the encoding of the wire, see [Wire], and a variant of package
// inflate. Call it before Observe.
func (a *APIServer) SetStages(inflate, decode string) error {
	a.inflate, a.wire.Decode = inflate, decode
	return a.Observe(nil)
}

// Like returns an empty object of the type that the client decodes an object to, which a Reflector
// has to expect: some decoders return another.
func (a *APIServer) Like(obj runtime.Object) (runtime.Object, error) {
	s := a.decoder.Info().Serializer
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(a.storm.Kind)
	data, err := runtime.Encode(s, obj)
	if err != nil {
		return nil, err
	}
	if obj, err = runtime.Decode(s, data); err != nil {
		return nil, err
	}
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object), nil
}

// ListerWatcher lists and watches over HTTP, with WatchList as [Wire] says.
func (a *APIServer) ListerWatcher() cache.ListerWatcher { return a.lw }

// URL returns the address of the server.
func (a *APIServer) URL() string { return a.url }

// call calls a method of the process.
func (a *APIServer) call(method string, args, reply any) error {
	return a.ofRun(a.process.call(method, args, reply))
}

// ofRun returns the run's error, whose end may have ended the process.
func (a *APIServer) ofRun(err error) error {
	if err != nil && a.ctx.Err() != nil {
		return a.ctx.Err()
	}
	return err
}

// Ready sends the schedule to the server; see [Source].
func (a *APIServer) Ready(p *pace.Pacer) error {
	r := readied{ID: a.id}
	if p.Paced() {
		r.Due = make([]int64, len(a.storm.Events)-a.storm.Initial)
		for i := range r.Due {
			r.Due[i] = int64(p.Intended(i))
		}
	}
	a.ready = p
	return a.call("Ready", r, nil)
}

// Play lets the server release the next events; see [Source] and [APIServer]. released is called
// by Refresh and at the end of Play. Faults start with the first Play and end with Close.
func (a *APIServer) Play(ctx context.Context, p *pace.Pacer, upto uint64, released func(seq uint64, at time.Time)) error {
	if a.ready != p {
		if err := a.Ready(p); err != nil {
			return fmt.Errorf("apiserver source: %w", err)
		}
	}
	a.mu.Lock()
	a.released = released
	a.mu.Unlock()
	play := a.process.client.Go(service+".Play", segment{a.id, pace.Machine(p.Started()), upto}, new(int), nil)
	select {
	case <-play.Done:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := a.ofRun(a.process.explain(play.Error))
	if err == nil {
		_, err = a.Refresh()
	}
	if err != nil {
		return fmt.Errorf("apiserver source: %w", err)
	}
	return nil
}

// Refresh reads the server's counters, and calls the released of Play for the releases so far. It
// is safe for concurrent use. With an error, the counters are older ones.
func (a *APIServer) Refresh() (Counters, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var r readout
	if a.closed {
		return a.counters, ErrClosed
	}
	if err := a.call("Read", reading{a.id, a.known}, &r); err != nil {
		return a.counters, err
	}
	a.counters = r.Counters
	for _, at := range r.Released {
		a.known++
		if a.released != nil {
			a.released(uint64(a.storm.Initial+a.known), pace.FromMachine(at))
		}
	}
	return a.counters, nil
}

// Relists returns the number of requests for the whole state after the first one. A
// [fault.Relist] also causes one.
func (a *APIServer) Relists() int {
	c, _ := a.Refresh() // A lost process fails the play.
	return int(max(c.Snapshots-1, 0))
}

// Close ends all watches, stops the server and closes the client's connections.
func (a *APIServer) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	a.transport.CloseIdleConnections()
	if err := a.call("Close", a.id, nil); a.ctx.Err() == nil {
		return err
	}
	return nil // The process has ended, too, or ends with its other users.
}

// Disconnect closes all connections; see [Source].
func (a *APIServer) Disconnect() {
	_ = a.call("Disconnect", a.id, nil) // A lost process has no connections.
}
