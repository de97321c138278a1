package plane

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/e2e/controlplane"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/storm"
)

// watched are the resources whose changes a play on the real control plane records.
var watched = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "pods"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
}

// server is a real control plane as the server of a play: a proxy between the controller and kube-apiserver
// records the controller's requests, and watches of kube-apiserver report the changes. The stand-in for the
// rest of the cluster is that of the simulated server.
type server struct {
	plane   *controlplane.ControlPlane
	setup   controller.Setup
	token   string // of the controller
	cluster *lifecycle.Cluster
	authors *authors
	http    *http.Server
	url     string
	ca      []byte
	cancel  context.CancelFunc
	ended   sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	open, stale int        // watches of the controller
	changed     chan struct{}
	failed      error // of a watch or of the cluster
}

// serve starts a control plane for a play.
func serve(set controller.Setup) (controller.Server, error) {
	if len(set.Storms) > 0 || len(set.Objects) > 0 || len(set.Clients) != 1 {
		return nil, errors.New("plane: the real control plane takes a workload and one replica, no storm and no manifests")
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{setup: set, token: apiserver.NewToken(), authors: newAuthors(), cancel: cancel, changed: make(chan struct{})}
	s.cluster = lifecycle.New(lifecycle.Options{Stages: set.Stages, Seed: set.Seed, Speed: set.Speed, Without: set.Without})
	var err error
	if s.plane, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *server) start(ctx context.Context) error {
	typed, err := kubernetes.NewForConfig(s.plane.Config())
	if err != nil {
		return err
	}
	// Admission wants it for a pod. Its controller does not run.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := typed.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, r := range watched {
		if err := s.follow(ctx, r); err != nil {
			return err
		}
	}
	s.ended.Go(func() { s.fail(s.cluster.Run(ctx, s.local(record.ByLifecycle))) })
	return s.listen()
}

// listen starts the proxy.
func (s *server) listen() error {
	target, err := url.Parse(s.plane.Config().Host)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(s.plane.Config())
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // The transport has the administrator's.
		},
		Transport:     s.authors.transport("", transport),
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if watches(r.Request) && r.StatusCode == http.StatusOK {
				s.count(1, 0)
			}
			return nil
		},
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if watches(r) {
			defer s.count(-1, 1)
		}
		proxy.ServeHTTP(w, r)
	})
	identity, err := apiserver.NewIdentity(time.Now())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.ca, s.url = identity.CA, "https://"+l.Addr().String()
	s.http = &http.Server{Handler: apiserver.RequireTokens(map[string]string{s.token: s.setup.Clients[0]}, s.setup.Wrap(counted)), TLSConfig: identity.ServerConfig()}
	s.ended.Go(func() { s.fail(s.http.ServeTLS(l, "", "")) })
	return nil
}

func watches(r *http.Request) bool {
	return r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"
}

func (s *server) count(open, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.stale = s.open+open, s.stale+ended
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) fail(err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, http.ErrServerClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// follow reports the changes of a resource, the present objects first.
func (s *server) follow(ctx context.Context, r schema.GroupVersionResource) error {
	config := s.plane.Config()
	config.GroupVersion, config.NegotiatedSerializer, config.QPS = new(r.GroupVersion()), scheme.Codecs.WithoutConversion(), -1
	if config.APIPath = "/apis"; r.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	list, err := client.Get().Resource(r.Resource).Do(ctx).Get()
	if err != nil {
		return err
	}
	known, last := map[string]runtime.Object{}, time.Time{}
	report := func(t watch.EventType, object runtime.Object, manifest bool) error {
		m, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		if err != nil {
			return err
		}
		c := apiserver.Change{
			At: time.Now(), By: record.ByManifest, Type: t, Resource: r,
			Key: storm.ObjectKey(m.GetNamespace(), m.GetName()), Version: version, Object: object,
		}
		if before, ok := known[c.Key]; ok {
			c.Before = before
		}
		if known[c.Key] = object; t == watch.Deleted {
			delete(known, c.Key)
		}
		if !manifest {
			a := s.authors.of(m.GetResourceVersion(), pathOf(r, m.GetNamespace(), m.GetName()), t == watch.Deleted || silent(c.Before, object))
			c.By, c.Intended = a.by, a.intended
			if !a.sent.IsZero() {
				c.At = a.sent
			}
		}
		// The order of the log is that of the versions.
		if c.At.Before(last) {
			c.At = last
		}
		if last = c.At; c.Intended.IsZero() {
			c.Intended = c.At
		}
		s.setup.Changed(c)
		s.cluster.Observe(c)
		return nil
	}
	if err := meta.EachListItem(list, func(o runtime.Object) error { return report(watch.Added, o, true) }); err != nil {
		return err
	}
	at := list.(metav1.ListInterface).GetResourceVersion()
	s.ended.Go(func() {
		// kube-apiserver ends watches now and then.
		for ctx.Err() == nil {
			opts := metav1.ListOptions{Watch: true, ResourceVersion: at, AllowWatchBookmarks: true}
			w, err := client.Get().Resource(r.Resource).VersionedParams(&opts, scheme.ParameterCodec).Watch(ctx)
			if err != nil {
				s.fail(fmt.Errorf("watch of %s: %w", r.Resource, err))
				return
			}
			for e := range w.ResultChan() {
				if ctx.Err() != nil {
					return // The end of the play is an error of the watch.
				}
				if e.Type == watch.Error {
					s.fail(fmt.Errorf("watch of %s: %v", r.Resource, e.Object))
					return
				}
				m, err := meta.Accessor(e.Object)
				if err == nil {
					at = m.GetResourceVersion()
					if e.Type != watch.Bookmark {
						err = report(e.Type, e.Object, false)
					}
				}
				if err != nil {
					s.fail(err)
					return
				}
			}
			w.Stop()
		}
	})
	return nil
}

// silent reports whether a change of a pod has a version that no answer has: a binding, or the mark of a pod that is
// deleted at once.
func silent(before, object runtime.Object) bool {
	was, ok := before.(*corev1.Pod)
	if !ok {
		return false
	}
	is := object.(*corev1.Pod)
	return was.Spec.NodeName == "" && is.Spec.NodeName != "" || is.DeletionGracePeriodSeconds != nil && *is.DeletionGracePeriodSeconds == 0
}

// local is the configuration of a client in this process.
func (s *server) local(by string) *rest.Config {
	config := s.plane.Config()
	config.QPS = -1
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return s.authors.transport(by, rt) })
	return config
}

func (s *server) Kubeconfig(string) apiserver.Kubeconfig {
	return apiserver.Kubeconfig{Server: s.url, CA: s.ca, Token: s.token}
}

func (s *server) User() *rest.Config         { return s.local(record.ByWorkload) }
func (s *server) Begin(time.Time)            {}
func (s *server) Play(context.Context) error { return nil }
func (s *server) Quiet() bool                { return s.cluster.Quiet() }
func (s *server) Lags() []record.Lag         { return nil } // kube-apiserver does not tell

func (s *server) Await(ctx context.Context, enough func(open, ended int) bool) error {
	for {
		s.mu.Lock()
		done, changed := enough(s.open, s.stale), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *server) Close() error {
	s.cancel()
	if s.http != nil {
		s.fail(s.http.Close())
	}
	s.ended.Wait()
	s.fail(s.plane.Stop())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// authors tells whose request made a change, from the answers to all writes.
//
// A change counts as visible when its request was sent. A later time, such as the arrival at a watch of this
// process, may be after the controller's answer, whose watch may be faster.
type authors struct {
	mu       sync.Mutex // guards the fields below
	done     *sync.Cond // a write has ended
	next     int
	writing  map[int]struct{}
	versions map[string]author // of answered objects
	// quiet are the last requests whose answer may have no version, by the path of the object.
	quiet map[string]author
}

type author struct {
	by             string
	sent, intended time.Time
}

func newAuthors() *authors {
	a := &authors{writing: map[int]struct{}{}, versions: map[string]author{}, quiet: map[string]author{}}
	a.done = sync.NewCond(&a.mu)
	return a
}

// of returns the author of a change, after the writes that were on their way when it arrived. The author is
// unknown for the changes of kube-apiserver itself.
func (a *authors) of(version, path string, quiet bool) author {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.next
	for a.earlier(before) {
		a.done.Wait()
	}
	if by, ok := a.versions[version]; ok || !quiet {
		return by
	}
	return a.quiet[path]
}

func (a *authors) earlier(than int) bool {
	for n := range a.writing {
		if n < than {
			return true
		}
	}
	return false
}

// transport notes the answers to the writes of a client; an empty one is that of the request's context.
func (a *authors) transport(by string, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		own := author{cmp.Or(by, apiserver.ClientOf(r.Context())), time.Now(), apiserver.IntendedOf(r.Context())}
		a.mu.Lock()
		n := a.next
		a.next++
		a.writing[n] = struct{}{}
		// A patch removes an object with its last finalizer.
		if path, binding := strings.CutSuffix(r.URL.Path, "/binding"); binding || r.Method == http.MethodDelete || r.Method == http.MethodPatch {
			a.quiet[path] = own
		}
		a.mu.Unlock()
		res, body, err := roundTrip(next, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.writing, n)
		a.done.Broadcast()
		version := versionOf(body)
		// A write without a change answers an older version.
		if _, old := a.versions[version]; !old && version != "" {
			a.versions[version] = own
		}
		return res, err
	})
}

// versionOf is the version of an object in JSON or protobuf, empty for other answers.
func versionOf(body []byte) string {
	var object metav1.PartialObjectMetadata
	if text, ok := bytes.CutPrefix(body, []byte("k8s\x00")); ok {
		var wrapped runtime.Unknown
		if wrapped.Unmarshal(text) == nil && wrapped.Kind != "Status" {
			_ = object.Unmarshal(wrapped.Raw) // The metadata is field 1 of every kind.
		}
	} else {
		_ = json.Unmarshal(body, &object)
	}
	return object.ResourceVersion
}

// roundTrip returns the body of the answer, too.
func roundTrip(rt http.RoundTripper, r *http.Request) (*http.Response, []byte, error) {
	res, err := rt.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, err
	}
	read := *res
	read.Body = io.NopCloser(bytes.NewReader(body))
	return &read, body, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// pathOf is the path of an object in the API.
func pathOf(r schema.GroupVersionResource, namespace, name string) string {
	parts := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		parts = []string{"/api", r.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	return strings.Join(append(parts, r.Resource, name), "/")
}
