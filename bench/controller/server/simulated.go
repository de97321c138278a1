package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"k8s.io/client-go/rest"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/manifest"
)

// simulated is a simulated API server with a stand-in for the rest of the cluster.
type simulated struct {
	server  *apiserver.Server
	speed   float64 // of the storm
	cluster *lifecycle.Cluster
	endpoint

	cancel context.CancelFunc
	ended  chan error // of the cluster
}

func newSimulated(set Setup) (Server, error) {
	patch.Warm() // The first requests of the storm must not be late.
	s := &simulated{speed: set.Speed, ended: make(chan error, 1)}
	var names map[string]string
	s.tokens, names = set.tokens()
	// The cluster sees each change once it exists.
	s.cluster = lifecycle.New(lifecycle.Options{Stages: set.Stages, Seed: set.Seed, Speed: set.Speed, Without: set.Without})
	var err error
	s.server, err = apiserver.Open(apiserver.Options{
		Graceful: true, ForeignNamespaces: slices.Contains(set.Without, lifecycle.Namespaces),
		Changed: func(c apiserver.Change) {
			set.Changed(c)
			s.cluster.Observe(c)
		},
		Wrap: func(h http.Handler) http.Handler { return apiserver.RequireTokens(names, set.wrap(h)) },
	}, set.Storms...)
	if err != nil {
		return nil, manifest.BadField("storm", err)
	}
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
	l, identity, err := apiserver.ListenLoopback()
	if err != nil {
		return err
	}
	s.ca = identity.CA
	s.url, err = s.server.Serve(l, identity.ServerConfig())
	return err
}

// local is the configuration of a client in this process.
func (s *simulated) local(client string) *rest.Config {
	return &rest.Config{Host: s.url, Transport: s.server.Transport(client), QPS: -1}
}

func (s *simulated) User() *rest.Config             { return s.local(record.ByWorkload) }
func (s *simulated) Play(ctx context.Context) error { return s.server.Play(ctx, s.speed) }
func (s *simulated) Quiet() bool                    { return s.cluster.Quiet() }
func (s *simulated) Lags() []apiserver.Lag          { return s.server.Lags() }

func (s *simulated) Watches() (open, ended int, err error) {
	err = s.server.AwaitWatches(context.Background(), func(o, e int) bool { open, ended = o, e; return true })
	return open, ended, err
}

func (s *simulated) Close() error {
	s.cancel()
	err := <-s.ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, s.server.Close())
}
