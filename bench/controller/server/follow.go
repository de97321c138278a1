package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// madeObject is an object that was made in the play.
type madeObject struct {
	resource schema.GroupVersionResource
	uid      types.UID
	at       int // number of the object
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// watchable returns all resources that can be listed and watched, each in one version. Those of a group that does not
// answer are left out.
func watchable(d discovery.DiscoveryInterface) (out []schema.GroupVersionResource, err error) {
	lists, err := d.ServerPreferredResources()
	if len(lists) == 0 {
		return nil, fmt.Errorf("resources of the server: %w", err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			// Events are one collection of two groups, and no verdict counts them.
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") && r.Name != "events" {
				out = append(out, version.WithResource(r.Name))
			}
		}
	}
	return out, nil
}

// follow reports the present objects of a resource, and then its changes.
func (s *actual) follow(r schema.GroupVersionResource) error {
	s.mu.Lock()
	known := s.followed[r.GroupResource()]
	s.followed[r.GroupResource()] = true
	s.mu.Unlock()
	if known {
		return nil
	}
	client := s.client.Resource(r)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			if net.IsConnectionRefused(err) { // A Reflector tries again without an end; here the server is gone.
				s.fail(fmt.Errorf("watch of %s: %w", r.GroupResource(), err))
			}
			return w, err
		},
	}, &unstructured.Unstructured{}, 0, nil)
	f := follower{server: s, resource: r}
	present, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.report(watch.Added, nil, o) },
		UpdateFunc: func(old, o any) { f.report(watch.Modified, old, o) },
		DeleteFunc: func(o any) { f.report(watch.Deleted, nil, o) },
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(s.ctx)
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		switch gone := unseen(err); {
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err): // It lists again.
		case gone: // So is its definition, which may come back.
			s.mu.Lock()
			delete(s.followed, r.GroupResource())
			s.mu.Unlock()
			stop(err)
		default:
			s.fail(fmt.Errorf("watch of %s: %w", r.GroupResource(), err))
			stop(err)
		}
	})
	if err != nil {
		return err
	}
	s.running.Go(func() { informer.RunWithContext(ctx) })
	select {
	case <-present.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
	}
	if err = context.Cause(ctx); unseen(err) {
		s.setup.Notify(fmt.Sprintf("changes of %s are not seen: %v", r.GroupResource(), err))
		return nil
	}
	return fmt.Errorf("%s: %w", r.GroupResource(), err)
}

// unseen reports whether a resource cannot be listed and watched.
func unseen(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err)
}

// follower reports the changes of a resource.
type follower struct {
	server   *actual
	resource schema.GroupVersionResource
	last     time.Time // of a change
}

// report reports a change by the objects of an informer. An error ends the play.
func (f *follower) report(t watch.EventType, old, object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	before, _ := old.(*unstructured.Unstructured)
	u := object.(*unstructured.Unstructured)
	switch {
	case t == watch.Deleted:
		before = u
	case before != nil && before.GetResourceVersion() == u.GetResourceVersion():
		return // It was listed again.
	}
	if err := f.change(t, before, u); err != nil {
		f.server.fail(fmt.Errorf("watch of %s: %w", f.resource.GroupResource(), err))
	}
}

// change reports a change, and follows the resource that a definition adds.
func (f *follower) change(t watch.EventType, before, u *unstructured.Unstructured) error {
	s := f.server
	version, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	object := typed(u)
	c := apiserver.Change{
		At: time.Now(), Type: t, Resource: f.resource, Key: storm.ObjectKey(u.GetNamespace(), u.GetName()), Version: version, Object: object,
	}
	if before != nil {
		c.Before = typed(before)
	}
	path := wire.Path{Resource: f.resource, Namespace: u.GetNamespace(), Name: u.GetName()}
	a, ok := s.authors.of(u.GetResourceVersion(), path.String(), t == watch.Deleted || silent(c.Before, object))
	if ok {
		c.At, c.By, c.Intended = a.sent, a.by, a.intended
	}
	// The order of the log is that of the versions.
	if c.At.Before(f.last) {
		c.At = f.last
	}
	if f.last = c.At; c.Intended.IsZero() {
		c.Intended = c.At
	}
	s.note(c, u, ok)
	s.setup.Changed(c)
	if s.cluster != nil {
		s.cluster.Observe(c)
	}
	if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok && t != watch.Deleted {
		return s.followDefined(crd)
	}
	return nil
}

// note remembers what was made in the play.
func (s *actual) note(c apiserver.Change, u *unstructured.Unstructured, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := record.ID{Resource: c.Resource.GroupResource(), Key: c.Key}
	switch {
	case c.Type == watch.Deleted:
		delete(s.made, id)
	case c.Type == watch.Added && ours:
		s.made[id] = madeObject{c.Resource, u.GetUID(), len(s.made)}
	}
}

// followDefined follows the resource of an established definition that is not being deleted.
func (s *actual) followDefined(crd *apiextensionsv1.CustomResourceDefinition) error {
	if crd.DeletionTimestamp != nil || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return nil
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage && v.Served {
			r := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
			// It is established before the first lists find it.
			err := s.await(func() error {
				_, err := s.client.Resource(r).List(s.ctx, metav1.ListOptions{Limit: 1})
				return err
			})
			if err != nil {
				return err
			}
			return s.follow(r)
		}
	}
	return nil
}

// DefinedBy is the resource of a definition.
func DefinedBy(u *unstructured.Unstructured) schema.GroupResource {
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
	return schema.GroupResource{Group: group, Resource: plural}
}

// typed returns an object of its Go type, if there is one.
func typed(u *unstructured.Unstructured) runtime.Object {
	o, err := resources.Scheme.New(u.GroupVersionKind())
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o) != nil {
		return u
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as in the log of the simulated server
	return o
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

// cleanTime is the longest time until a cluster has deleted what was made in a play.
const cleanTime = 2 * time.Minute

// clean deletes what was made in the play, the newest first, without the finalizers of programs that have ended.
func (s *actual) clean() error {
	s.mu.Lock()
	type item struct {
		record.ID
		madeObject
	}
	var all []item
	for id, m := range s.made {
		all = append(all, item{id, m})
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b item) int { return b.at - a.at })
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	for _, o := range all {
		namespace, name, _ := cache.SplitMetaNamespaceKey(o.Key)
		client := s.client.Resource(o.resource).Namespace(namespace)
		err := client.Delete(ctx, name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &o.uid}, PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if err != nil {
			continue // It is gone, or named below.
		}
		if kept, err := client.Get(ctx, name, metav1.GetOptions{}); err == nil && kept.GetUID() == o.uid && len(kept.GetFinalizers()) > 0 {
			kept.SetFinalizers(nil)
			_, _ = client.Update(ctx, kept, metav1.UpdateOptions{})
		}
	}
	// The watches go on, and see them go.
	var left []string
	err := wait.PollUntilContextCancel(ctx, pollPeriod, true, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		left = nil
		for id := range s.made {
			left = append(left, id.String())
		}
		return len(left) == 0, nil
	})
	if err != nil {
		slices.Sort(left)
		return fmt.Errorf("not deleted in %v after the play: %s", cleanTime, strings.Join(left, ", "))
	}
	return nil
}
