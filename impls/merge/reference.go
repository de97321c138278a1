package merge

import (
	"context"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// reference merges like kubelet v1.31 (k8s.io/kubernetes v1.31.14, pkg/kubelet/config/config.go).
// Each SET costs O(pods) map operations, comparisons and annotations, and other callers wait until
// the receiver has received the notifications. There are two differences. It does not write to
// received pods (kubelet writes its annotations to them), which saves a map write per pod. And ctx
// ends the wait for a receiver.
//
// A call that waits for the mutex checks its ctx only after it has locked it.
type reference struct {
	mux

	mu     sync.Mutex // makes an update and the sending of its outcome one step; guards the fields below
	pods   map[string]map[types.UID]*v1.Pod
	unsent []PodUpdate // notifications of canceled calls, and of the current one
}

func newReference(opts Options) Merger {
	r := &reference{pods: make(map[string]map[types.UID]*v1.Pod)}
	r.mux.init(opts)
	r.mux.run = r.run
	return r
}

func (r *reference) run(ctx context.Context, c command) (duplicates []*v1.Pod, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.sync {
		r.unsent = append(r.unsent, PodUpdate{Op: SET, Source: AllSource, Pods: r.snapshot()})
	} else {
		var changed changes[*v1.Pod]
		duplicates = r.apply(c.source, c.update, &changed)
		changed.notify(func(op Op, pods []*v1.Pod) {
			r.unsent = append(r.unsent, PodUpdate{Op: op, Source: c.source, Pods: copies(pods)})
		})
	}
	for len(r.unsent) > 0 {
		if err := r.send(ctx, r.unsent[0]); err != nil {
			return duplicates, err
		}
		r.unsent[0] = PodUpdate{}
		r.unsent = r.unsent[1:]
	}
	r.unsent = nil
	return duplicates, nil
}

func (r *reference) apply(source string, update PodUpdate, c *changes[*v1.Pod]) (duplicates []*v1.Pod) {
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
				c.add(REMOVE, existing)
			}
		}
	case SET:
		c.firstSet = r.sawSET(source)
		kept := make(map[types.UID]*v1.Pod)
		duplicates = upsert(source, update.Pods, held, kept, c)
		for uid, existing := range held {
			if _, ok := kept[uid]; !ok {
				c.add(REMOVE, existing)
			}
		}
		r.pods[source] = kept
	default:
		duplicates = upsert(source, update.Pods, held, held, c)
	}
	return duplicates
}

// upsert inserts or updates pods: it looks them up in held and puts them into kept,
// which may be the same.
func upsert(source string, pods []*v1.Pod, held, kept map[types.UID]*v1.Pod, c *changes[*v1.Pod]) (duplicates []*v1.Pod) {
	names := sets.New[string]()
	for _, pod := range pods {
		name := pod.Name + "_" + pod.Namespace
		if names.Has(name) {
			duplicates = append(duplicates, pod)
			continue
		}
		names.Insert(name)
		existing, ok := held[pod.UID]
		if !ok {
			// The copy is shallow: below the annotations nothing is written.
			added := *pod
			added.Annotations = firstAnnotations(source, pod.Annotations)
			kept[pod.UID] = &added
			c.add(ADD, &added)
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
				c.add(DELETE, existing)
			} else {
				c.add(UPDATE, existing)
			}
		case !reflect.DeepEqual(existing.Status, pod.Status):
			existing.Status = pod.Status
			c.add(RECONCILE, existing)
		}
	}
	return duplicates
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

func (r *reference) snapshot() []*v1.Pod {
	pods := []*v1.Pod{}
	for _, held := range r.pods {
		for _, pod := range held {
			pods = append(pods, pod.DeepCopy())
		}
	}
	return pods
}

func copies(pods []*v1.Pod) []*v1.Pod {
	out := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		out = append(out, pod.DeepCopy())
	}
	return out
}
