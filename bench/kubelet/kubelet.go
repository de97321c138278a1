// Package kubelet is the real kubelet as a contestant: importing it registers
// PodConfig of k8s.io/kubernetes v1.31.14 as the merge variant "kubelet".
//
// It is a module of its own, for kubelet needs the k8s.io modules of its own
// release, and builds for a minute or two.
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

// Name of the variant.
const Name = "kubelet"

func init() { merge.Register(Variant()) }

// Variant is the real PodConfig behind the contract. Received pods are written
// to: kubelet puts its annotations into them.
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

var modes = map[merge.Mode]config.PodConfigNotificationMode{
	"":                       config.PodConfigNotificationIncremental,
	merge.Incremental:        config.PodConfigNotificationIncremental,
	merge.SnapshotAndUpdates: config.PodConfigNotificationSnapshotAndUpdates,
	merge.Snapshot:           config.PodConfigNotificationSnapshot,
}

// adapter gives PodConfig the contract's types. It adds a goroutine for each
// source and one for what is sent, which carry updates between kubelet's
// channels and the contract's, and follows each update with one that changes
// nothing: a microsecond or two an event, of several hundred.
//
// PodConfig's own goroutines end with their channels only, not with ctx, and
// can't be waited for; Close ends them all. What PodConfig has sent and the
// adapter has not handed over by then is lost too.
//
// SeenAllSources departs from the contract: a source for which Merge was
// called counts as one for which Channel was called, as PodConfig has no
// other way in.
type adapter struct {
	config   *config.PodConfig
	rejected func(source string, update merge.PodUpdate, err error)
	out      chan merge.PodUpdate

	// ctx ends the goroutines of the adapter, which carriers counts.
	ctx      context.Context
	cancel   context.CancelFunc
	carriers sync.WaitGroup
	// listening is PodConfig's ctx, which release ends.
	listening context.Context
	release   context.CancelFunc

	// calls is read-locked by each call that may send, and locked by Close to
	// wait for them.
	calls sync.RWMutex
	// closed is guarded by calls.
	closed bool
	// once makes Close's work happen once.
	once sync.Once

	mu sync.Mutex
	// ended is true when no goroutine may begin any more; guarded by mu.
	ended bool
	// upstream are PodConfig's channels by source, guarded by mu.
	upstream map[string]chan<- any
	// channels of the sources that have a goroutine, guarded by mu.
	channels map[string]chan merge.PodUpdate
}

func newAdapter(opts merge.Options) (merge.Merger, error) {
	mode, ok := modes[opts.Mode]
	if !ok {
		return nil, fmt.Errorf("%w: Mode %q (allowed: %s, %s, %s)",
			impls.ErrOptions, opts.Mode, merge.Incremental, merge.SnapshotAndUpdates, merge.Snapshot)
	}
	if opts.Capacity != 0 && opts.Capacity != merge.DefaultCapacity {
		return nil, fmt.Errorf("%w: Capacity %d: upstream's channel has %d (allowed: 0, %d)",
			impls.ErrOptions, opts.Capacity, merge.DefaultCapacity, merge.DefaultCapacity)
	}
	if opts.HandOver != "" && opts.HandOver != impls.Owned {
		return nil, fmt.Errorf("%w: HandOver %q: kubelet copies what it hands over (allowed: %s)",
			impls.ErrOptions, opts.HandOver, impls.Owned)
	}
	if opts.Trust != "" && opts.Trust != merge.TrustVersions {
		return nil, fmt.Errorf("%w: Trust %q: kubelet compares every pod (allowed: %s)",
			impls.ErrOptions, opts.Trust, merge.TrustVersions)
	}
	a := &adapter{
		config:   config.NewPodConfig(mode, recorder{to: opts.Recorder}, observer{}),
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

// carryOut carries what PodConfig sends to the contract's channel.
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

// Close is [merge.Merger.Close].
func (a *adapter) Close() { a.once.Do(a.close) }

func (a *adapter) close() {
	a.cancel()
	a.mu.Lock()
	a.ended = true
	upstream := maps.Clone(a.upstream)
	a.mu.Unlock()
	a.carriers.Wait()

	// Whatever waits for a receiver gets one, calls of Sync included.
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
		// When this no-op is taken, what came before is done with.
		in <- types.PodUpdate{Op: types.REMOVE}
	}
	// PodConfig's goroutines must listen until here, and must not begin anew
	// when their channel is closed.
	a.release()
	for _, in := range upstream {
		close(in)
	}
	close(stop)
	drain.Wait()
	close(a.out)
}

// source returns PodConfig's channel of a source. The caller holds mu.
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

// Channel is [merge.Merger.Channel].
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
	if in, ok := a.channels[source]; ok {
		return in, nil
	}
	in := make(chan merge.PodUpdate)
	a.channels[source] = in
	a.carriers.Go(func() { a.carryIn(ctx, source, in, upstream) })
	return in, nil
}

// carryIn carries the updates of a source to PodConfig.
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
			if err := update.Check(); err != nil {
				if a.rejected != nil {
					a.rejected(source, update, fmt.Errorf("merge from %s: %w", source, err))
				}
				continue
			}
			if a.hand(ctx, upstream, update) != nil {
				return
			}
		}
	}
}

// noop is an update that changes nothing. PodConfig's goroutine of a source
// takes it when it has merged what came before, and told of it.
var noop = merge.PodUpdate{Op: merge.REMOVE}

// hand hands an update over and waits until it has been merged.
func (a *adapter) hand(ctx context.Context, upstream chan<- any, update merge.PodUpdate) error {
	for _, u := range [...]merge.PodUpdate{update, noop} {
		select {
		case upstream <- types.PodUpdate{Pods: u.Pods, Op: types.PodOperation(u.Op), Source: u.Source}:
		case <-a.ctx.Done():
			return fmt.Errorf("merge: %w", merge.ErrClosed)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Merge is [merge.Merger.Merge], save that an update isn't in the state when
// ctx ended while an earlier one of its source was merged.
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
	return a.hand(ctx, upstream, update)
}

// Updates is [merge.Merger.Updates].
func (a *adapter) Updates() <-chan merge.PodUpdate { return a.out }

// SeenAllSources is [merge.Merger.SeenAllSources].
func (a *adapter) SeenAllSources(seen sets.Set[string]) bool { return a.config.SeenAllSources(seen) }

// Sync is [merge.Merger.Sync].
func (a *adapter) Sync() {
	a.calls.RLock()
	defer a.calls.RUnlock()
	if !a.closed {
		a.config.Sync()
	}
}

// recorder passes on what kubelet tells, which is no more than Eventf.
type recorder struct {
	record.EventRecorder
	to merge.EventRecorder
}

// Eventf is [record.EventRecorder.Eventf].
func (r recorder) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	if r.to != nil {
		r.to.Eventf(object, eventtype, reason, format, args...)
	}
}

// observer stands in for kubelet's startup metrics.
type observer struct{}

// ObservedPodOnWatch is called by kubelet for pods that aren't static.
func (observer) ObservedPodOnWatch(*v1.Pod, time.Time) {}
