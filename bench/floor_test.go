package bench_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"watchlab/loadgen/storm"
)

// BenchmarkFloor measures the lower bound of this machine: one producer's events through
// an unchecked ring of pointers, and the same with one map look-up for each event. It
// spins instead of waking up, and has no key order, no Replace and no second producer.
// No queue of BenchmarkDeltaFIFO can be faster.
func BenchmarkFloor(b *testing.B) {
	for _, skew := range []string{"uniform", "zipf:1.1"} {
		s := updates(b, skew, queueEvents)
		for _, mapped := range []bool{false, true} {
			name := "floor=ring"
			if mapped {
				name = "floor=ring+map"
			}
			b.Run(name+"/storm="+s.Name, func(b *testing.B) {
				keys := map[string]int{}
				if mapped {
					for i := range s.Events {
						keys[s.Events[i].Key] = 1
					}
				}
				runtime.GC()
				events := 0
				for b.Loop() {
					events += passThrough(s.Events, keys)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/op")
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// floorRing is a ring of one producer and one consumer. Each has its counter on its own
// cache line. The ring fits into the caches.
type floorRing struct {
	slots [1024]*storm.Event
	_     [128]byte

	pushed atomic.Uint64
	_      [120]byte

	popped atomic.Uint64
	_      [120]byte
}

// passThrough moves all events from one goroutine to another and looks up their keys
// unless keys is nil. It returns their number.
func passThrough(events []storm.Event, keys map[string]int) int {
	r := new(floorRing)
	const length = uint64(len(r.slots))
	go func() {
		room := length
		for i := range events {
			for uint64(i) == room {
				if room = r.popped.Load() + length; uint64(i) == room {
					runtime.Gosched()
				}
			}
			r.slots[uint64(i)%length] = &events[i]
			r.pushed.Store(uint64(i) + 1)
		}
	}()
	n, end := 0, uint64(len(events))
	for at := uint64(0); at < end; {
		pushed := r.pushed.Load()
		if pushed == at {
			runtime.Gosched()
			continue
		}
		for ; at < pushed; at++ {
			e := r.slots[at%length]
			if len(keys) > 0 {
				n += keys[e.Key]
			} else if e != nil {
				n++
			}
		}
		r.popped.Store(at)
	}
	return n
}
