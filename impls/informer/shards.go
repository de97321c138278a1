package informer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/decode"
)

// maxShards bounds [Options.Shards].
const maxShards = 64

// shards lists and watches a resource in several shards at once, by the hash of the namespace (KEP-5866). It belongs
// to one Reflector. The hash of the uid would balance better, and lose objects: an object that is deleted and made again under
// its name has another uid, so its deletion could come after its addition from another shard.
//
// An event is delivered in the order of its shard alone. So a version that the Reflector has seen says nothing about
// other shards, and a watch goes on from the version of each shard, whatever version it is asked for. A bookmark has
// the oldest version of all shards. When the watch of a shard ends, the others do.
type shards struct {
	lw cache.ListerWatcherWithContext
	n  int

	mu   sync.Mutex  // guards the fields below
	at   []string    // versions that the shards have delivered; nil before the first list
	last *shardWatch // that delivers them; nil before the first watch
}

// end ends the last watch. Then at has all that it has delivered.
func (s *shards) end() {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		last.cancel()
		<-last.ended
	}
}

func sharded(lw cache.ListerWatcher, n int) cache.ListerWatcher {
	s := &shards{lw: cache.ToListerWatcherWithContext(lw), n: n}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}, lw)
}

// bounds returns the first hash of a shard and that after its last one; 0 ends the hashes.
func (s *shards) bounds(i int) (from, to uint64) {
	from, _ = bits.Div64(uint64(i), 0, uint64(s.n))
	if i+1 < s.n {
		to, _ = bits.Div64(uint64(i+1), 0, uint64(s.n))
	}
	return from, to
}

func (s *shards) selector(i int) string {
	from, to := s.bounds(i)
	end := fmt.Sprintf("0x%016x", to)
	if to == 0 {
		end = "0x10000000000000000"
	}
	return fmt.Sprintf("shardRange(object.metadata.namespace, '0x%016x', '%s')", from, end)
}

// errNotSharded is the answer of a server that ignores the parameter: each shard would have all objects.
var errNotSharded = errors.New("informer: the API server does not shard (its feature gate ShardedListAndWatch is off)")

func (s *shards) holds(i int, obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.GetNamespace()))
	from, to := s.bounds(i)
	return h.Sum64() >= from && (to == 0 || h.Sum64() < to)
}

// each calls f for all shards at once and returns the first error, which cancels the others.
func (s *shards) each(cancel context.CancelFunc, f func(i int) error) error {
	errs := make(chan error, s.n)
	for i := range s.n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range s.n {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// options returns the options of a shard for a list or watch with its state. It asks for nothing older than what the
// shard has delivered, which may be newer than what the Reflector knows.
func (s *shards) options(i int, o metav1.ListOptions, at []string) metav1.ListOptions {
	o.ShardSelector = s.selector(i)
	if o.ResourceVersion != "" && o.ResourceVersion != "0" && o.ResourceVersionMatch != metav1.ResourceVersionMatchExact && at != nil {
		if order, err := resourceversion.CompareResourceVersion(at[i], o.ResourceVersion); err == nil && order > 0 {
			o.ResourceVersion = at[i]
		}
	}
	return o
}

// list lists all shards, without pages. Its version is the oldest one of them.
func (s *shards) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	last := s.at
	s.mu.Unlock()
	lists, at := make([]*decode.List, s.n), make([]string, s.n)
	o.Limit, o.Continue = 0, ""
	err := s.each(cancel, func(i int) error {
		obj, err := s.lw.ListWithContext(ctx, s.options(i, o, last))
		if err != nil {
			return err
		}
		l, ok := obj.(*decode.List)
		if !ok || l.ShardInfo == nil {
			return errNotSharded
		}
		lists[i], at[i] = l, l.ResourceVersion
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := lists[0]
	for _, l := range lists[1:] {
		all.Items = append(all.Items, l.Items...)
	}
	all.ShardInfo, all.ResourceVersion = nil, oldest(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
	return all, nil
}

// oldest returns the oldest version, or "" if one is not known yet.
func oldest(versions []string) string {
	old := versions[0]
	for _, v := range versions {
		if v == "" {
			return ""
		}
		if order, err := resourceversion.CompareResourceVersion(v, old); err != nil || order < 0 {
			old = v
		}
	}
	return old
}

// watch watches all shards.
func (s *shards) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	begins := o.SendInitialEvents != nil && *o.SendInitialEvents
	m := &shardWatch{
		shards: s, cancel: cancel, done: ctx.Done(), result: make(chan watch.Event), ended: make(chan struct{}),
		begun: slices.Repeat([]bool{!begins}, s.n),
	}
	watches := make([]watch.Interface, s.n)
	err := s.each(cancel, func(i int) (err error) {
		o := s.options(i, o, s.at)
		if !begins && s.at != nil {
			o.ResourceVersion = s.at[i]
		}
		watches[i], err = s.lw.WatchWithContext(ctx, o)
		return err
	})
	if err != nil {
		cancel()
		for _, w := range watches {
			if w != nil {
				w.Stop()
			}
		}
		return nil, err
	}
	switch {
	case begins:
		s.at = make([]string, s.n)
	case s.at == nil:
		s.at = slices.Repeat([]string{o.ResourceVersion}, s.n)
	}
	s.last = m
	var open sync.WaitGroup
	for i, w := range watches {
		open.Go(func() {
			defer w.Stop()
			defer cancel()
			m.forward(i, w)
		})
	}
	go func() {
		open.Wait()
		close(m.ended)
		close(m.result)
	}()
	return m, nil
}

// shardWatch is the watch of all shards.
type shardWatch struct {
	*shards
	cancel context.CancelFunc
	done   <-chan struct{}
	result chan watch.Event
	ended  chan struct{} // closed when nothing is delivered any more

	sending sync.Mutex // guards begun and the order of result
	begun   []bool     // shards whose initial events have ended
}

// Stop implements [watch.Interface].
func (m *shardWatch) Stop() { m.cancel() }

// ResultChan implements [watch.Interface].
func (m *shardWatch) ResultChan() <-chan watch.Event { return m.result }

// forward forwards the events of a shard until its watch or another one ends.
func (m *shardWatch) forward(i int, w watch.Interface) {
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok || !m.send(i, e) || e.Type == watch.Error {
				return
			}
		case <-m.done:
			return
		}
	}
}

// send returns false if the watch has ended.
func (m *shardWatch) send(i int, e watch.Event) bool {
	if e.Type != watch.Error && e.Type != watch.Bookmark && !m.holds(i, e.Object) {
		status := apierrors.NewInternalError(errNotSharded).Status()
		e = watch.Event{Type: watch.Error, Object: &status}
	}
	m.sending.Lock()
	defer m.sending.Unlock()
	select {
	case <-m.done:
		return false
	default:
	}
	var version string // read before the event is the Reflector's
	if o, err := meta.Accessor(e.Object); err == nil && e.Type != watch.Error {
		version = o.GetResourceVersion()
	}
	if e.Type == watch.Bookmark && !m.bookmark(i, e.Object) {
		return true
	}
	select {
	case m.result <- e:
	case <-m.done:
		return false
	}
	if e.Type != watch.Bookmark && version != "" {
		m.mu.Lock()
		m.at[i] = version
		m.mu.Unlock()
	}
	return e.Type != watch.Error
}

// bookmark notes the bookmark of a shard and makes it one of all. It returns false if there is none yet.
func (m *shardWatch) bookmark(i int, obj runtime.Object) bool {
	o, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[i] = o.GetResourceVersion()
	if _, ends := o.GetAnnotations()[metav1.InitialEventsAnnotationKey]; ends {
		m.begun[i] = true
	}
	old := oldest(m.at)
	o.SetResourceVersion(old)
	return !slices.Contains(m.begun, false) && old != ""
}
