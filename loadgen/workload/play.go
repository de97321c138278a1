package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"watchlab/loadgen/apiserver"
)

// senders is the number of requests at the same time. More wait, and are late: their intended time remains.
const senders = 32

// Create creates the initial objects. An object that exists is an error.
func (w *Workload) Create(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper) error {
	for _, o := range w.initial {
		r, err := resourceOf(client, mapper, o)
		if err == nil {
			_, err = r.Create(ctx, o, metav1.CreateOptions{FieldManager: Manager})
		}
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", w.Name, o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Play sends the requests at their times, counted from now and divided by speed. The intended time of a
// request is in its context ([apiserver.WithIntended]). Requests of one object keep their order. A change or
// a deletion of an object that is gone does nothing. Play returns after the last answer; the error is ctx's,
// or has the first failed request.
func (w *Workload) Play(ctx context.Context, speed float64, client dynamic.Interface, mapper meta.RESTMapper) error {
	began := time.Now()
	group, sending := errgroup.WithContext(ctx)
	slots := make(chan struct{}, senders)
	last := map[*unstructured.Unstructured]chan struct{}{} // closed after the last request of an object
	for i := range w.actions {
		a := &w.actions[i]
		due := began.Add(time.Duration(float64(a.At) / speed))
		select {
		case <-time.After(time.Until(due)):
		case <-sending.Done():
			return cmp.Or(group.Wait(), context.Cause(ctx))
		}
		earlier, done := last[a.Object], make(chan struct{})
		last[a.Object] = done
		group.Go(func() error {
			defer close(done)
			if earlier != nil {
				<-earlier
			}
			slots <- struct{}{} // Not before: a slow object delays no other.
			defer func() { <-slots }()
			if err := a.send(apiserver.WithIntended(sending, due), client, mapper); err != nil && sending.Err() == nil {
				return fmt.Errorf("%s: %s %s %s: %w", w.Name, a.Verb, a.Object.GetKind(), a.Object.GetName(), err)
			}
			return nil
		})
	}
	return cmp.Or(group.Wait(), context.Cause(ctx))
}

// Keep sends the changes without an end, counted from now and divided by speed, until ctx ends. They reach the objects in
// turn. One that fails is left out: its object may be gone.
func (w *Workload) Keep(ctx context.Context, speed float64, client dynamic.Interface, mapper meta.RESTMapper) {
	began := time.Now()
	var wg sync.WaitGroup
	for _, k := range w.kept {
		wg.Go(func() {
			for n := 0; ; n++ {
				due := began.Add(time.Duration(float64(k.time(n)) / speed))
				select {
				case <-time.After(time.Until(due)):
				case <-ctx.Done():
					return
				}
				i := n % len(k.objects)
				for _, patch := range k.patches(n, i, k.objects[i].Object) {
					a := Action{Verb: Change, Object: k.objects[i], Patch: patch, Subresource: k.Subresource}
					_ = a.send(apiserver.WithIntended(ctx, due), client, mapper)
				}
			}
		})
	}
	wg.Wait()
}

func (a *Action) send(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper) error {
	r, err := resourceOf(client, mapper, a.Object)
	if err != nil {
		return err
	}
	switch a.Verb {
	case Create:
		return a.create(ctx, r)
	case Change:
		now := time.Now().UTC().Format(metav1.RFC3339Micro)
		filled := Fill(a.Patch, func(s string) string { return strings.ReplaceAll(s, "{now}", now) })
		var patch []byte
		if patch, err = json.Marshal(filled); err != nil {
			return err
		}
		var subresources []string
		if a.Subresource != "" {
			subresources = append(subresources, a.Subresource)
		}
		kind := types.MergePatchType
		if _, operations := a.Patch.([]any); operations {
			kind = types.JSONPatchType
		}
		_, err = r.Patch(ctx, a.Object.GetName(), kind, patch, metav1.PatchOptions{FieldManager: Manager}, subresources...)
	case Delete:
		opts := metav1.DeleteOptions{}
		if a.Propagation != "" {
			opts.PropagationPolicy = new(metav1.DeletionPropagation(a.Propagation))
		}
		err = r.Delete(ctx, a.Object.GetName(), opts)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// create waits for the end of an object of the same name that a finalizer keeps, as a user does.
func (a *Action) create(ctx context.Context, r dynamic.ResourceInterface) error {
	for {
		_, err := r.Create(ctx, a.Object, metav1.CreateOptions{FieldManager: Manager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if kept, getErr := r.Get(ctx, a.Object.GetName(), metav1.GetOptions{}); getErr == nil && kept.GetDeletionTimestamp() == nil {
			return err
		}
		select {
		case <-time.After(terminating):
		case <-ctx.Done():
			return err
		}
	}
}

// terminating is the time between two looks at an object that a finalizer keeps.
const terminating = 50 * time.Millisecond

// resourceOf returns the client of an object's resource.
func resourceOf(client dynamic.Interface, mapper meta.RESTMapper, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client.Resource(mapping.Resource), nil
	}
	return client.Resource(mapping.Resource).Namespace(cmp.Or(o.GetNamespace(), metav1.NamespaceDefault)), nil
}
