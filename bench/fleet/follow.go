package fleet

import (
	"context"
	"fmt"
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

	"watchlab/bench/lab"
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

// Follow looks at a run until it has ended, each second and 10 ms a pod, and returns its last state. If ctx ends,
// Follow returns its error; the run continues. say receives the numbers of pods by phase when they change, and once
// each error of a look and each advice of hint for a waiting pod. A pod that waits for a node or its image for longer
// than wait is an error.
func (f *Fleet) Follow(ctx context.Context, ref Ref, wait time.Duration, hint func(Pod) string, say func(string)) (State, error) {
	plan, err := f.plan(ctx, ref)
	if err != nil {
		return State{}, err
	}
	last, line, said := State{Ref: ref, Plan: plan}, "", map[string]bool{}
	once := func(key, text string) {
		if !said[key] {
			said[key] = true
			say(text)
		}
	}
	var waits Pod // the first waiting pod, since a time
	var since time.Time
	for {
		now, err := f.look(ctx, ref, plan, "0")
		if ctx.Err() != nil {
			return last, ctx.Err()
		}
		if err != nil {
			once(err.Error(), lab.OneLine(err.Error())+"; retrying")
		} else {
			last = now
		}
		for _, p := range last.Pods {
			if p.Phase == Waiting && p.Reason != "" {
				advice := hint(p)
				once(advice, fmt.Sprintf("pod %d waits: %s; %s", p.Index, p.waitsFor(), advice))
			}
		}
		if text := last.Line(); err == nil && text != line {
			line = text
			say(line)
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
			return last, fmt.Errorf("pod %s has waited for %v: %s; %s", waits.Name, wait, waits.waitsFor(), hint(waits))
		}
		select {
		case <-time.After(time.Second + time.Duration(plan.Pods)*10*time.Millisecond):
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}
