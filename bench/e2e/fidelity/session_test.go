package fidelity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/yaml"
)

// patience is the time limit for an expected watch event. A missing event is recorded as "nothing".
const patience = 30 * time.Second

// resource is the resource of a call.
type resource struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
}

func core(name, kind string) resource {
	return resource{schema.GroupVersionResource{Version: "v1", Resource: name}, kind, true}
}

var (
	namespaces      = resource{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", false}
	nodes           = resource{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false}
	configMaps      = core("configmaps", "ConfigMap")
	secrets         = core("secrets", "Secret")
	services        = core("services", "Service")
	serviceAccounts = core("serviceaccounts", "ServiceAccount")
	pods            = core("pods", "Pod")
	deployments     = resource{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", true}
	leases          = resource{schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "Lease", true}
	widgets         = resource{schema.GroupVersionResource{Group: "fidelity.watchlab.dev", Version: "v1", Resource: "widgets"}, "Widget", true}
	olderWidgets    = resource{schema.GroupVersionResource{Group: "fidelity.watchlab.dev", Version: "v1beta1", Resource: "widgets"}, "Widget", true}
	definitions     = resource{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "CustomResourceDefinition", false}
)

// Session runs the calls of a question against one server. It records every answer,
// errors included; most questions ignore what client-go returns.
type Session struct {
	ctx       context.Context
	server    *Server
	rec       *recorder
	namespace string
	dynamic   dynamic.Interface
	typed     kubernetes.Interface
	metadata  metadata.Interface
	open      []*stream
	// err is the first error of the question's preparation.
	err error
}

func (a *Session) close() {
	for _, s := range a.open {
		s.Stop()
	}
}

// parse reads an object from YAML. The kind is optional.
func parse(r resource, manifest string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		return nil, fmt.Errorf("%w: %s", err, manifest)
	}
	if u.GetKind() == "" {
		u.SetGroupVersionKind(r.GroupVersion().WithKind(r.kind))
	}
	return u, nil
}

// object parses a question's manifest.
func (a *Session) object(r resource, manifest string) *unstructured.Unstructured {
	u, err := parse(r, manifest)
	if err != nil {
		a.err = err
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return u
}

// given creates an object that a question presupposes, in its namespace. The
// answer is not recorded.
func (a *Session) given(r resource, manifest string) *unstructured.Unstructured {
	return a.givenIn(a.namespace, r, manifest)
}

func (a *Session) givenIn(namespace string, r resource, manifest string) *unstructured.Unstructured {
	if a.err != nil {
		return &unstructured.Unstructured{}
	}
	u := a.object(r, manifest)
	if a.err != nil {
		return u
	}
	var client dynamic.ResourceInterface = a.server.unseen.Resource(r.GroupVersionResource)
	if r.namespaced {
		client = a.server.unseen.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	made, err := client.Create(a.ctx, u, metav1.CreateOptions{})
	if err != nil {
		a.err = err
		return u
	}
	return made
}

// changed patches an object and returns it. The answer is not recorded.
func (a *Session) changed(r resource, name, patch string, subresources ...string) *unstructured.Unstructured {
	if a.err != nil {
		return &unstructured.Unstructured{}
	}
	made, err := a.server.unseen.Resource(r.GroupVersionResource).Namespace(a.namespace).
		Patch(a.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		a.err = err
		return &unstructured.Unstructured{}
	}
	return made
}

// of returns the client of a resource, in the question's namespace if namespaced.
func (a *Session) of(r resource) dynamic.ResourceInterface {
	if !r.namespaced {
		return a.dynamic.Resource(r.GroupVersionResource)
	}
	return a.dynamic.Resource(r.GroupVersionResource).Namespace(a.namespace)
}

func (a *Session) list(r resource, opts metav1.ListOptions) *unstructured.UnstructuredList {
	l, err := a.of(r).List(a.ctx, opts)
	if err != nil {
		l = &unstructured.UnstructuredList{Object: map[string]any{}}
		var refused apierrors.APIStatus
		if errors.As(err, &refused) {
			l.SetContinue(refused.Status().Continue)
		}
	}
	return l
}

func (a *Session) get(r resource, name string, sub ...string) *unstructured.Unstructured {
	return orEmpty(a.of(r).Get(a.ctx, name, metav1.GetOptions{}, sub...))
}

func (a *Session) create(r resource, manifest string, sub ...string) *unstructured.Unstructured {
	return a.createWith(r, manifest, metav1.CreateOptions{}, sub...)
}

func (a *Session) createWith(r resource, manifest string, opts metav1.CreateOptions, sub ...string) *unstructured.Unstructured {
	return orEmpty(a.of(r).Create(a.ctx, a.object(r, manifest), opts, sub...))
}

func (a *Session) update(r resource, u *unstructured.Unstructured, sub ...string) *unstructured.Unstructured {
	return orEmpty(a.of(r).Update(a.ctx, u, metav1.UpdateOptions{}, sub...))
}

func (a *Session) patch(r resource, name string, kind types.PatchType, patch string, sub ...string) *unstructured.Unstructured {
	return a.patchWith(r, name, kind, patch, metav1.PatchOptions{}, sub...)
}

func (a *Session) patchWith(r resource, name string, kind types.PatchType, patch string, opts metav1.PatchOptions, sub ...string) *unstructured.Unstructured {
	return orEmpty(a.of(r).Patch(a.ctx, name, kind, []byte(patch), opts, sub...))
}

// apply does a server-side apply as a field manager.
func (a *Session) apply(r resource, name, manifest, manager string, force bool, sub ...string) *unstructured.Unstructured {
	opts := metav1.PatchOptions{FieldManager: manager, Force: &force}
	return a.patchWith(r, name, types.ApplyPatchType, a.applied(r, manifest), opts, sub...)
}

// applied returns the body of an apply.
func (a *Session) applied(r resource, manifest string) string {
	text, err := a.object(r, manifest).MarshalJSON()
	if err != nil {
		a.err = err
	}
	return string(text)
}

func (a *Session) delete(r resource, name string, opts metav1.DeleteOptions) {
	_ = a.of(r).Delete(a.ctx, name, opts) // The recorder has the answer.
}

func orEmpty(u *unstructured.Unstructured, err error) *unstructured.Unstructured {
	if err != nil || u == nil {
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return u
}

// request sends a request that client-go has no call for. A path without a leading
// "/" is relative to the core resources of the question's namespace.
func (a *Session) request(method, path string, header http.Header, body string, query ...string) {
	if path == "" || path[0] != '/' {
		path = "/api/v1/namespaces/" + a.namespace + "/" + path
	}
	r := a.typed.CoreV1().RESTClient().Verb(method).AbsPath(path).MaxRetries(0)
	for name, values := range header {
		r.SetHeader(name, values...)
	}
	for i := 0; i+1 < len(query); i += 2 {
		r.Param(query[i], query[i+1])
	}
	if body != "" {
		r.Body([]byte(body))
	}
	r.Do(a.ctx) // The recorder has the answer.
}

// header returns one request header.
func header(name string, values ...string) http.Header { return http.Header{name: values} }

// forget makes the server drop its history.
func (a *Session) forget() {
	if a.err == nil && a.server.Forget != nil {
		a.err = a.server.Forget(a.ctx)
	}
}

// aged returns a continue token for the same page at version 2. Clients must not
// look into tokens; the test does, because a token expires only after minutes.
func (a *Session) aged(token string) string {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		a.err = fmt.Errorf("token: %w", err)
		return ""
	}
	var t map[string]any
	if err := json.Unmarshal(text, &t); err != nil {
		a.err = fmt.Errorf("token: %w", err)
		return ""
	}
	t["rv"] = 2
	if text, err = json.Marshal(t); err != nil {
		a.err = err
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// say records a result that the question computes itself.
func (a *Session) say(call string, said map[string]any) {
	a.rec.add(Answer{Call: call, Said: said})
}

// stream is a watch whose events are recorded.
type stream struct {
	watch.Interface
	a *Session
}

// watch starts a watch. If the server refuses it, the stream is empty.
func (a *Session) watch(r resource, opts metav1.ListOptions) *stream {
	w, err := a.of(r).Watch(a.ctx, opts)
	if err != nil {
		w = watch.NewEmptyWatch()
	}
	s := &stream{w, a}
	a.open = append(a.open, s)
	return s
}

// until reads events up to the first one of the named object, or the end of the
// watch, and returns the last object.
func (s *stream) until(name string) *unstructured.Unstructured {
	return s.read(func(t watch.EventType, u *unstructured.Unstructured) bool {
		return u.GetName() == name && t != watch.Bookmark
	})
}

// untilGone reads events up to the deletion of the named object.
func (s *stream) untilGone(name string) *unstructured.Unstructured {
	return s.read(func(t watch.EventType, u *unstructured.Unstructured) bool {
		return u.GetName() == name && t == watch.Deleted
	})
}

// untilBookmark reads events up to a bookmark.
func (s *stream) untilBookmark() *unstructured.Unstructured {
	return s.read(func(t watch.EventType, _ *unstructured.Unstructured) bool { return t == watch.Bookmark })
}

// end reads events up to the end of the watch.
func (s *stream) end() {
	s.read(func(watch.EventType, *unstructured.Unstructured) bool { return false })
}

func (s *stream) read(enough func(watch.EventType, *unstructured.Unstructured) bool) *unstructured.Unstructured {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case e, ok := <-s.ResultChan():
			if !ok {
				s.a.say("watch", map[string]any{"event": "the end"})
				return &unstructured.Unstructured{Object: map[string]any{}}
			}
			u, isObject := e.Object.(*unstructured.Unstructured)
			if !isObject {
				u = &unstructured.Unstructured{Object: asMap(e.Object)}
			}
			s.a.say("watch", map[string]any{"event": string(e.Type), "object": asMap(u)})
			if e.Type == watch.Error || enough(e.Type, u) {
				return u
			}
		case <-late.C:
			s.a.say("watch", map[string]any{"event": "nothing for " + patience.String()})
			return &unstructured.Unstructured{Object: map[string]any{}}
		}
	}
}

// decodes records the object that client-go decodes from another encoding.
func (a *Session) decodes(call string, o runtime.Object, err error) {
	switch {
	case err != nil:
		a.say(call, map[string]any{"error": err.Error()})
		return
	case o == nil:
		return
	}
	a.say(call, map[string]any{"object": asMap(o)})
}

// frames starts a WatchList in a media type and records the first n frames.
func (a *Session) frames(path, accept string, n int) {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	stream, err := a.typed.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).
		Param("watch", "true").Param("sendInitialEvents", "true").Param("allowWatchBookmarks", "true").
		Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).Stream(ctx)
	if err != nil {
		return // The recorder has the answer.
	}
	defer func() { _ = stream.Close() }()
	d := json.NewDecoder(stream)
	d.UseNumber()
	for range n {
		var frame map[string]any
		if err := d.Decode(&frame); err != nil {
			a.say("watch", map[string]any{"event": "the end"})
			return
		}
		a.say("watch", frame)
	}
}

// goOn lists with the continue token of a refused list.
func (a *Session) goOn(r resource, refused *unstructured.UnstructuredList) {
	if token := refused.GetContinue(); token != "" {
		a.list(r, metav1.ListOptions{Limit: 2, Continue: token})
	}
}
