package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/source/cluster"
)

// plan reads the plan of a run. The error may wrap [ErrNoRun].
func (f *Fleet) plan(ctx context.Context, ref Ref) (Plan, error) {
	m, err := f.dynamic.Resource(configMaps).Namespace(ref.Namespace).Get(ctx, ref.object(""), metav1.GetOptions{})
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
	data, _, err := unstructured.NestedString(m.Object, "data", planName)
	if err != nil {
		return Plan{}, fmt.Errorf("fleet: ConfigMap %s: %w", m.GetName(), err)
	}
	p, err := ParsePlan([]byte(data))
	if err != nil {
		return Plan{}, fmt.Errorf("fleet: ConfigMap %s: %w", m.GetName(), err)
	}
	return p, nil
}

// Status returns the state of a run, by five requests. The error may wrap [ErrNoRun].
func (f *Fleet) Status(ctx context.Context, ref Ref) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	watched, err := f.watched(ref, plan)
	if err != nil {
		return State{}, err
	}
	var all objects
	for _, lw := range watched {
		list, err := cache.ToListerWatcherWithContext(lw).ListWithContext(ctx, metav1.ListOptions{})
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error { all.add(o); return nil })
		}
		if err != nil {
			return State{}, fmt.Errorf("fleet: %w", err)
		}
	}
	all.plan = plan
	return all.state(ref), nil
}

// watched returns what a State is made from: Jobs, pods, Leases and the metadata of ConfigMaps.
func (f *Fleet) watched(ref Ref, plan Plan) (all []cache.ListerWatcher, err error) {
	of := cluster.Scope{Namespace: ref.Namespace, Selector: ref.selector()}
	for kind, r := range map[string]schema.GroupVersionResource{"Job": jobs, "Pod": pods, "Lease": leases} {
		in := of
		if r == pods {
			in.Selector = plan.podSelector(ref)
		}
		lw, err := f.typed(cluster.Resource{GroupVersionResource: r, Kind: r.GroupVersion().WithKind(kind)}, in)
		if err != nil {
			return nil, fmt.Errorf("fleet: %w", err)
		}
		all = append(all, lw)
	}
	limit := func(opts *metav1.ListOptions) { opts.LabelSelector = of.Selector }
	return append(all, cluster.ListWatch(f.metadata.Resource(configMaps).Namespace(ref.Namespace), limit, f.metadata)), nil
}

// add adds an object of [Fleet.watched].
func (all *objects) add(o any) {
	switch o := o.(type) {
	case *batchv1.Job:
		all.jobs = append(all.jobs, o)
	case *corev1.Pod:
		all.pods = append(all.pods, o)
	case *coordinationv1.Lease:
		all.leases = append(all.leases, o)
	case *metav1.PartialObjectMetadata:
		all.maps = append(all.maps, o)
	}
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
	watched, err := f.watched(ref, plan)
	if err != nil {
		return State{}, err
	}
	changed := make(chan struct{}, 1)
	change := func(any) {
		select {
		case changed <- struct{}{}:
		default: // A change is pending.
		}
	}
	var synced []cache.InformerSynced
	var informers []cache.SharedIndexInformer
	var running sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	defer running.Wait()
	defer stop()
	for _, lw := range watched {
		i := cache.NewSharedIndexInformer(lw, nil, 0, nil)
		_ = i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			// After these errors, the informer lists again.
			if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !errors.Is(err, context.Canceled) {
				warn(err)
			}
		})
		_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: change, UpdateFunc: func(_, o any) { change(o) }, DeleteFunc: change})
		informers, synced = append(informers, i), append(synced, i.HasSynced)
		running.Go(func() { i.RunWithContext(watching) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return State{Ref: ref, Plan: plan}, ctx.Err()
	}
	var last State
	waits, limit := Pod{}, time.NewTimer(wait) // the first waiting pod
	defer limit.Stop()
	for {
		v := objects{plan: plan}
		for _, i := range informers {
			for _, o := range i.GetStore().List() {
				v.add(o)
			}
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
