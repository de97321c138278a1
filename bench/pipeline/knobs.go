package pipeline

import (
	"errors"
	"fmt"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
)

// Knobs are options of variants; the zero value is each variant's default. A variant
// without these options, such as client-go's, is played without them, as the
// baseline; its labels and guarantees show that. At least one variant has to take
// them.
type Knobs struct {
	// Capacity is the queue capacity; producers block when the queue is full. 0 means
	// unbounded.
	Capacity int
	// BatchSize is the largest number of keys in one hand-over; deltafifo only.
	BatchSize int
	// Shards is the number of shards of a queue; not for merge.
	Shards int
	// Compaction selects the deltas that a queue may drop; deltafifo only.
	Compaction deltafifo.Compaction
	// HandOver is the ownership of the slices that the consumer gets; not for queue.
	HandOver impls.Ownership
	// Trust selects the guarantees of the API server that a merger relies on; merge
	// only.
	Trust merge.Trust
}

func (k Knobs) none() bool { return k == Knobs{} }

// label adds a label for each knob that is set.
func (k Knobs) label(l *labelSet) {
	l.add("capacity", k.Capacity)
	l.add("batch", k.BatchSize)
	l.add("shards", k.Shards)
	l.add("compaction", k.Compaction)
	l.add("handover", k.HandOver)
	l.add("trust", k.Trust)
}

// foreign returns the first knob that the family doesn't have.
func (k Knobs) foreign(f impls.Family) string {
	switch {
	case k.BatchSize != 0 && f != impls.DeltaFIFO:
		return "batch size"
	case k.Shards != 0 && f == impls.Merge:
		return "shards"
	case k.Compaction != "" && f != impls.DeltaFIFO:
		return "compaction"
	case k.HandOver != "" && f == impls.Queue:
		return "hand-over"
	case k.Trust != "" && f != impls.Merge:
		return "trust"
	}
	return ""
}

func (k Knobs) deltafifo(o deltafifo.Options) deltafifo.Options {
	o.Capacity, o.BatchSize, o.Shards = k.Capacity, k.BatchSize, k.Shards
	o.Compaction, o.HandOver = k.Compaction, k.HandOver
	return o
}

func (k Knobs) queue() queue.Options { return queue.Options{Capacity: k.Capacity, Shards: k.Shards} }

func (k Knobs) merge() merge.Options {
	return merge.Options{Capacity: k.Capacity, HandOver: k.HandOver, Trust: k.Trust}
}

// fitting collects which variants take the knobs.
type fitting struct {
	knobs Knobs
	// taken counts the variants that accepted the knobs; refusal is the error of the
	// last one that did not.
	taken   int
	refusal error
}

// fit returns the knobs for a candidate, or none where it does not take them.
func (f *fitting) fit(c candidate) (Knobs, error) {
	if f.knobs.none() {
		return Knobs{}, nil
	}
	instance, err := c.try(f.knobs)
	switch {
	case errors.Is(err, impls.ErrOptions):
		f.refusal = fmt.Errorf("%s: %w", c.name, err)
		return Knobs{}, nil
	case err != nil:
		return Knobs{}, err
	}
	if closer, ok := instance.(interface{ Close() }); ok {
		closer.Close()
	}
	f.taken++
	return f.knobs, nil
}

// err is the last refusal, if no variant took the knobs.
func (f *fitting) err() error {
	if f.knobs.none() || f.taken > 0 {
		return nil
	}
	return fmt.Errorf("%w: no variant takes these options: %w", ErrConfig, f.refusal)
}
