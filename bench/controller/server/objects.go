package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/manifest"
)

// servedTime is the longest time from the creation of a definition until its resource is served.
const servedTime = time.Minute

// writer writes to a real server what a simulated one takes as it is: it leaves out what the server sets, names owners by
// their new uids, and writes a status by its subresource.
type writer struct {
	client dynamic.Interface
	uids   map[types.UID]types.UID // new ones by those in manifests
	// collected: a garbage collector of a cluster would delete what has an owner that does not exist.
	collected bool
}

// create makes the objects that exist before the storm: owners before what they own.
func (s *actual) create() error {
	client, err := dynamic.NewForConfig(s.local(record.ByManifest))
	if err != nil {
		return err
	}
	w := &writer{client, map[types.UID]types.UID{}, s.stop == nil}
	for _, name := range s.setup.Namespaces {
		if err := s.ensure(w, name); err != nil {
			return err
		}
	}
	objects := manifest.Ordered(s.setup.Objects)
	waiting := map[types.UID]bool{} // objects that do not exist yet
	for _, o := range objects {
		if m, err := meta.Accessor(o.Object); err == nil && m.GetUID() != "" {
			waiting[m.GetUID()] = true
		}
	}
	for len(objects) > 0 {
		var later []manifest.Object
		for _, o := range objects {
			u, err := o.Unstructured()
			if err == nil && len(later) < len(objects)-1 && slices.ContainsFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return waiting[r.UID] }) {
				later = append(later, o)
				continue
			}
			if err == nil {
				delete(waiting, u.GetUID())
				err = s.createOne(w, u.DeepCopy())
			}
			if err != nil {
				return manifest.Bad("manifests", "%s:%d: %w", o.Source, o.Line, err)
			}
		}
		objects = later
	}
	return nil
}

// createOne creates an object, and waits until what a definition defines is served.
func (s *actual) createOne(w *writer, u *unstructured.Unstructured) error {
	mapping, err := s.client.Mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && u.GetNamespace() == "" {
		u.SetNamespace(metav1.NamespaceDefault)
	}
	if err := s.ensure(w, u.GetNamespace()); err != nil {
		return err
	}
	if err := w.create(s.ctx, mapping.Resource, u); err != nil || mapping.Resource != definitions {
		return err
	}
	// Its watch follows what it defines, once that is served. Discovery may have it later.
	r := DefinedBy(u)
	return s.await(func() error {
		s.client.Mapper.Reset()
		_, err := s.client.Mapper.ResourceFor(r.WithVersion(""))
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && !s.followed[r] {
			err = fmt.Errorf("%s is not served", r)
		}
		return err
	})
}

// await tries until there is no error, for as long as a definition may take to be served.
func (s *actual) await(try func() error) error {
	var err error
	_ = wait.PollUntilContextTimeout(s.ctx, pollPeriod, servedTime, true, func(context.Context) (bool, error) {
		err = try()
		return err == nil, nil
	})
	return cmp.Or(s.ctx.Err(), err)
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// ensure makes a namespace unless it exists.
func (s *actual) ensure(w *writer, name string) error {
	if name == "" {
		return nil
	}
	_, err := s.client.Resource(namespaces).Get(s.ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName(name)
	return w.create(s.ctx, namespaces, u)
}

// create makes an object with its status, and changes u. One that is there stays, as default and kube-system do.
func (w *writer) create(ctx context.Context, r schema.GroupVersionResource, u *unstructured.Unstructured) error {
	old := u.GetUID()
	w.renew(u)
	client := w.client.Resource(r).Namespace(u.GetNamespace())
	made, err := client.Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = client.Get(ctx, u.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	if w.uids[old] = made.GetUID(); u.GetName() == "" {
		u.SetName(made.GetName())
	}
	status, ok := u.Object["status"].(map[string]any)
	if !ok || len(status) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, u.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // The resource has no such subresource.
	}
	return err
}

// renew leaves out what the server sets, and names the owners as the server knows them.
func (w *writer) renew(u *unstructured.Unstructured) {
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(u.Object, "metadata", name)
	}
	var refs []metav1.OwnerReference
	for _, ref := range u.GetOwnerReferences() {
		uid, known := w.uids[ref.UID]
		if known {
			ref.UID = uid
		}
		if known || !w.collected {
			refs = append(refs, ref)
		}
	}
	u.SetOwnerReferences(refs)
}
