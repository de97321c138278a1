package lifecycle

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// This file follows Kubernetes' garbage collector (pkg/controller/garbagecollector, v1.36): a dependent goes
// when no owner remains; an owner that is deleted in the foreground stays until no dependent blocks it; one
// that orphans stays until no dependent names it.

// own updates the index of dependents. Owners that the object had may have waited for it.
func (c *Cluster) own(o *object, m metav1.Object) {
	uid := m.GetUID()
	if o.meta != nil {
		for _, ref := range o.meta.GetOwnerReferences() {
			delete(c.owned[ref.UID], uid)
			if owner := c.objects[ref.UID]; owner != nil {
				c.finish(owner)
			}
		}
	}
	for _, ref := range m.GetOwnerReferences() {
		if c.owned[ref.UID] == nil {
			c.owned[ref.UID] = map[types.UID]*object{}
		}
		c.owned[ref.UID][uid] = o
	}
}

// forget drops an object that is gone. Its dependents follow, and its owners may have waited for it.
func (c *Cluster) forget(o *object) {
	uid := o.meta.GetUID()
	for _, ref := range o.meta.GetOwnerReferences() {
		delete(c.owned[ref.UID], uid)
		if owner := c.objects[ref.UID]; owner != nil {
			c.finish(owner)
		}
	}
	delete(c.objects, uid)
	for _, d := range c.owned[uid] {
		c.plan(d, "collection", c.about(collecting), func(ctx context.Context) error { return c.release(ctx, d) })
	}
	delete(c.owned, uid)
	if i := slices.Index(c.nodes, o); i >= 0 {
		c.nodes = slices.Delete(c.nodes, i, i+1)
	}
}

// collect looks at an object after a change. The owners of a storm's objects may be outside of the storm:
// only those that clients have written need owners that exist.
func (c *Cluster) collect(o *object, written bool) {
	c.finish(o)
	if !written || o.storm || len(o.meta.GetOwnerReferences()) == 0 || o.meta.GetDeletionTimestamp() != nil {
		return
	}
	if slices.ContainsFunc(o.meta.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return !c.lives(r) }) {
		c.plan(o, "collection", c.about(collecting), func(ctx context.Context) error { return c.release(ctx, o) })
	}
}

// lives reports whether an owner exists. One that waits for its dependents counts as deleted.
func (c *Cluster) lives(ref metav1.OwnerReference) bool {
	owner := c.objects[ref.UID]
	return owner != nil && !waits(owner, metav1.FinalizerDeleteDependents)
}

func waits(o *object, finalizer string) bool {
	return o.meta.GetDeletionTimestamp() != nil && slices.Contains(o.meta.GetFinalizers(), finalizer)
}

// release deletes a dependent without owners. With owners left, it drops the references to the others: those
// that are gone, and those that wait for their dependents.
func (c *Cluster) release(ctx context.Context, o *object) error {
	refs := o.meta.GetOwnerReferences()
	if len(refs) == 0 || o.meta.GetDeletionTimestamp() != nil {
		return nil
	}
	if slices.ContainsFunc(refs, c.lives) {
		left := slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool { return !c.lives(r) })
		if len(left) == len(refs) {
			return nil
		}
		return c.patchMeta(ctx, o, "ownerReferences", left)
	}
	policy := metav1.DeletePropagationBackground
	waiting := slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return c.objects[r.UID] != nil })
	switch {
	case slices.Contains(o.meta.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(o.meta.GetFinalizers(), metav1.FinalizerDeleteDependents), waiting && len(c.owned[o.meta.GetUID()]) > 0:
		policy = metav1.DeletePropagationForeground
	}
	return c.resource(o).Delete(ctx, o.meta.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: new(o.meta.GetUID())},
	})
}

// finish goes on with an owner that waits for its dependents.
func (c *Cluster) finish(o *object) {
	switch {
	case o.gone:
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
		if err := c.patchMeta(ctx, d, "ownerReferences", left); err != nil {
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
	return c.patchMeta(ctx, o, "finalizers", left)
}

// patchMeta replaces a list of the metadata, if the object is still the known one.
func (c *Cluster) patchMeta(ctx context.Context, o *object, field string, list any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		field: list, "uid": o.meta.GetUID(), "resourceVersion": o.meta.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	_, err = c.resource(o).Patch(ctx, o.meta.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
