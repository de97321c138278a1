package pipeline

import (
	"context"
	"runtime"
	"time"

	"watchlab/bench/cell"
)

// fillAndDrain queues everything while the consumer is held, sees what that takes
// of the heap, and then measures how it drains. open lets the consumer go on. What
// is queued was made before, so that the objects don't count: only what the queue
// itself keeps of them, its keys and its slices.
func (w *fifo) fillAndDrain(ctx context.Context, rec *cell.Recorder, open func(), consumed <-chan struct{}) error {
	before := liveHeap()
	begun := time.Now()
	if err := w.produce(ctx); err != nil {
		return err
	}
	filled := time.Since(begun)
	after := liveHeap()
	waiting := w.queue.Len()

	rec.Begin()
	open()
	w.queue.Close()
	begun = time.Now()
	err := w.awaitOr(ctx, consumed)
	drained := time.Since(begun)
	rec.End()

	events := float64(len(w.score.Events) - w.score.Initial)
	rec.Note("B/queued-event", float64(int64(after)-int64(before))/events)
	rec.Note("waiting", float64(waiting))
	rec.Note("fill-ns/event", float64(filled)/events)
	rec.Note("drain-ns/event", float64(drained)/events)
	return err
}

// liveHeap returns how many bytes the heap's live objects take. What a pool holds
// goes with the second collection.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
