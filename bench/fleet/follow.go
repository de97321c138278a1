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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// plan reads the plan of a run. The error may wrap [ErrNoRun].
func (f *Fleet) plan(ctx context.Context, ref Ref) (Plan, error) {
	m, err := f.dynamic.Resource(configMaps).Namespace(ref.Namespace).Get(ctx, ref.object(), metav1.GetOptions{})
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
	var p Plan
	data, _, err := unstructured.NestedString(m.Object, "data", planName)
	if err == nil {
		p, err = ParsePlan(planName, []byte(data))
	}
	if err != nil {
		err = fmt.Errorf("fleet: ConfigMap %s: %w", m.GetName(), err)
	}
	return p, err
}

// Status returns the state of a run, by four requests. The error may wrap [ErrNoRun].
func (f *Fleet) Status(ctx context.Context, ref Ref) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	return f.look(ctx, ref, plan, "")
}

// look returns the state at a version: empty for the newest, 0 for what the API server has in memory.
func (f *Fleet) look(ctx context.Context, ref Ref, plan Plan, version string) (State, error) {
	all := objects{plan: plan}
	ofRun := metav1.ListOptions{ResourceVersion: version, LabelSelector: ref.selector()}
	var err error
	all.jobs, err = list[batchv1.Job](ctx, f.dynamic.Resource(jobs).Namespace(ref.Namespace), ofRun)
	if err == nil {
		all.pods, err = list[corev1.Pod](ctx, f.dynamic.Resource(pods).Namespace(ref.Namespace), ofRun)
	}
	if err == nil {
		all.leases, err = list[coordinationv1.Lease](ctx, f.dynamic.Resource(leases).Namespace(ref.Namespace), ofRun)
	}
	if err != nil {
		return State{}, fmt.Errorf("fleet: %w", err)
	}
	return all.state(ref), nil
}

// list returns listed objects as their Go type.
func list[T any](ctx context.Context, client dynamic.ResourceInterface, opts metav1.ListOptions) (all []*T, err error) {
	found, err := client.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	for _, u := range found.Items {
		o := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// Follow looks at a run until it has ended, each second and 10 ms a pod, and returns its last state. It
// calls show for each new state. If ctx ends, Follow returns its error; the run continues. warn receives each new
// error of a look; the next look follows. If a pod waits for a node or its image for longer than wait,
// Follow returns a [*WaitError].
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
		if i := slices.IndexFunc(last.Pods, func(p Pod) bool { return p.Phase == Waiting }); i >= 0 {
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
