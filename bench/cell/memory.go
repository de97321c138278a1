package cell

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// sampleEvery is how often the heap is looked at: a peak of less than that may be
// missed. A look takes about a microsecond.
const sampleEvery = 2 * time.Millisecond

// watcher watches what the process takes. It is used by one recorder, which
// stops it.
type watcher struct {
	quit       atomic.Bool
	done       sync.WaitGroup
	sample     []metrics.Sample
	heap, peak uint64
	rss        uint64
	reset      bool
}

// watch gives back to the system what isn't used, and begins. It takes as long as
// a look comes after another.
func watch() *watcher {
	debug.FreeOSMemory()
	w := &watcher{
		sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}},
		reset:  ResetPeakRSS() == nil,
	}
	w.rss, _ = PeakRSS(Root())
	w.heap = w.look()
	w.peak = w.heap
	// A goroutine's first sleep allocates, so that one is waited for. Channels and
	// tickers may allocate whenever they are waited for.
	began := make(chan struct{})
	w.done.Go(func() {
		time.Sleep(sampleEvery)
		close(began)
		for !w.quit.Load() {
			w.peak = max(w.peak, w.look())
			time.Sleep(sampleEvery)
		}
	})
	<-began
	return w
}

// stop ends the watching and returns what was seen.
func (w *watcher) stop() Memory {
	w.quit.Store(true)
	w.done.Wait()
	m := Memory{HeapBytes: w.heap, PeakHeapBytes: max(w.peak, w.look())}
	// A peak that couldn't be reset tells of this measurement only where it has
	// been exceeded.
	if rss, ok := PeakRSS(Root()); ok && (w.reset || rss > w.rss) {
		m.PeakRSSBytes = rss
	}
	return m
}

// look returns what live objects take, and dead ones that haven't been swept.
func (w *watcher) look() uint64 {
	metrics.Read(w.sample)
	if w.sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return w.sample[0].Value.Uint64()
}
