package bench_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// BenchmarkSpeedOfLight is the floor on this machine, below which no queue can
// come: the events of one producer through a ring of pointers that checks
// nothing, and the same with one look into a map of keys an event. It has no
// wake-ups (it spins), no key order, no Replace, no second producer. The
// queues' own benchmarks measure it again beside each of their iterations, and
// report ns/event as a multiple of it: x-ring, and x-ring+map where events of a
// key are folded together.
func BenchmarkSpeedOfLight(b *testing.B) {
	for _, skew := range []string{"uniform", "zipf"} {
		for _, mapped := range []bool{false, true} {
			floor := "ring"
			if mapped {
				floor = "ring+map"
			}
			b.Run("floor="+floor+"/producers=1/keys=10000/skew="+skew, func(b *testing.B) {
				l := newLight(newPlay(skew, 1), mapped)
				runtime.GC()
				ops := 0
				for b.Loop() {
					l.run()
					ops++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops*eventsPerOp), "ns/event")
				b.ReportMetric(float64(ops*eventsPerOp)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// light moves all objects of a play from one goroutine to another.
type light struct {
	objects []*v1.Pod
	keys    map[lightKey]int
	sum     int
}

type lightKey struct{ namespace, name string }

func newLight(p play, mapped bool) *light {
	l := new(light)
	for _, objects := range p.objects {
		l.objects = append(l.objects, objects...)
	}
	if mapped {
		l.keys = make(map[lightKey]int)
		for _, o := range l.objects {
			l.keys[lightKey{o.Namespace, o.Name}] = 1
		}
	}
	return l
}

// lightLength is that of the ring: what is in it fits the caches.
const lightLength = 1024

// lightRing is a ring of one producer and one consumer, each with a counter on
// a cache line of its own.
type lightRing struct {
	slots [lightLength]*v1.Pod
	_     [128]byte

	pushed atomic.Uint64
	_      [120]byte

	popped atomic.Uint64
	_      [120]byte
}

// run returns how long it took.
func (l *light) run() time.Duration {
	begin := time.Now()
	r := new(lightRing)
	go func() {
		room := uint64(lightLength)
		for i, obj := range l.objects {
			for uint64(i) == room {
				if room = r.popped.Load() + lightLength; uint64(i) == room {
					runtime.Gosched()
				}
			}
			r.slots[i%lightLength] = obj
			r.pushed.Store(uint64(i) + 1)
		}
	}()
	end := uint64(len(l.objects))
	for at := uint64(0); at < end; {
		there := r.pushed.Load()
		if there == at {
			runtime.Gosched()
			continue
		}
		for ; at < there; at++ {
			obj := r.slots[at%lightLength]
			if l.keys != nil {
				l.sum += l.keys[lightKey{obj.Namespace, obj.Name}]
			} else if obj != nil {
				l.sum++
			}
		}
		r.popped.Store(at)
	}
	return time.Since(begin)
}
