package observe

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/cell"
	"watchlab/bench/pprof"
	"watchlab/impls/decode"
	"watchlab/loadgen/source"
)

// ObserveDecoding stamps wire and decoded of what a client of an API server decodes, and labels its
// goroutines with one of two stages: decode or source. Several goroutines may decode, also an event twice,
// such as after a disconnect; the first time counts.
func (s *Stamps) ObserveDecoding(api *source.APIServer, labels pprof.Stages) error {
	if s.Sampling != None {
		n := len(s.at[released])
		s.at[wire], s.at[decoded] = make([]int64, n), make([]int64, n)
	}
	return api.Observe(func() decode.Observer { return &decodingFrame{st: s, labels: labels} })
}

// DecodingBoundaries returns the parts of released→enqueued that a client's decoder has; none without one.
func (s *Stamps) DecodingBoundaries() []cell.Boundary {
	if s.at[wire] == nil {
		return nil
	}
	return []cell.Boundary{ReleasedWire, WireDecoded, DecodedEnqueued}
}

// decodingFrame observes a goroutine that decodes. The sequence number is known only after decoding: a
// goroutine that decodes one event after the other reads the clock for the events that are due, any other
// for each frame.
type decodingFrame struct {
	st     *Stamps
	labels pprof.Stages
	began  int64  // of the present frame; 0 if it is not due
	last   uint64 // event
	inRow  bool   // last followed the one before
}

func (f *decodingFrame) Begin() {
	f.labels.To(0)
	if f.began = 0; f.st.at[wire] != nil && (!f.inRow || (f.last+1)&uint64(f.st.Sampling) == 0) {
		f.began = f.st.Now()
	}
}

func (f *decodingFrame) End(event watch.EventType, obj runtime.Object) {
	f.labels.To(1)
	switch event {
	case watch.Added, watch.Modified, watch.Deleted:
		seq, at := Sequence(obj), f.st.at[wire]
		f.inRow, f.last = seq == f.last+1, seq
		if f.began != 0 && seq&uint64(f.st.Sampling) == 0 && seq < uint64(len(at)) && atomic.CompareAndSwapInt64(&at[seq], 0, f.began) {
			atomic.StoreInt64(&f.st.at[decoded][seq], f.st.Now())
		}
	}
}
