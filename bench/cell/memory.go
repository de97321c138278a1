package cell

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// sampleEvery is the interval of heap samples. Shorter peaks may be missed. A sample
// takes about 1 µs.
const sampleEvery = 2 * time.Millisecond

type watcher struct {
	quit   atomic.Bool
	done   sync.WaitGroup
	sample []metrics.Sample // buffer of the samples, so that sampling does not allocate
	heap   uint64           // at the start
	peak   atomic.Uint64    // the largest sample
	reset  bool             // the peak of the resident set was reset at the start
}

// watch returns free memory to the system and starts the watcher. It takes at least one
// sampling interval.
func watch() *watcher {
	debug.FreeOSMemory()
	w := &watcher{
		sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}},
		reset:  ResetPeakRSS() == nil,
	}
	w.heap = w.look()
	w.peak.Store(w.heap)
	// A goroutine's first sleep allocates, so wait for it. Do not use channels or
	// tickers in the loop: they may allocate at any wait.
	began := make(chan struct{})
	w.done.Go(func() {
		time.Sleep(sampleEvery)
		close(began)
		for !w.quit.Load() {
			w.peak.Store(max(w.peak.Load(), w.look()))
			time.Sleep(sampleEvery)
		}
	})
	<-began
	return w
}

func (w *watcher) stop() Memory {
	w.quit.Store(true)
	w.done.Wait()
	m := Memory{HeapBytes: w.heap, PeakHeapBytes: max(w.peak.Load(), w.look())}
	if w.reset { // Some containers deny it: the peak may be of before.
		m.PeakRSSBytes, _ = PeakRSS(Root())
	}
	return m
}

// look returns the size of live objects and of dead ones that are not yet swept.
func (w *watcher) look() uint64 {
	metrics.Read(w.sample)
	return whole(w.sample[0].Value)
}
