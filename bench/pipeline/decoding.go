package pipeline

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/pprof"
	"watchlab/impls/decode"
	"watchlab/loadgen/source"
)

// decoding stamps the events of a watch over HTTP: wire, when the client has the bytes of the frame,
// and decoded. Several goroutines may decode, also an event twice, such as after a disconnect; the
// first time counts. The sequence number is known only after decoding: a goroutine that decodes one
// event after the other reads the clock for the events that are due, any other for each frame.
type decoding struct {
	st            *stamps
	wire, decoded []atomic.Int64
	stages        pprof.Stages // labels a decoding goroutine: decode or source
}

// observe stamps and labels what a source decodes, and returns an object of the type of its objects. A
// source in memory decodes nothing.
func (s *stamps) observe(ctx context.Context, src source.Source, like runtime.Object) (runtime.Object, error) {
	api, ok := src.(*source.APIServer)
	switch {
	case !ok:
		return like, nil
	case s.none && !pprof.Labelled(ctx):
		return api.Like(like)
	}
	d := &decoding{st: s, stages: pprof.Switch(ctx, stageDecode, stageSource)}
	if !s.none {
		s.decoding = d
		d.wire, d.decoded = make([]atomic.Int64, len(s.released)), make([]atomic.Int64, len(s.released))
	}
	if err := api.Observe(func() decode.Observer { return &decodingFrame{decoding: d} }); err != nil {
		return nil, err
	}
	return api.Like(like)
}

// at returns the stamps of an event so far.
func (d *decoding) at(seq uint64) (wire, decoded int64) {
	if d == nil {
		return 0, 0
	}
	return d.wire[seq].Load(), d.decoded[seq].Load()
}

// intervals returns the intervals between released and enqueued.
func (d *decoding) intervals() []interval {
	if d == nil {
		return nil
	}
	wire, decoded := make([]int64, len(d.wire)), make([]int64, len(d.wire))
	for seq := range wire {
		wire[seq], decoded[seq] = d.at(uint64(seq))
	}
	return []interval{{ReleasedWire, d.st.released, wire}, {WireDecoded, wire, decoded}, {DecodedEnqueued, decoded, d.st.enqueued}}
}

// decodingFrame observes a goroutine that decodes.
type decodingFrame struct {
	*decoding
	wire  int64  // of the present frame; 0 if it is not due
	last  uint64 // event
	inRow bool   // last followed the one before
}

func (f *decodingFrame) Begin() {
	f.stages.To(0)
	if f.wire = 0; f.decoding.wire != nil && (!f.inRow || (f.last+1)&f.st.mask == 0) {
		f.wire = f.st.now()
	}
}

func (f *decodingFrame) End(event watch.EventType, obj runtime.Object) {
	f.stages.To(1)
	switch event {
	case watch.Added, watch.Modified, watch.Deleted:
		seq := sequence(obj)
		f.inRow, f.last = seq == f.last+1, seq
		if f.wire != 0 && seq&f.st.mask == 0 && seq < uint64(len(f.decoding.wire)) && f.decoding.wire[seq].CompareAndSwap(0, f.wire) {
			f.decoded[seq].Store(f.st.now())
		}
	}
}
