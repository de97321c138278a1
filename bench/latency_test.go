package bench_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
)

const (
	// handlerTime is how long the slow handler takes for one delta. It sleeps,
	// as one that waits for an API server does.
	handlerTime = time.Millisecond
	// addRate is in events a second, of which the handler can do a thousand.
	addRate = 20_000
	// stormTime is how long the schedule of an iteration is; patience is when
	// it is given up.
	stormTime = time.Second
	patience  = 3 * stormTime
)

// BenchmarkAddLatency measures how long a producer's Update takes while the
// consumer's handler takes 1 ms for each delta: that is what a Reflector waits
// for instead of reading its watch. Time counts from when a call was meant to
// be made, on an open loop, so that a call that waits makes those late that
// come after it: measured from its own beginning, one call that takes two
// seconds would be one among a thousand good ones. It includes how late the
// generator's clock wakes up; impl=floor, whose Update does nothing, says how
// late that is. An iteration is one second of storm; calls that could not be
// made within three count as returned then. What still waits in the end is
// thrown away.
func BenchmarkAddLatency(b *testing.B) {
	run := func(impl, delivery string, play func(*testing.B) []time.Duration) {
		b.Run(fmt.Sprintf("impl=%s/delivery=%s/handler=%v/rate=%d", impl, delivery, handlerTime, addRate), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = append(took, play(b)...)
			}
			slices.Sort(took)
			at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(at(0.5), "p50-ns")
			b.ReportMetric(at(0.99), "p99-ns")
			b.ReportMetric(at(0.999), "p99.9-ns")
			b.ReportMetric(at(1), "max-ns")
		})
	}
	run("floor", "none", func(b *testing.B) []time.Duration {
		return openLoop(b, func(any) error { return nil })
	})
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			run(v.Name, g.Mode, func(b *testing.B) []time.Duration {
				q, err := v.New(deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)})
				if err != nil {
					b.Fatal(err)
				}
				return slowStorm(b, q)
			})
		}
	}
}

// slowStorm plays one against a slow consumer and returns how long after its
// time each call returned.
func slowStorm(b *testing.B, q deltafifo.Queue) []time.Duration {
	stop := make(chan struct{})
	handle := func(n int) {
		select {
		case <-time.After(time.Duration(n) * handlerTime):
		case <-stop:
		}
	}
	single := func(obj any, _ bool) error { handle(len(obj.(cache.Deltas))); return nil }
	take := func() error { _, err := q.Pop(single); return err }
	if batched, ok := q.(deltafifo.BatchQueue); ok {
		batch := func(deltas []cache.Delta, _ bool) error { handle(len(deltas)); return nil }
		take = func() error { return batched.PopBatch(batch, single) }
	}
	done := make(chan error, 1)
	go func() {
		for {
			if err := take(); err != nil {
				done <- err
				return
			}
		}
	}()

	took := openLoop(b, q.Update)
	close(stop)
	q.Close()
	if err := <-done; !errors.Is(err, cache.ErrFIFOClosed) {
		b.Fatal(err)
	}
	return took
}

// openLoop makes the calls and returns how long after its time each returned.
func openLoop(b *testing.B, update func(any) error) []time.Duration {
	pods := make([]*v1.Pod, 1000)
	for i := range pods {
		pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storm", Name: fmt.Sprintf("workload-7d9c6c5f4-%05d", i)}}
	}
	took := make([]time.Duration, 0, addRate*int(stormTime/time.Second))
	pacer := pace.New(addRate)
	defer func() {
		if err := pacer.Close(); err != nil {
			b.Error(err)
		}
	}()
	begin := time.Now()
	pacer.Start(begin)
	for i := range cap(took) {
		if time.Since(begin) < patience {
			err := pacer.Wait(b.Context(), i)
			if err == nil {
				err = update(pods[i%len(pods)])
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(begin)-pacer.Intended(i))
	}
	return took
}

// BenchmarkIdle measures the CPU time that the process spends while a consumer
// waits for a queue in which nothing happens.
func BenchmarkIdle(b *testing.B) {
	for _, v := range deltafifo.Variants() {
		b.Run("impl="+v.Name, func(b *testing.B) {
			q, err := v.New(deltafifo.Options{})
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = q.Pop(func(any, bool) error { return nil })
			}()
			before := cpuTime(b)
			for b.Loop() {
				<-time.After(100 * time.Millisecond)
			}
			spent := cpuTime(b) - before
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(spent.Microseconds())/b.Elapsed().Seconds(), "cpu-µs/s")
			q.Close()
			<-done
		})
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
