package barrier

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/source/cluster"
)

// watch follows the Leases of the run: the leader all, other members the start Lease.
func (b *Barrier) watch(ctx context.Context) {
	limit := func(opts *metav1.ListOptions) {
		if b.opts.Self == leader {
			opts.LabelSelector = labels.Set{cluster.RunLabel: b.opts.Run}.String()
		} else {
			opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, startName(b.opts.Run)).String()
		}
	}
	r := cache.NewReflectorWithOptions(cluster.ListWatch(b.opts.Leases, limit, b.opts.Leases), &coordinationv1.Lease{}, leaseStore{b}, cache.ReflectorOptions{
		Name: "barrier",
		// Other members wait, so keep the backoff short; client-go's goes up to 1 min.
		Backoff: &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 4 * time.Second},
	})
	b.watching.Go(func() { r.RunWithContext(ctx) })
}

// leaseStore parses the Leases. Positions never decrease, so a member without Lease keeps its own.
type leaseStore struct{ b *Barrier }

var _ cache.ReflectorStore = leaseStore{}

func (h leaseStore) Add(o any) error    { return h.Replace([]any{o}, "") }
func (h leaseStore) Update(o any) error { return h.Replace([]any{o}, "") }
func (h leaseStore) Delete(any) error   { return nil }
func (h leaseStore) Resync() error      { return nil }
func (h leaseStore) Replace(leases []any, _ string) error {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range leases {
		l, ok := o.(*coordinationv1.Lease)
		if !ok || l.Labels[cluster.RunLabel] != b.opts.Run {
			continue
		}
		if l.Name == startName(b.opts.Run) {
			// A resumed watch may deliver an older start.
			if s, ok := readStart(l); ok && s.Position >= b.start.Position {
				b.start = s
			}
		} else if p, ok := Read(l); ok {
			b.progress[p.Member] = p
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}
