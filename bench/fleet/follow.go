package fleet

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// plan reads the plan of a run. The error wraps [ErrNoRun] for a run that does not
// exist.
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

// Status returns the state of a run. It sends five requests. The error wraps [ErrNoRun]
// for a run that does not exist.
func (f *Fleet) Status(ctx context.Context, ref Ref) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	v, opts := objects{plan: plan}, metav1.ListOptions{LabelSelector: ref.selector()}
	jobs, err := f.client.BatchV1().Jobs(ref.Namespace).List(ctx, opts)
	if err != nil {
		return State{}, fmt.Errorf("fleet: %w", err)
	}
	pods, err := f.client.CoreV1().Pods(ref.Namespace).List(ctx, opts)
	if err != nil {
		return State{}, fmt.Errorf("fleet: %w", err)
	}
	leases, err := f.client.CoordinationV1().Leases(ref.Namespace).List(ctx, opts)
	if err != nil {
		return State{}, fmt.Errorf("fleet: %w", err)
	}
	maps, err := f.metadata.Resource(configMaps).Namespace(ref.Namespace).List(ctx, opts)
	if err != nil {
		return State{}, fmt.Errorf("fleet: %w", err)
	}
	v.jobs, v.pods, v.leases, v.maps = pointers(jobs.Items), pointers(pods.Items), pointers(leases.Items), pointers(maps.Items)
	return v.state(ref), nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// Follow watches a run until it has ended, and returns its last state. It uses four
// watches. It calls show from one goroutine for each state that differs from the last;
// changes within 200 ms are merged. If ctx ends, Follow returns its error and the last
// state; the run continues. warn receives watch errors; the informers retry.
func (f *Fleet) Follow(ctx context.Context, ref Ref, show func(State), warn func(error)) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	w := f.watch(ref, warn)
	defer w.stop()
	if !w.synced(ctx) {
		return State{Ref: ref, Plan: plan}, ctx.Err()
	}
	var last State
	for {
		v, err := w.objects()
		if err != nil {
			return last, fmt.Errorf("fleet: %w", err)
		}
		v.plan = plan
		if now := v.state(ref); !reflect.DeepEqual(now, last) {
			last = now
			show(last)
		}
		if last.Over {
			return last, nil
		}
		select {
		case <-w.changed:
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

// moment is the interval in which Follow merges changes.
const moment = 200 * time.Millisecond

// watched are the informers of Follow.
type watched struct {
	informers []cache.SharedIndexInformer
	changed   chan struct{}
	halt      chan struct{}
	shutdown  []func()
}

func (f *Fleet) watch(ref Ref, warn func(error)) *watched {
	w := &watched{changed: make(chan struct{}, 1), halt: make(chan struct{})}
	limit := func(opts *metav1.ListOptions) { opts.LabelSelector = ref.selector() }
	typed := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(ref.Namespace), informers.WithTweakListOptions(limit))
	meta := metadatainformer.NewFilteredSharedInformerFactory(f.metadata, 0, ref.Namespace, limit)
	w.informers = []cache.SharedIndexInformer{
		typed.Batch().V1().Jobs().Informer(),
		typed.Core().V1().Pods().Informer(),
		typed.Coordination().V1().Leases().Informer(),
		meta.ForResource(configMaps).Informer(),
	}
	for _, i := range w.informers {
		// Both fail only after the informer has started.
		_ = i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if !passing(err) {
				warn(err)
			}
		})
		_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.touch() },
			UpdateFunc: func(any, any) { w.touch() },
			DeleteFunc: func(any) { w.touch() },
		})
	}
	typed.Start(w.halt)
	meta.Start(w.halt)
	w.shutdown = []func(){typed.Shutdown, meta.Shutdown}
	return w
}

// passing reports whether a watch ended normally. The informer then lists again.
func passing(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}

func (w *watched) touch() {
	select {
	case w.changed <- struct{}{}:
	default: // A change is pending.
	}
}

// synced waits for the initial lists and reports success.
func (w *watched) synced(ctx context.Context) bool {
	var synced []cache.InformerSynced
	for _, i := range w.informers {
		synced = append(synced, i.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

func (w *watched) stop() {
	close(w.halt)
	for _, shutdown := range w.shutdown {
		shutdown()
	}
}

// objects returns the current objects.
func (w *watched) objects() (objects, error) {
	var v objects
	var errs []error
	each := func(at int, take func(runtime.Object) bool) {
		for _, o := range w.informers[at].GetStore().List() {
			if r, ok := o.(runtime.Object); !ok || !take(r) {
				errs = append(errs, fmt.Errorf("unexpected object %T", o))
			}
		}
	}
	each(0, func(o runtime.Object) bool { return add(&v.jobs, o) })
	each(1, func(o runtime.Object) bool { return add(&v.pods, o) })
	each(2, func(o runtime.Object) bool { return add(&v.leases, o) })
	each(3, func(o runtime.Object) bool { return add(&v.maps, o) })
	return v, errors.Join(errs...)
}

func add[T any](to *[]*T, o any) bool {
	t, ok := o.(*T)
	if ok {
		*to = append(*to, t)
	}
	return ok
}
