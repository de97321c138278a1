package fidelity

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var deletes = []Question{
	{Title: "an object, twice", Run: func(a *Session) {
		several(a, 1)
		a.delete(configMaps, "a", metav1.DeleteOptions{})
		a.get(configMaps, "a")
		a.delete(configMaps, "a", metav1.DeleteOptions{})
	}},
	{Title: "kinds whose answer is the object, or a status", Run: func(a *Session) {
		a.given(serviceAccounts, "metadata: {name: a}")
		a.given(secrets, "{metadata: {name: a}, type: Opaque}")
		a.given(leases, "{metadata: {name: a}, spec: {holderIdentity: me}}")
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.given(deployments, aDeployment("a"))
		for _, r := range []resource{serviceAccounts, secrets, leases, widgets, deployments} {
			a.delete(r, "a", metav1.DeleteOptions{})
		}
	}},
	{Title: "with true preconditions", Run: func(a *Session) {
		u := a.given(configMaps, "metadata: {name: a}")
		uid, version := u.GetUID(), u.GetResourceVersion()
		a.delete(configMaps, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	}},
	{Title: "with false preconditions", Run: func(a *Session) {
		u := a.given(configMaps, "metadata: {name: a}")
		version := u.GetResourceVersion()
		a.changed(configMaps, "a", `{"data":{"k":"w"}}`)
		a.delete(configMaps, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("11111111-2222-3333-4444-555555555555"))}})
		a.delete(configMaps, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	}},
	{Title: "with a finalizer: marked, then deleted without it", Run: func(a *Session) {
		a.given(configMaps, "metadata: {name: a, finalizers: [example.com/hold]}")
		w := a.watch(configMaps, metav1.ListOptions{})
		a.delete(configMaps, "a", metav1.DeleteOptions{})
		a.get(configMaps, "a")
		a.delete(configMaps, "a", metav1.DeleteOptions{})
		a.patch(configMaps, "a", mergePatch, `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`)
		a.patch(configMaps, "a", mergePatch, `{"data":{"still":"writable"}}`)
		a.patch(configMaps, "a", mergePatch, `{"metadata":{"finalizers":null}}`)
		a.get(configMaps, "a")
		w.untilGone("a")
	}},
	{Title: "with a finalizer, of a kind that has a generation", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a, finalizers: [example.com/hold]}, spec: {size: small}}")
		a.delete(widgets, "a", metav1.DeleteOptions{})
		a.patch(widgets, "a", mergePatch, `{"metadata":{"finalizers":null}}`)
		a.get(widgets, "a")
	}},
	{Title: "dry run", Run: func(a *Session) {
		several(a, 1)
		a.delete(configMaps, "a", metav1.DeleteOptions{DryRun: dryRun})
		a.get(configMaps, "a")
		a.given(configMaps, "metadata: {name: b, finalizers: [example.com/hold]}")
		a.delete(configMaps, "b", metav1.DeleteOptions{DryRun: dryRun})
		a.get(configMaps, "b")
	}},
	{Title: "propagation: background", Run: func(a *Session) {
		several(a, 1)
		a.delete(configMaps, "a", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		a.get(configMaps, "a")
	}},
	{Title: "propagation: foreground and orphan leave it to the garbage collector", Run: func(a *Session) {
		several(a, 2)
		a.delete(configMaps, "a", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
		a.get(configMaps, "a")
		a.delete(configMaps, "b", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
		a.get(configMaps, "b")
	}, Why: "the simulated server has no garbage collector to remove the finalizer: the object is deleted at once, and its dependents stay"},
	{Title: "propagation: unknown, and together with orphanDependents", Run: func(a *Session) {
		several(a, 1)
		a.delete(configMaps, "a", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletionPropagation("Sideways"))})
		a.request("DELETE", "configmaps/a", nil, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","orphanDependents":true}`)
	}},
	{Title: "an unbound pod", Run: func(a *Session) {
		a.given(pods, aPod("a", ""))
		a.delete(pods, "a", metav1.DeleteOptions{})
		a.get(pods, "a")
	}},
	{Title: "a bound pod: grace periods", Run: func(a *Session) {
		a.given(pods, aPod("a", "n1"))
		a.delete(pods, "a", metav1.DeleteOptions{})
		a.get(pods, "a")
		a.delete(pods, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		a.get(pods, "a")
		a.given(pods, aPod("b", "n1"))
		a.delete(pods, "b", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](-1)})
	}, Why: "the simulated server has no kubelet: a pod is deleted at once"},
	{Title: "a pod with a grace period of 0", Run: func(a *Session) {
		a.given(pods, aPod("a", "n1"))
		a.delete(pods, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		a.get(pods, "a")
	}},
	{Title: "options in the query, in the body, in an invalid body", Run: func(a *Session) {
		several(a, 3)
		a.request("DELETE", "configmaps/a", nil, "", "gracePeriodSeconds", "0", "propagationPolicy", "Background")
		a.request("DELETE", "configmaps/b", nil, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`)
		a.request("DELETE", "configmaps/c", nil, `nonsense`)
	}},
	{Title: "options of another kind", Run: func(a *Session) {
		several(a, 1)
		a.request("DELETE", "configmaps/a", nil, `{"kind":"ConfigMap","apiVersion":"v1"}`)
	}, Why: "the message names a position in kube-apiserver's sources"},
	{Title: "deletecollection by a label", Run: func(a *Session) {
		several(a, 4)
		w := a.watch(configMaps, metav1.ListOptions{ResourceVersion: a.list(configMaps, metav1.ListOptions{}).GetResourceVersion(), LabelSelector: "parity=0"})
		_ = a.of(configMaps).DeleteCollection(a.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "parity=0"})
		a.list(configMaps, metav1.ListOptions{})
		w.untilGone("c")
	}},
	{Title: "deletecollection: by a field, of all, of none, dry run, with finalizers", Run: func(a *Session) {
		several(a, 3)
		collection := func(opts metav1.DeleteOptions, list metav1.ListOptions) {
			_ = a.of(configMaps).DeleteCollection(a.ctx, opts, list)
		}
		collection(metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=b"})
		collection(metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		a.list(configMaps, metav1.ListOptions{})
		a.given(configMaps, "metadata: {name: held, finalizers: [example.com/hold]}")
		collection(metav1.DeleteOptions{}, metav1.ListOptions{})
		collection(metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "none"})
		a.list(configMaps, metav1.ListOptions{})
	}},
	{Title: "deletecollection of all namespaces", Run: func(a *Session) {
		a.request("DELETE", "/api/v1/configmaps", nil, "")
	}},
}
