package fidelity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Server is a server under comparison.
type Server struct {
	// Name is the server's name in reports, such as "kube-apiserver".
	Name string
	// Forget makes the server drop the history of widgets up to now.
	Forget func(context.Context) error
	config *rest.Config
	// unseen creates the objects that questions presuppose. The recorder records
	// neither its answers nor discovery's.
	unseen    *dynamic.DynamicClient
	discovery *discovery.DiscoveryClient
}

// NewServer returns the server at a client configuration.
func NewServer(name string, config *rest.Config) (*Server, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	// The user agent is the default field manager.
	config.UserAgent = "fidelity"
	config.ContentType = "application/json"
	config.WarningHandler = rest.NoWarnings{}
	unseen, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fidelity: %s: %w", name, err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("fidelity: %s: %w", name, err)
	}
	return &Server{Name: name, config: config, unseen: unseen, discovery: disco}, nil
}

// run runs a question in a new namespace that accepts pods.
func (s *Server) run(ctx context.Context, q Question, namespace string) (_ []Answer, err error) {
	rec := &recorder{}
	config := rest.CopyConfig(s.config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return rec.over(rt) })
	a := &Session{ctx: ctx, server: s, rec: rec, namespace: namespace}
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	a.givenIn("", namespaces, "metadata: {name: "+namespace+"}")
	a.given(serviceAccounts, "metadata: {name: default}")
	if a.err == nil {
		q.Run(a)
	}
	a.close()
	if a.err != nil {
		return nil, fmt.Errorf("%s: %w: %w", s.Name, ErrSetup, a.err)
	}
	return rec.done(), nil
}

// Define creates the custom resource of the questions and waits until it is served.
func (s *Server) Define(ctx context.Context, eventually func(what string, check func() error)) error {
	u, err := parse(definitions, widgetDefinition)
	if err != nil {
		return err
	}
	if _, err := s.unseen.Resource(definitions.GroupVersionResource).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("fidelity: %s: %w", s.Name, err)
	}
	eventually("custom resources are served", func() error {
		_, err := s.unseen.Resource(widgets.GroupVersionResource).List(ctx, metav1.ListOptions{})
		return err
	})
	return nil
}

// Answer is one recorded response or watch event.
type Answer struct {
	// Call is the request: method and path, or "watch" for an event.
	Call string
	// Said is the answer as decoded JSON.
	Said map[string]any
}

// recorder collects answers.
type recorder struct {
	mu sync.Mutex
	// off pauses the recording. Guarded by mu.
	off bool
	// answers are in the order of arrival. Guarded by mu.
	answers []Answer
}

func (r *recorder) done() []Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := newNames()
	for i := range r.answers {
		said, _ := n.normal(r.answers[i].Said).(map[string]any)
		r.answers[i].Call = n.text(r.answers[i].Call)
		r.answers[i].Said = said
	}
	return r.answers
}

func (r *recorder) add(a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.off {
		r.answers = append(r.answers, a)
	}
}

// over records the responses of a transport.
func (r *recorder) over(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return resp, err
		}
		a := Answer{Call: req.Method + " " + short(req), Said: map[string]any{"code": resp.StatusCode}}
		for _, name := range []string{"Content-Type", "Warning", "Allow", "Retry-After"} {
			if v := resp.Header.Values(name); len(v) > 0 {
				a.Said[name] = strings.Join(v, "; ")
			}
		}
		if req.URL.Query().Get("watch") != "" && resp.StatusCode == http.StatusOK {
			// The stream records the events when it reads them.
			r.add(a)
			return resp, nil
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // The body was read completely.
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		switch media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media {
		case "application/json":
			a.Said["body"] = decoded(body)
		case "text/plain", "application/yaml":
			a.Said["body"] = string(body)
		default:
			// client-go decodes other encodings; see Session.decodes.
		}
		r.add(a)
		return resp, nil
	})
}

// roundTripper is a function that implements [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// short returns a request's path without the prefix up to the namespace.
func short(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if i := len(parts) - 1; i > 2 {
		for j, p := range parts {
			if p == "namespaces" && j+2 < len(parts) {
				return strings.Join(parts[j+2:], "/")
			}
		}
	}
	return strings.Join(parts, "/")
}

// decoded returns decoded JSON, or the text of anything else.
func decoded(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		return string(body)
	}
	return x
}

// asMap returns an object as decoded JSON.
func asMap(o any) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		o = u.Object
	}
	text, err := json.Marshal(o)
	if err != nil {
		return map[string]any{"cannot be encoded": err.Error()}
	}
	m, _ := decoded(text).(map[string]any)
	return m
}
