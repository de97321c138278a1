package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/manifest"
)

// Server is the API server of one play. The simulated one is the default; see [Options].
type Server interface {
	// Kubeconfig returns the address and the credentials of a client of [Setup].Clients.
	Kubeconfig(client string) apiserver.Kubeconfig
	// User is the configuration for the requests of the workload. Their changes have the intended time
	// that the request's context has ([apiserver.WithIntended]).
	User() *rest.Config
	// Begin starts the storm. Play waits for its end.
	Begin(at time.Time)
	Play(ctx context.Context) error
	// Await waits until enough returns true for the numbers of the controllers' open and ended watches.
	Await(ctx context.Context, enough func(open, ended int) bool) error
	// Quiet reports whether the cluster itself has nothing left to do.
	Quiet() bool
	Lags() []record.Lag // of open watches; At is not set
	Close() error
}

// Setup is what a [Server] is made from.
type Setup struct {
	Clients []string // names of the controllers' replicas
	// Wrap records the requests of clients and injects faults. The client's name is in the request's
	// context ([apiserver.WithClient]).
	Wrap    func(http.Handler) http.Handler
	Changed func(apiserver.Change) // receives each change, in order for each resource
	Seed    int64
	Speed   float64
	Storms  []*apiserver.Prepared // see [apiserver.Open]
	Objects []manifest.Object     // that exist before the storm
	Stages  []lifecycle.Stage     // of the stand-in for the rest of the cluster
	Without []string              // parts of it that are left out
}

// simulated is a simulated API server with a stand-in for the rest of the cluster.
type simulated struct {
	server  *apiserver.Server
	player  *apiserver.Player
	cluster *lifecycle.Cluster
	url     string
	ca      []byte
	tokens  map[string]string // of clients

	cancel context.CancelFunc
	ended  chan error // of the cluster
}

func newSimulated(set Setup) (Server, error) {
	patch.Warm() // The first requests of the storm must not be late.
	s := &simulated{tokens: map[string]string{}, ended: make(chan error, 1)}
	names := map[string]string{} // of tokens
	for _, client := range set.Clients {
		token := apiserver.NewToken()
		s.tokens[client], names[token] = token, client
	}
	// The cluster sees each change once it exists.
	s.cluster = lifecycle.New(lifecycle.Options{Stages: set.Stages, Seed: set.Seed, Speed: set.Speed, Without: set.Without})
	var err error
	s.server, err = apiserver.Open(apiserver.Options{
		Graceful: true, ForeignNamespaces: slices.Contains(set.Without, lifecycle.Namespaces),
		Changed: func(c apiserver.Change) {
			set.Changed(c)
			s.cluster.Observe(c)
		},
		Wrap: func(h http.Handler) http.Handler { return apiserver.RequireTokens(names, set.Wrap(h)) },
	}, set.Storms...)
	if err != nil {
		return nil, manifest.BadField("storm", err)
	}
	s.player = apiserver.NewPlayer(s.server, set.Storms, set.Speed)
	if err := s.server.CreateAll(set.Objects); err != nil {
		return nil, errors.Join(manifest.BadField("manifests", err), s.server.Close())
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.server.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.ended <- s.cluster.Run(ctx, s.local(record.ByLifecycle)) }()
	return s, nil
}

func (s *simulated) listen() error {
	l, err := apiserver.Access{}.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	identity, err := apiserver.NewIdentity(time.Now())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.ca = identity.CA
	s.url, err = s.server.Serve(l, identity.ServerConfig())
	return err
}

// local is the configuration of a client in this process.
func (s *simulated) local(client string) *rest.Config {
	return &rest.Config{Host: s.url, Transport: s.server.Transport(client), QPS: -1}
}

func (s *simulated) Kubeconfig(client string) apiserver.Kubeconfig {
	return apiserver.Kubeconfig{Server: s.url, CA: s.ca, Token: s.tokens[client]}
}

func (s *simulated) User() *rest.Config             { return s.local(record.ByWorkload) }
func (s *simulated) Begin(time.Time)                {}
func (s *simulated) Play(ctx context.Context) error { return s.player.Run(ctx) }
func (s *simulated) Quiet() bool                    { return s.cluster.Quiet() }

func (s *simulated) Await(ctx context.Context, enough func(open, ended int) bool) error {
	return s.server.AwaitWatches(ctx, enough)
}

func (s *simulated) Lags() []record.Lag {
	var lags []record.Lag
	for _, l := range s.server.Lags() {
		lags = append(lags, record.Lag{Client: l.Client, Resource: l.Resource, Events: l.Events, Bytes: l.Bytes})
	}
	return lags
}

func (s *simulated) Close() error {
	s.cancel()
	err := <-s.ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, s.server.Close())
}
