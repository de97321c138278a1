package pipeline

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

func isRelist(m storm.Mark) bool { return m.Type == storm.MarkRelist }
func isResync(m storm.Mark) bool { return m.Type == storm.MarkResync }

// marker plays the marks of a storm. before is called right before each event's release.
type marker struct {
	marks []storm.Mark
	play  func(storm.Mark)
}

func (m *marker) before(seq uint64) {
	for len(m.marks) > 0 && m.marks[0].After < seq {
		m.play(m.marks[0])
		m.marks = m.marks[1:]
	}
}

// expiry lets a Reflector's watch expire: it disconnects the watch and answers the
// attempt to resume it with 410 Gone. The Reflector lists again after two pauses of
// client-go's, 2 to 5 s together.
type expiry struct {
	cache.ListerWatcherWithContext
	lw cache.ListerWatcher
	// disconnect ends all open watches. expired is set until the next attempt to resume
	// one.
	disconnect func()
	expired    atomic.Bool
}

var (
	_ cache.ListerWatcher            = (*expiry)(nil)
	_ cache.ListerWatcherWithContext = (*expiry)(nil)
)

// newExpiry returns nil if the source cannot end its watches.
func newExpiry(src source.Source) *expiry {
	breakable, ok := src.(interface{ Disconnect() })
	if !ok {
		return nil
	}
	lw := src.ListerWatcher()
	return &expiry{ListerWatcherWithContext: cache.ToListerWatcherWithContext(lw), lw: lw, disconnect: breakable.Disconnect}
}

func (e *expiry) expire() {
	e.expired.Store(true)
	e.disconnect()
}

// List lists, as ListWithContext does.
func (e *expiry) List(o metav1.ListOptions) (runtime.Object, error) {
	return e.ListWithContext(context.Background(), o)
}

// Watch watches, as WatchWithContext does.
func (e *expiry) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return e.WatchWithContext(context.Background(), o)
}

// WatchWithContext refuses, once after expire, to resume a watch.
func (e *expiry) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	anew := o.SendInitialEvents != nil && *o.SendInitialEvents
	if !anew && o.ResourceVersion != "" && e.expired.CompareAndSwap(true, false) {
		return nil, errors.NewResourceExpired("the resource version is too old: the storm has a relist here")
	}
	return e.ListerWatcherWithContext.WatchWithContext(ctx, o)
}

// IsWatchListSemanticsUnSupported returns the source's answer. client-go finds the
// method by a type assertion.
func (e *expiry) IsWatchListSemanticsUnSupported() bool {
	lw, ok := e.lw.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && lw.IsWatchListSemanticsUnSupported()
}

// states returns, for each relist of the storm, the objects of that time in the order
// of their key indexes. O(events + relists × keys).
func states(s *storm.Storm) [][]any {
	marks := slices.DeleteFunc(slices.Clone(s.Marks), func(m storm.Mark) bool { return !isRelist(m) })
	if len(marks) == 0 {
		return nil
	}
	var out [][]any
	live := make([]any, s.Keys)
	for i := range s.Events {
		e := &s.Events[i]
		for len(marks) > 0 && marks[0].After < e.Seq {
			list := make([]any, 0, s.Keys)
			for _, o := range live {
				if o != nil {
					list = append(list, o)
				}
			}
			out = append(out, list)
			marks = marks[1:]
		}
		if live[e.KeyIndex] = e.Object; e.Type == watch.Deleted {
			live[e.KeyIndex] = nil
		}
	}
	return out
}
