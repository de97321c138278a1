package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// This file follows Kubernetes' garbage collector (pkg/controller/garbagecollector, v1.37): a dependent goes
// when no owner remains; an owner that is deleted in the foreground stays until no dependent blocks it; one
// that orphans stays until no dependent names it.

// errScope is the error of a cluster-scoped object that names an owner in a namespace.
var errScope = errors.New("cluster-scoped objects cannot refer to namespaced owners")

// own updates the index of dependents.
func (c *Cluster) own(o *object, m metav1.Object) {
	if o.meta != nil {
		c.disown(o)
	}
	for _, ref := range m.GetOwnerReferences() {
		if c.owned[ref.UID] == nil {
			c.owned[ref.UID] = map[types.UID]*object{}
		}
		c.owned[ref.UID][m.GetUID()] = o
	}
}

// disown takes an object from its owners, which may have waited for that.
func (c *Cluster) disown(o *object) {
	for _, ref := range o.meta.GetOwnerReferences() {
		delete(c.owned[ref.UID], o.meta.GetUID())
		if owner := c.objects[ref.UID]; owner != nil {
			c.finish(owner)
		}
	}
}

// forget drops an object that is gone. Its dependents follow.
func (c *Cluster) forget(o *object) {
	uid := o.meta.GetUID()
	c.disown(o)
	delete(c.objects, uid)
	delete(c.unresolved, o)
	delete(c.pending, o)
	for _, d := range c.owned[uid] {
		c.plan(d, "collection", c.about(collecting), func(ctx context.Context) error { return c.release(ctx, d) })
	}
	delete(c.owned, uid)
	c.nodes = slices.DeleteFunc(c.nodes, func(node *object) bool { return node == o })
}

// collect looks at an object after a change. The owners of a storm's objects may be outside of the storm:
// only those that clients have written need owners that exist.
func (c *Cluster) collect(o *object, written bool) {
	c.finish(o)
	if !written || o.storm || o.meta.GetDeletionTimestamp() != nil {
		return
	}
	for _, ref := range o.meta.GetOwnerReferences() {
		if owner, err := c.resolve(o, ref); err != nil || owner == nil || waits(owner, metav1.FinalizerDeleteDependents) {
			c.plan(o, "collection", c.about(collecting), func(ctx context.Context) error { return c.release(ctx, o) })
		}
	}
}

// resolve returns the owner that a reference of an object means, or nil if there is none: kind, name and uid
// are those of the reference, and a namespace that of the object. A kind that is not served is an error.
func (c *Cluster) resolve(o *object, ref metav1.OwnerReference) (*object, error) {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	owner := c.objects[ref.UID]
	if owner != nil && (owner.kind.GroupKind() != kind.GroupKind() || owner.meta.GetName() != ref.Name || elsewhere(owner, o)) {
		owner = nil
	}
	if owner != nil && owner.kind == kind {
		return owner, nil
	}
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace && o.meta.GetNamespace() == "" {
		err = errScope
	}
	return owner, err
}

// elsewhere reports whether an owner is in a namespace that is not the dependent's.
func elsewhere(owner, o *object) bool {
	return owner.meta.GetNamespace() != "" && owner.meta.GetNamespace() != o.meta.GetNamespace()
}

// redefine looks again at the objects whose owners had an unknown kind, after a definition has changed.
func (c *Cluster) redefine() {
	c.mapper.Reset()
	for o := range c.unresolved {
		c.plan(o, "collection", c.about(collecting), func(ctx context.Context) error { return c.release(ctx, o) })
	}
	clear(c.unresolved)
}

func waits(o *object, finalizer string) bool {
	return o.meta.GetDeletionTimestamp() != nil && slices.Contains(o.meta.GetFinalizers(), finalizer)
}

// release deletes a dependent without owners. With owners left, it drops the references to the others: those
// that are gone, and those that wait for their dependents. An object with an owner of an unknown kind stays.
func (c *Cluster) release(ctx context.Context, o *object) error {
	refs, uid := o.meta.GetOwnerReferences(), o.meta.GetUID()
	if len(refs) == 0 || o.meta.GetDeletionTimestamp() != nil {
		return nil
	}
	var solid []metav1.OwnerReference
	var unknown error
	waiting := false
	for _, ref := range refs {
		if owner := c.objects[ref.UID]; owner != nil && elsewhere(owner, o) && !o.reported[ref.UID] {
			if o.reported == nil {
				o.reported = map[types.UID]bool{}
			}
			o.reported[ref.UID] = true
			message := fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				ref.APIVersion, ref.Kind, o.meta.GetNamespace(), ref.Name, ref.UID, o.meta.GetNamespace())
			if err := c.event(ctx, o, "garbage-collector-controller", corev1.EventTypeWarning, "OwnerRefInvalidNamespace", message); err != nil {
				return err
			}
		}
		switch owner, err := c.resolve(o, ref); {
		case err != nil:
			unknown = err
		case owner == nil:
		case waits(owner, metav1.FinalizerDeleteDependents):
			waiting = true
		default:
			solid = append(solid, ref)
		}
	}
	switch {
	case unknown != nil:
		if !errors.Is(unknown, errScope) {
			c.unresolved[o] = true
		}
		return nil
	case len(solid) == len(refs):
		return nil
	case len(solid) > 0:
		return c.patchMeta(ctx, o, o.meta.GetResourceVersion(), "ownerReferences", solid)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case waiting && len(c.owned[uid]) > 0:
		policy = metav1.DeletePropagationForeground
		// A circle of objects that block each other would never end.
		for _, d := range c.owned[uid] {
			if !waits(d, metav1.FinalizerDeleteDependents) {
				continue
			}
			free := slices.Clone(refs)
			for i := range free {
				free[i].BlockOwnerDeletion = new(bool)
			}
			if err := c.patchMeta(ctx, o, o.meta.GetResourceVersion(), "ownerReferences", free); err != nil {
				return err
			}
			break
		}
	case slices.Contains(o.meta.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(o.meta.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return c.resource(o).Delete(ctx, o.meta.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
	})
}

// finish goes on with an owner that waits for its dependents.
func (c *Cluster) finish(o *object) {
	switch {
	case o.gone || c.off(Collector):
	case waits(o, metav1.FinalizerOrphanDependents):
		c.plan(o, "orphaning", c.about(collecting), func(ctx context.Context) error { return c.orphan(ctx, o) })
	case waits(o, metav1.FinalizerDeleteDependents):
		c.plan(o, "foreground deletion", c.about(collecting), func(ctx context.Context) error { return c.foreground(ctx, o) })
	}
}

func (c *Cluster) foreground(ctx context.Context, o *object) error {
	if !waits(o, metav1.FinalizerDeleteDependents) {
		return nil
	}
	uid := o.meta.GetUID()
	blocked := false
	for _, d := range c.owned[uid] {
		blocks := slices.ContainsFunc(d.meta.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.UID == uid && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
		})
		blocked = blocked || blocks
		if err := c.release(ctx, d); err != nil && !harmless(err) {
			return err
		}
	}
	if blocked {
		return nil // The end of the last dependent continues.
	}
	return c.dropFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
}

func (c *Cluster) orphan(ctx context.Context, o *object) error {
	if !waits(o, metav1.FinalizerOrphanDependents) {
		return nil
	}
	uid := o.meta.GetUID()
	for _, d := range c.owned[uid] {
		left := slices.DeleteFunc(slices.Clone(d.meta.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == uid })
		if err := c.patchMeta(ctx, d, d.meta.GetResourceVersion(), "ownerReferences", left); err != nil {
			if harmless(err) {
				c.plan(o, "orphaning", c.about(collecting), func(ctx context.Context) error { return c.orphan(ctx, o) })
				return nil
			}
			return err
		}
	}
	return c.dropFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}

func (c *Cluster) dropFinalizer(ctx context.Context, o *object, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(o.meta.GetFinalizers()), func(f string) bool { return f == finalizer })
	return c.patchMeta(ctx, o, o.meta.GetResourceVersion(), "finalizers", left)
}

// patchMeta replaces a list of the metadata, if the object is still the known one, in the version if there is one.
func (c *Cluster) patchMeta(ctx context.Context, o *object, version, field string, list any) error {
	fields := map[string]any{field: list, "uid": o.meta.GetUID()}
	if version != "" {
		fields["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	_, err = c.resource(o).Patch(ctx, o.meta.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
