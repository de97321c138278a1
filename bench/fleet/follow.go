package fleet

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
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
	p, err := ParsePlan(planName, []byte(data))
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
	return f.look(ctx, ref, plan, "")
}

// look returns the state at a version: empty for the newest, 0 for what the API server has in memory.
func (f *Fleet) look(ctx context.Context, ref Ref, plan Plan, version string) (State, error) {
	listed, err := f.listed(ref, plan)
	if err != nil {
		return State{}, err
	}
	all := objects{plan: plan}
	for _, lw := range listed {
		list, err := cache.ToListerWatcherWithContext(lw).ListWithContext(ctx, metav1.ListOptions{ResourceVersion: version})
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error { all.add(o); return nil })
		}
		if err != nil {
			return State{}, fmt.Errorf("fleet: %w", err)
		}
	}
	return all.state(ref), nil
}

// listed returns what a State is made from: Jobs, pods, Leases and the metadata of ConfigMaps.
func (f *Fleet) listed(ref Ref, plan Plan) (all []cache.ListerWatcher, err error) {
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

// add adds an object of [Fleet.listed].
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

// Follow looks at a run until it has ended, each second and 10 ms a pod, and returns its last state. It
// calls show for each new state. If ctx ends, Follow returns its error; the run continues. warn receives each new
// error of a look; the next look follows. If a pod waits for a node or its image for longer than wait,
// Follow returns a [*WaitError]. So does a pod of the plan's Deployments that cannot have one.
func (f *Fleet) Follow(ctx context.Context, ref Ref, wait time.Duration, show func(State), warn func(error)) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	last, failed := State{Ref: ref, Plan: plan}, ""
	var waits Pod // the first waiting pod, since a time
	var since time.Time
	for {
		now, err := f.look(ctx, ref, plan, "0")
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil && err.Error() != failed:
			failed = err.Error()
			warn(err)
		case err == nil && !reflect.DeepEqual(now, last):
			last, failed = now, ""
			show(last)
		}
		if last.Over {
			return last, nil
		}
		before := waits.Name
		waits = Pod{}
		// A Deployment may pull a large image for long; a reason says that it cannot.
		stuck := func(p Pod) bool { return p.Phase == Waiting && (p.Deployment == "" || p.Reason != "") }
		if i := slices.IndexFunc(last.Pods, stuck); i >= 0 {
			waits = last.Pods[i]
		}
		switch {
		case waits.Name != before:
			since = time.Now()
		case waits.Name != "" && time.Since(since) >= wait:
			return last, &WaitError{Pod: waits, Wait: wait}
		}
		select {
		case <-time.After(time.Second + time.Duration(plan.Pods)*10*time.Millisecond):
		case <-ctx.Done():
			return last, ctx.Err()
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
