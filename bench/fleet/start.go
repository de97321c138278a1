package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// PodMonitors reports whether the cluster knows the kind PodMonitor.
func (f *Fleet) PodMonitors() (bool, error) {
	_, err := f.mapper.RESTMapping(schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}, "v1")
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// Start creates a run with about ten requests. It returns when the API server has all
// objects; the pods start later. The error wraps [ErrExists] for an existing run, which
// stays unchanged. After any other error Start deletes the objects that it created.
func (f *Fleet) Start(ctx context.Context, s Spec) error {
	objects, err := Build(s)
	if err != nil {
		return err
	}
	if objects, err = f.spareNamespace(ctx, s, objects); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := f.nameFree(ctx, s); err != nil {
		return err
	}
	ref := s.Ref()
	isClaim := func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "ConfigMap" && u.GetName() == ref.object("")
	}
	// Order: namespace, ConfigMap (the claim), the rest.
	var first, rest []*unstructured.Unstructured
	for _, u := range objects {
		if u.GetKind() == "Namespace" || isClaim(u) {
			first = append(first, u)
		} else {
			rest = append(rest, u)
		}
	}
	claimed := false
	for _, u := range first {
		if !isClaim(u) {
			if err := f.apply(ctx, u); err != nil {
				return err
			}
			continue
		}
		if err := f.create(ctx, u); err != nil {
			if apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("%w: %s", ErrExists, ref)
			}
			return err
		}
		claimed = true
	}
	if !claimed {
		return fmt.Errorf("%w %q: ConfigMap %s is missing", ErrOverlay, s.Overlay, ref.object(""))
	}
	for _, u := range rest {
		if err := f.apply(ctx, u); err != nil {
			// This run owns the claim, so all objects of the run are its own.
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			return errors.Join(err, f.Clean(clean, ref))
		}
	}
	return nil
}

// undoLimit is the timeout for deleting a run that failed to start.
const undoLimit = time.Minute

// spareNamespace removes the Namespace from objects if it exists with another owner.
func (f *Fleet) spareNamespace(ctx context.Context, s Spec, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	ns, err := f.client.CoreV1().Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return objects, nil
	case err != nil:
		return nil, err
	case ns.DeletionTimestamp != nil:
		return nil, fmt.Errorf("namespace %s is being deleted", s.Namespace)
	case ns.Labels[nameLabel] == appName:
		return objects, nil
	}
	var kept []*unstructured.Unstructured
	for _, u := range objects {
		if u.GetKind() != "Namespace" || u.GetName() != s.Namespace {
			kept = append(kept, u)
		}
	}
	return kept, nil
}

// nameFree rejects the name of a run with remaining objects. In mode cluster, writers
// use cluster-scoped objects, so the name must be free in all namespaces.
func (f *Fleet) nameFree(ctx context.Context, s Spec) error {
	ref := s.Ref()
	left, err := f.client.CoreV1().ConfigMaps(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ref.selector(), Limit: 1})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if len(left.Items) > 0 {
		return fmt.Errorf("%w: %s", ErrExists, ref)
	}
	if s.Plan.Mode != ModeCluster {
		return nil
	}
	roles, err := f.client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: ref.selector(), Limit: 1})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if len(roles.Items) > 0 {
		return fmt.Errorf("%w: %s in namespace %s; mode %s uses a name for the whole cluster",
			ErrExists, ref.Run, roles.Items[0].Labels[NamespaceLabel], ModeCluster)
	}
	spaces, err := f.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: s.Plan.WrittenBy(), Limit: 1})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if len(spaces.Items) > 0 {
		return fmt.Errorf("%w: namespace %s belongs to an earlier run %s", ErrExists, spaces.Items[0].Name, ref.Run)
	}
	return nil
}

// resource returns the client for the kind of u.
func (f *Fleet) resource(u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := u.GroupVersionKind()
	m, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("fleet: %s %s: %w", kind.Kind, u.GetName(), err)
	}
	client := f.dynamic.Resource(m.Resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return client.Namespace(u.GetNamespace()), nil
	}
	return client, nil
}

// apply applies an object with strict field validation.
func (f *Fleet) apply(ctx context.Context, u *unstructured.Unstructured) error {
	client, err := f.resource(u)
	if err != nil {
		return err
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	force := true
	_, err = client.Patch(ctx, u.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: Manager, Force: &force, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

func (f *Fleet) create(ctx context.Context, u *unstructured.Unstructured) error {
	client, err := f.resource(u)
	if err != nil {
		return err
	}
	_, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: Manager, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
