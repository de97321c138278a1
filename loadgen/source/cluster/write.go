package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

const (
	// RunLabel is the label of every object of a Writer; its value is the run. Clean selects by it.
	RunLabel = "watchlab.dev/run"
	Manager  = "watchlab" // field manager of a Writer's applies
	// schedulingGate prevents the scheduling of a Writer's pods.
	schedulingGate = "watchlab.dev/not-to-be-run"
)

var (
	// ErrNotOurs is wrapped by the error for an existing object that this run did not create.
	// The object stays unchanged.
	ErrNotOurs = errors.New("not made by this run")
	// ErrNotWritable is wrapped by the error for a storm that cannot be applied to a cluster.
	ErrNotWritable = errors.New("storm cannot be made in a cluster")
)

const writers = 16 // concurrent requests; those for one key are sequential

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Writer applies the objects of a storm to a cluster by server-side apply, and deletes them.
//
// All objects have [RunLabel]. Their namespaces are named after the run and the storm's
// namespaces. The writer removes all references to the original cluster: identity, owners,
// finalizers, and for pods the node and the token volumes. Pods have a scheduling gate, so no
// scheduler and no kubelet acts on them. Resources without a namespace are rejected. A Writer is
// not safe for concurrent use.
type Writer struct {
	cluster  *Cluster
	resource Resource
	run      string
	retry    retrier
	created  map[string]bool // existing namespaces
}

// NewWriter returns a writer of a resource. run is a DNS label of at most 20 characters.
func NewWriter(c *Cluster, r Resource, run string) (*Writer, error) {
	if problems := validation.IsDNS1123Label(run); len(problems) > 0 || len(run) > 20 {
		return nil, fmt.Errorf("cluster: run %q: a DNS label of up to 20 characters is needed", run)
	}
	if !r.Namespaced {
		return nil, fmt.Errorf("%w: %s have no namespace, and would be among the cluster's own", ErrNotWritable, r.Resource)
	}
	return &Writer{cluster: c, resource: r, run: run, created: make(map[string]bool)}, nil
}

// Selector returns the label selector of the writer's objects.
func (w *Writer) Selector() string { return RunLabel + "=" + w.run }

// Written counts the events of a Play.
type Written struct {
	// Applied and Deleted count written events. Refused counts events that the API server
	// rejected; FirstRefusal is the error of the first one.
	Applied, Deleted, Refused int64
	FirstRefusal              error
	Left                      int64         // events that were not written when Play ended
	Retried                   int64         // events with more than one attempt
	Outage                    time.Duration // duration of the longest retry
	// Late counts events that started more than 1 ms late. LagMax is the maximum lag. A slow
	// request delays the events after it.
	Late   int64
	LagMax time.Duration
}

// Play writes the initial list of a storm as fast as possible, then its events at their scheduled
// times. The schedule starts after the list. It returns after the last event, or with ctx's error.
// It counts and skips events that the API server rejects. While the API server is unreachable or
// temporarily unable, Play retries an event for up to 1 min; apply and delete are idempotent.
func (w *Writer) Play(ctx context.Context, s *storm.Storm, schedule pace.Schedule) (Written, error) {
	if s.Resource != w.resource.GroupVersionResource {
		return Written{}, fmt.Errorf("%w: its events are of %s, not of %s", ErrNotWritable, s.Resource.Resource, w.resource.Resource)
	}
	p := play{writer: w}
	p.written.Left = int64(len(s.Events))
	err := w.createNamespaces(ctx, s)
	if err == nil {
		err = p.all(ctx, s.Events[:s.Initial], pace.Unpaced)
	}
	if err == nil {
		err = p.all(ctx, s.Events[s.Initial:], schedule)
	}
	return p.written, err
}

type play struct {
	writer *Writer

	mu      sync.Mutex
	written Written
}

// all writes events in several goroutines, each with its own keys.
func (p *play) all(ctx context.Context, events []storm.Event, schedule pace.Schedule) error {
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for n := range writers {
		group.Go(func() error {
			pacer := pace.On(schedule)
			pacer.Start(begin)
			defer func() { _ = pacer.Close() }()
			for i := range events {
				if e := &events[i]; int(e.KeyIndex)%writers == n {
					if err := p.one(ctx, e, i, pacer); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (p *play) one(ctx context.Context, e *storm.Event, i int, pacer *pace.Pacer) error {
	if err := pacer.Wait(ctx, i); err != nil {
		return err
	}
	lag := time.Duration(0)
	if pacer.Paced() {
		lag = time.Since(pacer.Started()) - pacer.Intended(i)
	}
	took, err := p.writer.write(ctx, e)
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.written
	w.LagMax = max(w.LagMax, lag)
	if lag > time.Millisecond {
		w.Late++
	}
	w.Outage = max(w.Outage, took)
	if took > 0 {
		w.Retried++
	}
	var refused apierrors.APIStatus
	switch {
	case err == nil && e.Type == watch.Deleted:
		w.Deleted++
	case err == nil:
		w.Applied++
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &refused):
		w.Refused++
		if w.FirstRefusal == nil {
			w.FirstRefusal = fmt.Errorf("event %d (%s %s): %w", e.Seq, e.Type, e.Key, err)
		}
	default:
		return fmt.Errorf("cluster: event %d (%s %s): %w", e.Seq, e.Type, e.Key, err)
	}
	w.Left--
	return nil
}

// write writes one event. retried is the duration of several attempts; 0 if there was one.
func (w *Writer) write(ctx context.Context, e *storm.Event) (retried time.Duration, err error) {
	u, err := w.object(e.Object)
	if err != nil {
		return 0, err
	}
	client := w.cluster.dynamic.Resource(w.resource.GroupVersionResource).Namespace(u.GetNamespace())
	if e.Type == watch.Deleted {
		now := int64(0)
		return w.retry.do(ctx, func() error {
			err := client.Delete(ctx, u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
			if apierrors.IsNotFound(err) {
				return nil // already deleted
			}
			return err
		})
	}
	status, hasStatus := u.Object["status"]
	delete(u.Object, "status")
	opts := metav1.ApplyOptions{FieldManager: Manager, Force: true}
	retried, err = w.retry.do(ctx, func() error {
		_, err := client.Apply(ctx, u.GetName(), u, opts)
		return err
	})
	if err != nil || !hasStatus {
		return retried, err
	}
	s := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "status": status,
		"metadata": map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()},
	}}
	again, err := w.retry.do(ctx, func() error {
		_, err := client.ApplyStatus(ctx, u.GetName(), s, opts)
		if apierrors.IsNotFound(err) {
			return nil // no status subresource: the status is not written
		}
		return err
	})
	return retried + again, err
}

// object returns the object to apply for an object of the storm.
func (w *Writer) object(o runtime.Object) (*unstructured.Unstructured, error) {
	if w.resource.Kind == corev1.SchemeGroupVersion.WithKind("Pod") {
		pod := &corev1.Pod{}
		if typed, ok := o.(*corev1.Pod); ok {
			typed.DeepCopyInto(pod)
		} else if err := scheme.Scheme.Convert(o, pod, nil); err != nil {
			return nil, err
		}
		detach(pod)
		o = pod
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	from := &unstructured.Unstructured{Object: content}
	u := &unstructured.Unstructured{Object: maps.Clone(content)}
	u.SetGroupVersionKind(w.resource.Kind)
	// The cluster sets all other metadata. Copied metadata would trigger the garbage collector
	// or a finalizer.
	u.Object["metadata"] = map[string]any{"name": from.GetName(), "namespace": w.namespace(from.GetNamespace())}
	u.SetLabels(labels.Merge(from.GetLabels(), labels.Set{RunLabel: w.run}))
	u.SetAnnotations(from.GetAnnotations())
	return u, nil
}

// detach removes a pod's references to its cluster and adds the scheduling gate.
func detach(pod *corev1.Pod) {
	// The API server computes it and rejects other values.
	pod.Status.QOSClass = ""
	// Admission sets the cluster's own service account and priority.
	spec := &pod.Spec
	spec.NodeName, spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.PriorityClassName = "", "", "", ""
	spec.Priority, spec.PreemptionPolicy, spec.RuntimeClassName, spec.Overhead = nil, nil, nil, nil
	spec.EphemeralContainers, spec.ResourceClaims = nil, nil
	spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: schedulingGate}}
	spec.AutomountServiceAccountToken = new(bool)
	tokens := map[string]bool{}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		tokens[v.Name] = v.Projected != nil
		return tokens[v.Name]
	})
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			list[i].VolumeMounts = slices.DeleteFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return tokens[m.Name] })
		}
	}
}

// namespace returns the cluster's namespace for a namespace of the storm.
func (w *Writer) namespace(original string) string {
	const longest = 63
	name := "watchlab-" + w.run + "-" + original
	return name[:min(len(name), longest)]
}

func (w *Writer) createNamespaces(ctx context.Context, s *storm.Storm) error {
	needed := map[string]bool{}
	for i := range s.Events {
		o, ok := s.Events[i].Object.(metav1.Object)
		if !ok {
			return fmt.Errorf("%w: event %d has a %T", ErrNotWritable, i+1, s.Events[i].Object)
		}
		needed[w.namespace(o.GetNamespace())] = true
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if _, err := w.retry.do(ctx, func() error { return w.createNamespace(ctx, name) }); err != nil {
			return fmt.Errorf("cluster: namespace %s: %w", name, err)
		}
	}
	return nil
}

func (w *Writer) createNamespace(ctx context.Context, name string) error {
	if w.created[name] {
		return nil
	}
	client := w.cluster.dynamic.Resource(namespaces)
	existing, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && existing.GetLabels()[RunLabel] != w.run:
		return ErrNotOurs
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	if err := w.apply(ctx, client, "Namespace", "", name); err != nil {
		return err
	}
	// A namespace accepts pods once it has its service account. The controller-manager creates
	// it, but the cluster may have no controller-manager.
	accounts := w.cluster.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(name)
	if err := w.apply(ctx, accounts, "ServiceAccount", name, "default"); err != nil {
		return err
	}
	w.created[name] = true
	return nil
}

// apply applies an object of the core group that has only a name.
func (w *Writer) apply(ctx context.Context, client dynamic.ResourceInterface, kind, namespace, name string) error {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	u.SetName(name)
	u.SetNamespace(namespace)
	u.SetLabels(map[string]string{RunLabel: w.run})
	_, err := client.Apply(ctx, name, u, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	return err
}

// Clear deletes the objects with the run's label, including those of an earlier writer, but
// not their namespaces. It returns when all are gone.
func (w *Writer) Clear(ctx context.Context) error { return w.removeAll(ctx, false) }

// Clean deletes everything with the run's label. It returns when only terminating namespaces
// are left.
func (w *Writer) Clean(ctx context.Context) error { return w.removeAll(ctx, true) }

func (w *Writer) removeAll(ctx context.Context, whole bool) error {
	_, err := w.retry.do(ctx, func() error { return w.remove(ctx, whole) })
	return err
}

func (w *Writer) remove(ctx context.Context, whole bool) error {
	client := w.cluster.dynamic.Resource(w.resource.GroupVersionResource)
	list, err := w.cluster.dynamic.Resource(namespaces).List(ctx, metav1.ListOptions{LabelSelector: w.Selector()})
	if err != nil {
		return fmt.Errorf("cluster: cleaning up: %w", err)
	}
	now, background := int64(0), metav1.DeletePropagationBackground
	var errs []error
	for _, ns := range list.Items {
		name := ns.GetName()
		err := client.Namespace(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background},
			metav1.ListOptions{LabelSelector: w.Selector()})
		if err == nil && whole {
			uid := ns.GetUID()
			err = w.cluster.dynamic.Resource(namespaces).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("cluster: cleaning up %s: %w", name, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if whole {
		clear(w.created)
	}
	return w.gone(ctx)
}

func (w *Writer) gone(ctx context.Context) error {
	client := w.cluster.dynamic.Resource(w.resource.GroupVersionResource)
	var left []unstructured.Unstructured
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: w.Selector(), Limit: 1})
		if err != nil {
			return false, err
		}
		left = list.Items
		return len(left) == 0, nil
	})
	switch {
	case err == nil:
		return nil
	case len(left) > 0:
		return fmt.Errorf("cluster: cleaning up: %s/%s is still there: %w", left[0].GetNamespace(), left[0].GetName(), err)
	}
	return fmt.Errorf("cluster: cleaning up: %w", err)
}
