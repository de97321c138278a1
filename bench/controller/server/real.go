package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/source/cluster"
)

// actual is a kube-apiserver as the server of a play. A proxy between it and the controllers records their requests and
// injects the faults, and watches of all its resources report the changes. Of its own server the stand-in for the rest
// of the cluster is that of the simulated one. Of a cluster, what was made in the play is deleted at its end.
type actual struct {
	setup   Setup
	config  *rest.Config       // of an administrator
	stop    func() error       // ends a server of its own; nil for a cluster
	cluster *lifecycle.Cluster // nil for a cluster, which has its own
	authors *authors
	client  *cluster.Client // the administrator's, for reading
	http    *http.Server
	endpoint
	ctx     context.Context // of all that runs
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	open, ended int        // watches
	failed      error      // of a watch or of the cluster
	followed    map[schema.GroupResource]bool
	made        map[record.ID]madeObject // in the play, and there still
}

func newReal(set Setup, config *rest.Config, stop func() error) (Server, error) {
	config = rest.CopyConfig(config)
	// Faults and the recorder read what the server writes. Without a limit: the loads are open loops.
	config.DisableCompression, config.QPS, config.UserAgent = true, -1, "watchlab"
	config.WarningHandler = rest.NoWarnings{} // of deprecated resources, which are watched like all
	s := &actual{setup: set, config: config, stop: stop, authors: newAuthors(),
		followed: map[schema.GroupResource]bool{}, made: map[record.ID]madeObject{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if stop != nil {
		s.cluster = lifecycle.New(lifecycle.Options{Stages: set.Stages, Seed: set.Seed, Speed: set.Speed, Without: set.Without})
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *actual) start() (err error) {
	if s.client, err = cluster.NewClient(s.config); err != nil {
		return err
	}
	all, err := watchable(s.client.Discovery)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := s.follow(r); err != nil {
			return err
		}
	}
	if err := s.create(); err != nil {
		return err
	}
	if s.cluster != nil {
		s.running.Go(func() { s.fail(s.cluster.Run(s.ctx, s.local(record.ByLifecycle))) })
	}
	return s.listen()
}

// listen starts the proxy.
func (s *actual) listen() error {
	target, _, err := rest.DefaultServerUrlFor(s.config)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(s.config)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path})
			r.Out.Header.Del("Authorization") // The transport has the administrator's.
			r.Out.Header.Del("Accept-Encoding")
		},
		Transport:     s.authors.transport("", transport),
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if wire.IsTrue(r.Request.URL.Query()["watch"]) && r.StatusCode == http.StatusOK {
				s.count(1, 0)
				r.Body = &counted{r.Body, sync.OnceFunc(func() { s.count(-1, 1) })}
			}
			return nil
		},
	}
	l, identity, err := apiserver.ListenLoopback()
	if err != nil {
		return err
	}
	var names map[string]string
	s.tokens, names = s.setup.tokens()
	s.ca, s.url = identity.CA, "https://"+l.Addr().String()
	s.http = &http.Server{Handler: apiserver.RequireTokens(names, s.setup.wrap(proxy)), TLSConfig: identity.ServerConfig()}
	s.running.Go(func() { s.fail(s.http.ServeTLS(l, "", "")) })
	return nil
}

func (s *actual) count(open, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.ended = s.open+open, s.ended+ended
}

// fail notes an error that ends the play, and not the end of the play.
func (s *actual) fail(err error) {
	if err == nil || s.ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// local is the configuration of a client in this process.
func (s *actual) local(by string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return s.authors.transport(by, rt) })
	return config
}

func (s *actual) User() *rest.Config         { return s.local(record.ByWorkload) }
func (s *actual) Play(context.Context) error { return nil } // It has no storm.
func (s *actual) Quiet() bool                { return s.cluster == nil || s.cluster.Quiet() }
func (s *actual) Lags() []apiserver.Lag      { return nil } // kube-apiserver does not tell

func (s *actual) Watches() (open, ended int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.ended, s.failed
}

func (s *actual) Close() error {
	var err error
	if s.http != nil {
		err = s.http.Close()
	}
	if s.stop == nil {
		err = errors.Join(err, s.clean())
	}
	s.cancel()
	s.running.Wait()
	if s.stop != nil {
		err = errors.Join(err, s.stop())
	}
	return errors.Join(s.failed, err)
}

// counted is the body of a watch.
type counted struct {
	io.ReadCloser
	ended func()
}

func (c *counted) Close() error {
	c.ended()
	return c.ReadCloser.Close()
}
