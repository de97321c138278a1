package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Resources of a run in the order of deletion. Jobs come first, as they create pods. The plan's
// ConfigMap identifies the run and comes last, so that an interrupted Clean can be repeated.
var (
	ofRun = []schema.GroupVersionResource{
		jobs,
		pods,
		leases,
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		{Version: "v1", Resource: "serviceaccounts"},
	}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	jobs       = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	leases     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

	ofCluster = []schema.GroupVersionResource{
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	}
	// shared by all runs of a namespace.
	shared = []schema.GroupVersionResource{
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		{Version: "v1", Resource: "serviceaccounts"},
	}
)

// Runs returns the sorted names of the runs of a namespace. Each has ConfigMaps until its end.
func (f *Fleet) Runs(ctx context.Context, namespace string) ([]string, error) {
	// Results may be large, so list only metadata.
	list, err := f.metadata.Resource(configMaps).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: RunLabel})
	if err != nil {
		return nil, fmt.Errorf("fleet: runs of namespace %s: %w", namespace, err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Labels[RunLabel])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Clean deletes a run and its results. It returns when its pods are gone. The error may wrap [ErrNoRun].
func (f *Fleet) Clean(ctx context.Context, ref Ref) error {
	runs, err := f.Runs(ctx, ref.Namespace)
	if err != nil {
		return err
	}
	if !slices.Contains(runs, ref.Run) {
		return f.noRun(ref, runs)
	}
	return f.clean(ctx, ref.Namespace, ref.selector())
}

// clean deletes the runs that a selector selects.
func (f *Fleet) clean(ctx context.Context, namespace, selector string) error {
	if err := f.remove(ctx, namespace, selector, ofRun...); err != nil {
		return err
	}
	// Running pods may still write the objects deleted below, and Leases during shutdown.
	if err := poll(ctx, "pods of "+selector+" in namespace "+namespace, func(ctx context.Context) (bool, error) {
		pod, err := f.first(ctx, pods, namespace, selector)
		return pod == nil, err
	}); err != nil {
		return err
	}
	return f.remove(ctx, namespace, selector, leases, configMaps)
}

func (f *Fleet) noRun(ref Ref, runs []string) error {
	have := "none"
	if len(runs) > 0 {
		have = "have " + strings.Join(runs, ", ")
	}
	return fmt.Errorf("%w: %s (%s)", ErrNoRun, ref, have)
}

// CleanAll deletes all runs of a namespace and their shared objects. If
// watchlab created the namespace, CleanAll also deletes it and waits for its end. The error wraps
// [ErrNoRun] if there is no namespace.
func (f *Fleet) CleanAll(ctx context.Context, namespace string) error {
	ns, err := f.metadata.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: there is no namespace %s", ErrNoRun, namespace)
	}
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := f.clean(ctx, namespace, RunLabel); err != nil {
		return err
	}
	if err := f.remove(ctx, namespace, nameLabel+"="+appName, shared...); err != nil {
		return err
	}
	// Overlays may create cluster-scoped objects.
	if err := f.remove(ctx, "", NamespaceLabel+"="+namespace, ofCluster...); err != nil {
		return err
	}
	if ns.Labels[nameLabel] != appName {
		return nil
	}
	err = f.metadata.Resource(namespaces).Delete(ctx, namespace, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ns.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("fleet: %w", err)
	}
	return poll(ctx, "namespace "+namespace, func(ctx context.Context) (bool, error) {
		_, err := f.metadata.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

func (f *Fleet) remove(ctx context.Context, namespace, selector string, resources ...schema.GroupVersionResource) error {
	for _, r := range resources {
		err := f.metadata.Resource(r).Namespace(namespace).DeleteCollection(ctx,
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{LabelSelector: selector})
		if err != nil && !apierrors.IsNotFound(err) { // The cluster may lack the kind.
			return fmt.Errorf("fleet: cleaning up %s: %w", r.Resource, err)
		}
	}
	return nil
}

func poll(ctx context.Context, what string, gone wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextCancel(ctx, time.Second/2, true, gone)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("fleet: cleaning up: %s: still there: %w", what, err)
	}
	return fmt.Errorf("fleet: cleaning up: %w", err)
}
