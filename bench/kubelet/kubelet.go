// Package kubelet registers the real kubelet as the merge variant "kubelet": PodConfig
// of k8s.io/kubernetes v1.31.14. Import it for its side effect.
//
// The package is a separate module because kubelet needs the k8s.io modules of its own
// release. The build takes one to two minutes.
package kubelet

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/types"

	"watchlab/impls"
	"watchlab/impls/merge"
)

// Name is the name of the variant.
const Name = "kubelet"

func init() { merge.Register(Variant()) }

// Variant returns PodConfig as a [merge.Variant]. PodConfig modifies received pods: it
// adds kubelet's annotations.
func Variant() merge.Variant {
	return merge.Variant{
		Name:     Name,
		Summary:  "the real PodConfig: mux, podStorage, reflect.DeepEqual on every pod",
		Upstream: "k8s.io/kubernetes v1.31.14",
		Guarantees: []impls.Guarantees{{
			Order:     impls.OrderTotal,
			Coalesces: impls.CoalesceNone,
			Bounded:   true,
			Consumers: impls.ManyConsumers,
		}},
		New: newAdapter,
	}
}

// adapter gives PodConfig the contract's types.
//
// Cost: one goroutine per source and one for the output copy updates between kubelet's
// channels and the contract's. The adapter also sends a no-op after each update. Both
// cost 1-2 µs per event; PodConfig itself takes several hundred.
//
// PodConfig's goroutines end when their channels close, not when ctx is done, and no
// call waits for them. Close ends them all. Close drops updates that PodConfig has sent
// and the adapter has not yet delivered.
//
// SeenAllSources departs from the contract: a call of Merge registers its source, as
// Channel does. PodConfig accepts updates through Channel only.
type adapter struct {
	config *config.PodConfig
	// rejected receives invalid updates. Nil drops them.
	rejected func(source string, update merge.PodUpdate, err error)
	out      chan merge.PodUpdate

	// ctx is the lifetime of the adapter's goroutines. cancel ends it; carriers counts
	// the goroutines.
	ctx      context.Context
	cancel   context.CancelFunc
	carriers sync.WaitGroup
	// listening is the lifetime of PodConfig's goroutines. release ends it.
	listening context.Context
	release   context.CancelFunc

	// calls waits for calls that send: each holds the read lock, and Close takes the
	// write lock. It guards closed.
	calls  sync.RWMutex
	closed bool
	once   sync.Once

	mu       sync.Mutex                      // guards the fields below
	ended    bool                            // forbids new goroutines
	upstream map[string]chan<- any           // PodConfig's channel of each source
	channels map[string]chan merge.PodUpdate // of each source that has a goroutine
}

func newAdapter(opts merge.Options) (merge.Merger, error) {
	if opts.Capacity != 0 && opts.Capacity != merge.DefaultCapacity {
		return nil, fmt.Errorf("%w: Capacity %d: upstream's channel has %d (allowed: 0, %d)",
			impls.ErrOptions, opts.Capacity, merge.DefaultCapacity, merge.DefaultCapacity)
	}
	a := &adapter{
		config:   config.NewPodConfig(config.PodConfigNotificationIncremental, recorder{to: opts.Recorder}, observer{}),
		rejected: opts.Rejected,
		out:      make(chan merge.PodUpdate),
		upstream: make(map[string]chan<- any),
		channels: make(map[string]chan merge.PodUpdate),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.listening, a.release = context.WithCancel(context.Background())
	a.carriers.Go(a.carryOut)
	return a, nil
}

// carryOut copies updates from PodConfig to the contract's channel.
func (a *adapter) carryOut() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case update := <-a.config.Updates():
			select {
			case a.out <- merge.PodUpdate{Pods: update.Pods, Op: merge.Op(update.Op), Source: update.Source}:
			case <-a.ctx.Done():
				return
			}
		}
	}
}

// Close implements [merge.Merger].
func (a *adapter) Close() { a.once.Do(a.close) }

func (a *adapter) close() {
	a.cancel()
	a.mu.Lock()
	a.ended = true
	upstream := maps.Clone(a.upstream)
	a.mu.Unlock()
	a.carriers.Wait()

	// Drain the output: blocked senders, such as a call of Sync, can then return.
	stop := make(chan struct{})
	var drain sync.WaitGroup
	drain.Go(func() {
		for {
			select {
			case <-a.config.Updates():
			case <-stop:
				return
			}
		}
	})
	a.calls.Lock()
	a.closed = true
	a.calls.Unlock()
	for _, in := range upstream {
		in <- noop
	}
	// PodConfig's goroutines must listen until here. End their context before their
	// channels close, or they start again.
	a.release()
	for _, in := range upstream {
		close(in)
	}
	close(stop)
	drain.Wait()
	close(a.out)
}

// source returns PodConfig's channel of a source, and creates a missing one. The caller
// holds mu. The error is [merge.ErrClosed].
func (a *adapter) source(name string) (chan<- any, error) {
	if a.ended {
		return nil, merge.ErrClosed
	}
	in, ok := a.upstream[name]
	if !ok {
		in = a.config.Channel(a.listening, name)
		a.upstream[name] = in
	}
	return in, nil
}

// Channel implements [merge.Merger].
func (a *adapter) Channel(ctx context.Context, source string) (chan<- merge.PodUpdate, error) {
	if source == "" {
		return nil, fmt.Errorf("channel: %w", merge.ErrSource)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	upstream, err := a.source(source)
	if err != nil {
		return nil, fmt.Errorf("channel of %s: %w", source, err)
	}
	in, ok := a.channels[source]
	if !ok {
		in = make(chan merge.PodUpdate)
		a.channels[source] = in
		a.carriers.Go(func() { a.carryIn(ctx, source, in, upstream) })
	}
	return in, nil
}

// carryIn copies the updates of a source to PodConfig.
func (a *adapter) carryIn(ctx context.Context, source string, in <-chan merge.PodUpdate, upstream chan<- any) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.channels, source)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.ctx.Done():
			return
		case update, open := <-in:
			if !open {
				return
			}
			if err := update.Check(); err == nil {
				if a.send(ctx, upstream, update) != nil {
					return
				}
			} else if a.rejected != nil {
				a.rejected(source, update, fmt.Errorf("merge from %s: %w", source, err))
			}
		}
	}
}

// noop is an update without an effect. PodConfig receives it after it has merged and
// sent all earlier updates of the source.
var noop = types.PodUpdate{Op: types.REMOVE}

// send sends an update to PodConfig and waits until PodConfig has merged it.
func (a *adapter) send(ctx context.Context, upstream chan<- any, update merge.PodUpdate) error {
	for _, u := range [...]types.PodUpdate{{Pods: update.Pods, Op: types.PodOperation(update.Op), Source: update.Source}, noop} {
		select {
		case upstream <- u:
		case <-a.ctx.Done():
			return fmt.Errorf("merge: %w", merge.ErrClosed)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Merge implements [merge.Merger], with one exception: it drops the update if ctx ends
// while PodConfig merges an earlier update of the source.
func (a *adapter) Merge(ctx context.Context, source string, update merge.PodUpdate) error {
	if source == "" {
		return fmt.Errorf("merge: %w", merge.ErrSource)
	}
	if err := update.Check(); err != nil {
		return fmt.Errorf("merge from %s: %w", source, err)
	}
	a.calls.RLock()
	defer a.calls.RUnlock()
	a.mu.Lock()
	upstream, err := a.source(source)
	a.mu.Unlock()
	if err != nil {
		return fmt.Errorf("merge from %s: %w", source, err)
	}
	return a.send(ctx, upstream, update)
}

// Updates implements [merge.Merger].
func (a *adapter) Updates() <-chan merge.PodUpdate { return a.out }

// SeenAllSources implements [merge.Merger].
func (a *adapter) SeenAllSources(seen sets.Set[string]) bool { return a.config.SeenAllSources(seen) }

// Sync implements [merge.Merger]. After Close it does nothing.
func (a *adapter) Sync() {
	a.calls.RLock()
	defer a.calls.RUnlock()
	if !a.closed {
		a.config.Sync()
	}
}

// recorder forwards Eventf, the only method that PodConfig calls. A nil to drops all events.
type recorder struct {
	record.EventRecorder
	to merge.EventRecorder
}

// Eventf implements [record.EventRecorder].
func (r recorder) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	if r.to != nil {
		r.to.Eventf(object, eventtype, reason, format, args...)
	}
}

// observer replaces kubelet's startup metrics with no-ops.
type observer struct{}

// ObservedPodOnWatch does nothing. Kubelet calls it for pods that are not static.
func (observer) ObservedPodOnWatch(*v1.Pod, time.Time) {}
