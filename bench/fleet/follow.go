package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// plan reads the plan of a run. The error may wrap [ErrNoRun].
func (f *Fleet) plan(ctx context.Context, ref Ref) (Plan, error) {
	m, err := f.client.CoreV1().ConfigMaps(ref.Namespace).Get(ctx, ref.object(""), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		runs, err := f.Runs(ctx, ref.Namespace)
		if err != nil {
			return Plan{}, err
		}
		return Plan{}, f.noRun(ref, runs)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("fleet: %w", err)
	}
	p, err := ParsePlan([]byte(m.Data[planName]))
	if err != nil {
		return Plan{}, fmt.Errorf("fleet: ConfigMap %s: %w", m.Name, err)
	}
	return p, nil
}

// Status returns the state of a run, by five requests. The error may wrap [ErrNoRun].
func (f *Fleet) Status(ctx context.Context, ref Ref) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	opts := metav1.ListOptions{LabelSelector: ref.selector()}
	jobs, jobsErr := f.client.BatchV1().Jobs(ref.Namespace).List(ctx, opts)
	pods, podsErr := f.client.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: plan.podSelector(ref)})
	leases, leasesErr := f.client.CoordinationV1().Leases(ref.Namespace).List(ctx, opts)
	maps, mapsErr := f.metadata.Resource(configMaps).Namespace(ref.Namespace).List(ctx, opts)
	if err := cmp.Or(jobsErr, podsErr, leasesErr, mapsErr); err != nil {
		return State{}, fmt.Errorf("fleet: %w", err)
	}
	return objects{
		plan: plan,
		jobs: pointers(jobs.Items), pods: pointers(pods.Items), leases: pointers(leases.Items), maps: pointers(maps.Items),
	}.state(ref), nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// Follow watches a run until it has ended, and returns its last state. It uses four watches. It
// calls show from one goroutine for each new state; changes within 200 ms are merged. If ctx ends,
// Follow returns its error; the run continues. warn receives watch errors; the informers retry.
// If a pod waits for a node or its image for longer than wait, Follow returns a [*WaitError]. So
// does a pod of the plan's Deployments that cannot have one.
func (f *Fleet) Follow(ctx context.Context, ref Ref, wait time.Duration, show func(State), warn func(error)) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	selected := func(opts *metav1.ListOptions) { opts.LabelSelector = ref.selector() }
	selectedPods := func(opts *metav1.ListOptions) { opts.LabelSelector = plan.podSelector(ref) }
	typed := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(ref.Namespace), informers.WithTweakListOptions(selected))
	ofPods := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(ref.Namespace), informers.WithTweakListOptions(selectedPods))
	meta := metadatainformer.NewFilteredSharedInformerFactory(f.metadata, 0, ref.Namespace, selected)
	jobs, pods, leases, maps := typed.Batch().V1().Jobs(), ofPods.Core().V1().Pods(), typed.Coordination().V1().Leases(), meta.ForResource(configMaps)

	changed := make(chan struct{}, 1)
	change := func(any) {
		select {
		case changed <- struct{}{}:
		default: // A change is pending.
		}
	}
	var synced []cache.InformerSynced
	for _, i := range []cache.SharedIndexInformer{jobs.Informer(), pods.Informer(), leases.Informer(), maps.Informer()} {
		_ = i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			// After these errors, the informer lists again.
			if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !errors.Is(err, context.Canceled) {
				warn(err)
			}
		})
		_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: change, UpdateFunc: func(_, o any) { change(o) }, DeleteFunc: change})
		synced = append(synced, i.HasSynced)
	}
	stop := make(chan struct{})
	typed.Start(stop)
	ofPods.Start(stop)
	meta.Start(stop)
	defer func() {
		close(stop)
		typed.Shutdown()
		ofPods.Shutdown()
		meta.Shutdown()
	}()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return State{Ref: ref, Plan: plan}, ctx.Err()
	}
	var last State
	waits, limit := Pod{}, time.NewTimer(wait) // the first waiting pod
	defer limit.Stop()
	for {
		v := objects{
			plan: plan, jobs: stored[batchv1.Job](jobs), pods: stored[corev1.Pod](pods),
			leases: stored[coordinationv1.Lease](leases), maps: stored[metav1.PartialObjectMetadata](maps),
		}
		if now := v.state(ref); !reflect.DeepEqual(now, last) {
			last = now
			show(last)
		}
		if last.Over {
			return last, nil
		}
		before := waits
		waits = Pod{}
		// A Deployment may pull a large image for long; a reason says that it cannot.
		stuck := func(p Pod) bool { return p.Phase == Waiting && (p.Deployment == "" || p.Reason != "") }
		if i := slices.IndexFunc(last.Pods, stuck); i >= 0 {
			waits = last.Pods[i]
		}
		switch waits.Name {
		case "":
			limit.Stop()
		case before.Name:
		default:
			limit.Reset(wait)
		}
		select {
		case <-limit.C:
			return last, &WaitError{Pod: waits, Wait: wait}
		case <-changed:
		case <-ctx.Done():
			return last, ctx.Err()
		}
		// Pods of a Job change together: gather the changes.
		select {
		case <-time.After(moment):
		case <-ctx.Done():
		}
	}
}

// WaitError is the error of [Fleet.Follow] for a pod that does not start.
type WaitError struct {
	Pod  Pod
	Wait time.Duration // for which it was the first that waits
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("pod %s has waited for %v: %s: %s", e.Pod.Name, e.Wait, cmp.Or(e.Pod.Reason, "ContainerCreating"), cmp.Or(e.Pod.Message, e.Pod.Image))
}

const moment = 200 * time.Millisecond // interval in which Follow merges changes

func stored[T any](i interface {
	Informer() cache.SharedIndexInformer
}) []*T {
	var all []*T
	for _, o := range i.Informer().GetStore().List() {
		all = append(all, o.(*T)) // The informer decodes only T.
	}
	return all
}
