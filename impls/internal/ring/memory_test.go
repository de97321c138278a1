package ring_test

import (
	"runtime"
	"testing"
	"time"
)

// TestCleared: a popped value can be garbage collected, whether or not its slot was reused.
func TestCleared(t *testing.T) {
	for _, s := range shapes(0, 1, 7, 1024) {
		q := newQueue[*[64]byte](s)
		const values = 1000
		collected := make(chan struct{}, values)
		dst := make([]*[64]byte, 5)
		for range values {
			v := new([64]byte)
			runtime.AddCleanup(v, func(struct{}) { collected <- struct{}{} }, struct{}{})
			if err := q.TryPush(v); err != nil {
				t.Fatal(err)
			}
			if pop(q, dst) != 1 {
				t.Fatal("nothing to pop")
			}
			clear(dst)
		}
		runtime.GC()
		runtime.GC()
		deadline := time.After(time.Minute) // Cleanups run some time after the collection that finds the value.
		for n := range values {
			select {
			case <-collected:
			case <-deadline:
				t.Fatalf("%v: %d of %d popped values were collected", s, n, values)
			}
		}
		runtime.KeepAlive(q)
	}
}

// TestSteadyState: a queue at its usual length allocates nothing per event.
func TestSteadyState(t *testing.T) {
	for _, s := range allShapes {
		q := newQueue[any](s)
		var v any = "an object"
		dst := make([]any, 100)
		n := len(dst)
		if s.capacity > 0 {
			n = min(n, s.capacity)
		}
		round := func() {
			for range n {
				if err := q.TryPush(v); err != nil {
					t.Fatal(err)
				}
			}
			if pop(q, dst) != n {
				t.Fatal("too little to pop")
			}
		}
		for range 100 {
			round()
		}
		// A run that meets one of the rare allocations of segments, one in
		// thousands of events, doesn't show in the average.
		if got := testing.AllocsPerRun(1000, round); got != 0 {
			t.Errorf("%v: a round of %d events allocates %v times", s, n, got)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rounds := 100_000 / n
		for range rounds {
			round()
		}
		runtime.ReadMemStats(&after)
		if per := float64(after.Mallocs-before.Mallocs) / float64(rounds*n); per > 0.001 {
			t.Errorf("%v: an event allocates %.5f times", s, per)
		}
	}
}

// TestBurst: a burst leaves no memory behind.
func TestBurst(t *testing.T) {
	for _, s := range shapes(0) {
		t.Run(s.String(), func(t *testing.T) { testBurst(t, s) })
	}
}

func testBurst(t *testing.T, s shape) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	q := newQueue[[4]uint64](s)
	const burst = 200_000
	for i := range uint64(burst) {
		if err := q.TryPush([4]uint64{i}); err != nil {
			t.Fatal(err)
		}
	}
	if q.Len() != burst {
		t.Fatalf("length is %d", q.Len())
	}
	full := heap() - before
	dst := make([][4]uint64, 100)
	for i := uint64(0); i < burst; {
		n := pop(q, dst)
		if n == 0 {
			t.Fatalf("only %d came", i)
		}
		for _, v := range dst[:n] {
			if v[0] != i {
				t.Fatalf("popped %d, want %d", v[0], i)
			}
			i++
		}
	}
	drained := heap() - before
	t.Logf("%d kB full, %d kB drained", full>>10, drained>>10)
	if drained > 256<<10 || full < burst*32 {
		t.Errorf("%d bytes full, %d drained", full, drained)
	}
	runtime.KeepAlive(q)
}
