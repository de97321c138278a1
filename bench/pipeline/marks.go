package pipeline

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	lw cache.ListerWatcher // the source's, for the Reflector
	// disconnect ends all open watches. expired is set until the next attempt to resume
	// one.
	disconnect func()
	expired    atomic.Bool
}

// newExpiry returns nil if the source cannot end its watches.
func newExpiry(src source.Source) *expiry {
	breakable, ok := src.(interface{ Disconnect() })
	if !ok {
		return nil
	}
	lw := src.ListerWatcher()
	inner := cache.ToListerWatcherWithContext(lw)
	e := &expiry{disconnect: breakable.Disconnect}
	e.lw = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			anew := o.SendInitialEvents != nil && *o.SendInitialEvents
			if !anew && o.ResourceVersion != "" && e.expired.CompareAndSwap(true, false) {
				return nil, errors.NewResourceExpired("the resource version is too old: the storm has a relist here")
			}
			return inner.WatchWithContext(ctx, o)
		},
	}, lw)
	return e
}

func (e *expiry) expire() {
	e.expired.Store(true)
	e.disconnect()
}
