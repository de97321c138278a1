package merge

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls"
)

// referenceVariant is the baseline of this module: a reimplementation of
// kubelet's algorithm, for modules that cannot link kubelet.
func referenceVariant() Variant {
	return Variant{
		Name:     "reference",
		Summary:  "one mutex held while sending, map rebuilt on SET, reflect.DeepEqual on every pod",
		Upstream: "kubelet v1.31 algorithm",
		Guarantees: []impls.Guarantees{{
			Order:     impls.OrderTotal,
			Coalesces: impls.CoalesceNone,
			Bounded:   true,
			Consumers: impls.ManyConsumers,
		}},
		New: newReference,
	}
}

// reference merges like kubelet v1.31 (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/config.go). Each SET costs O(pods) map operations,
// comparisons and annotations, and other callers wait until the receiver has
// received the notifications. There are two differences. It does not write to
// received pods (kubelet writes its annotations to them), which saves a map write
// per pod. And ctx ends the wait for a receiver.
//
// A call that waits for the mutex checks its ctx only after it has locked it.
type reference struct {
	mux
	mode     Mode
	recorder EventRecorder
	updates  chan PodUpdate

	// mu makes an update and the sending of its outcome one step. It guards
	// everything below.
	mu   sync.Mutex
	pods map[string]map[types.UID]*v1.Pod
	// unsent is what calls that were given up had still to say.
	unsent []PodUpdate
}

func newReference(opts Options) (Merger, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	if opts.HandOver != impls.Owned {
		return nil, fmt.Errorf("%w: HandOver %q: kubelet copies what it hands over (allowed: %s)",
			impls.ErrOptions, opts.HandOver, impls.Owned)
	}
	if opts.Trust != TrustVersions {
		return nil, fmt.Errorf("%w: Trust %q: kubelet compares every pod (allowed: %s)", impls.ErrOptions, opts.Trust, TrustVersions)
	}
	r := &reference{
		mode:     opts.Mode,
		recorder: opts.Recorder,
		updates:  make(chan PodUpdate, opts.Capacity),
		pods:     make(map[string]map[types.UID]*v1.Pod),
	}
	r.mux.init(opts, r.Merge)
	return r, nil
}

// Updates is [Merger.Updates].
func (r *reference) Updates() <-chan PodUpdate { return r.updates }

// Merge is [Merger.Merge].
func (r *reference) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := r.begin(source, &update); err != nil {
		return err
	}
	defer r.end()
	r.mu.Lock()
	defer r.mu.Unlock()

	c := r.apply(source, update)
	r.unsent = append(r.unsent, r.tell(source, c)...)
	return r.send(ctx)
}

// Sync is [Merger.Sync].
func (r *reference) Sync() {
	if !r.beginSync() {
		return
	}
	defer r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsent = append(r.unsent, PodUpdate{Op: SET, Source: AllSource, Pods: r.snapshot()})
	_ = r.send(context.Background())
}

// Close is [Merger.Close].
func (r *reference) Close() {
	r.close(func() {}, func() { close(r.updates) })
}

// changes holds the pods that an update changed, by notification.
type changes struct {
	removes, adds, updates, deletes, reconciles []*v1.Pod

	// firstSet is true for a source's first SET.
	firstSet bool
}

// apply takes the update into the state.
func (r *reference) apply(source string, update PodUpdate) changes {
	var c changes
	held := r.pods[source]
	if held == nil {
		held = make(map[types.UID]*v1.Pod)
		r.pods[source] = held
	}
	switch update.Op {
	case REMOVE:
		for _, pod := range update.Pods {
			if existing, ok := held[pod.UID]; ok {
				delete(held, pod.UID)
				c.removes = append(c.removes, existing)
			}
		}
	case SET:
		c.firstSet = r.sawSET(source)

		kept := make(map[types.UID]*v1.Pod)
		r.upsert(source, update.Pods, held, kept, &c)
		for uid, existing := range held {
			if _, ok := kept[uid]; !ok {
				c.removes = append(c.removes, existing)
			}
		}
		r.pods[source] = kept
	default:
		r.upsert(source, update.Pods, held, held, &c)
	}
	return c
}

// upsert inserts or updates pods, looking them up in held and putting them
// into kept, which may be the same.
func (r *reference) upsert(source string, pods []*v1.Pod, held, kept map[types.UID]*v1.Pod, c *changes) {
	for _, pod := range r.dropDuplicates(source, pods) {
		existing, ok := held[pod.UID]
		if !ok {
			// The copy is shallow: below the annotations nothing is written.
			added := *pod
			added.Annotations = firstAnnotations(source, pod.Annotations)
			kept[pod.UID] = &added
			c.adds = append(c.adds, &added)
			continue
		}
		kept[pod.UID] = existing
		switch {
		case differ(existing, pod):
			existing.Spec = pod.Spec
			existing.Labels = pod.Labels
			existing.DeletionTimestamp = pod.DeletionTimestamp
			existing.DeletionGracePeriodSeconds = pod.DeletionGracePeriodSeconds
			existing.Status = pod.Status
			existing.Annotations = mergeAnnotations(existing.Annotations, pod.Annotations)
			if pod.DeletionTimestamp != nil {
				c.deletes = append(c.deletes, existing)
			} else {
				c.updates = append(c.updates, existing)
			}
		case !reflect.DeepEqual(existing.Status, pod.Status):
			existing.Status = pod.Status
			c.reconciles = append(c.reconciles, existing)
		}
	}
}

func (r *reference) dropDuplicates(source string, pods []*v1.Pod) []*v1.Pod {
	names := sets.New[string]()
	var unique []*v1.Pod
	for _, pod := range pods {
		name := pod.Name + "_" + pod.Namespace
		if names.Has(name) {
			recordDuplicates(r.recorder, source, []*v1.Pod{pod})
			continue
		}
		names.Insert(name)
		unique = append(unique, pod)
	}
	return unique
}

// differ reports whether a received pod differs from the held one, apart from its
// status and kubelet's own annotations.
func differ(held, received *v1.Pod) bool {
	return !reflect.DeepEqual(held.Spec, received.Spec) ||
		!reflect.DeepEqual(held.Labels, received.Labels) ||
		!reflect.DeepEqual(held.DeletionTimestamp, received.DeletionTimestamp) ||
		!reflect.DeepEqual(held.DeletionGracePeriodSeconds, received.DeletionGracePeriodSeconds) ||
		annotationsDiffer(held.Annotations, received.Annotations)
}

// tell returns the notifications to send, in order.
func (r *reference) tell(source string, c changes) []PodUpdate {
	var out []PodUpdate
	add := func(op Op, pods []*v1.Pod) {
		if len(pods) > 0 {
			out = append(out, PodUpdate{Op: op, Source: source, Pods: copies(pods)})
		}
	}
	changed := len(c.adds) > 0 || len(c.updates) > 0 || len(c.deletes) > 0
	whole := func() {
		out = append(out, PodUpdate{Op: SET, Source: source, Pods: r.snapshot()})
	}
	switch r.mode {
	case SnapshotAndUpdates:
		if c.firstSet || len(c.removes) > 0 || len(c.adds) > 0 {
			whole()
		}
		add(UPDATE, c.updates)
		add(DELETE, c.deletes)
	case Snapshot:
		if c.firstSet || changed || len(c.removes) > 0 {
			whole()
		}
	default:
		add(REMOVE, c.removes)
		add(ADD, c.adds)
		add(UPDATE, c.updates)
		add(DELETE, c.deletes)
		if c.firstSet && !changed {
			out = append(out, PodUpdate{Op: ADD, Source: source, Pods: []*v1.Pod{}})
		}
		add(RECONCILE, c.reconciles)
	}
	return out
}

// send sends the unsent notifications, oldest first, until ctx ends.
func (r *reference) send(ctx context.Context) error {
	for len(r.unsent) > 0 {
		select {
		case r.updates <- r.unsent[0]:
		default:
			select {
			case r.updates <- r.unsent[0]:
			case <-ctx.Done():
				return ctx.Err()
			case <-r.closing:
				return fmt.Errorf("merge: %w", ErrClosed)
			}
		}
		r.unsent[0] = PodUpdate{}
		r.unsent = r.unsent[1:]
	}
	r.unsent = nil
	return nil
}

// snapshot returns copies of all pods.
func (r *reference) snapshot() []*v1.Pod {
	pods := []*v1.Pod{}
	for _, held := range r.pods {
		for _, pod := range held {
			pods = append(pods, pod.DeepCopy())
		}
	}
	return pods
}

// copies returns deep copies of pods.
func copies(pods []*v1.Pod) []*v1.Pod {
	out := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		out = append(out, pod.DeepCopy())
	}
	return out
}
