package pipeline

import (
	"fmt"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// TestGeneratorLag: what is late because of calls is not the generator's; all else is.
func TestGeneratorLag(t *testing.T) {
	const ms = int64(time.Millisecond)
	// An event a millisecond. A release is at its time, or when the last call has returned.
	for name, tc := range map[string]struct {
		producers int
		slow      func(i int) int64 // before a release
		call      func(i int) int64 // inside it
		other     func(i int) int64 // inside a Replace before it
		late      int               // releases later than half a millisecond by the generator
		last      int64             // real lag of the last release, at least
	}{
		"on time":                    {},
		"one call":                   {call: at(10, 90*ms)},
		"each call":                  {call: always(3 * ms), last: 150 * ms},
		"a Replace":                  {other: at(10, 90*ms)},
		"slow wake-up":               {slow: at(10, 20*ms), late: 20},
		"slow loop":                  {slow: always(2 * ms), late: 100, last: 90 * ms},
		"both":                       {slow: at(10, 20*ms), call: always(3 * ms), late: 20, last: 150 * ms},
		"two producers, one blocked": {producers: 2, call: at(10, 90*ms)},
		"two producers, slow":        {producers: 2, slow: at(10, 20*ms), late: 10},
		"a source, slow":             {producers: -1, slow: at(10, 20*ms), late: 20},
		"a source, calls of others":  {producers: -1, slow: at(10, 20*ms), call: always(3 * ms), late: 20},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 100
			var rec cell.Recorder
			rec.Begin()
			st := newStamps(n, true, StampsAll)
			st.schedule, st.producers, st.called, st.budget = pace.Rate(1000), max(tc.producers, 1), st.released, time.Millisecond/2
			if tc.producers < 0 {
				st.producers = 0
			}
			st.start.Store(1000 * ms)
			ready := make([]int64, max(tc.producers, 1))
			for i := range n {
				st.events = append(st.events, storm.Event{KeyIndex: int32(i)})
				seq, r := uint64(i+1), &ready[i%len(ready)]
				intended, _ := st.intended(seq)
				if d := of(tc.other, i); d > 0 {
					*r += d
					st.others.Store(seq, d)
				}
				st.released[seq] = max(*r, intended) + of(tc.slow, i)
				st.enqueued[seq] = st.released[seq] + of(tc.call, i)
				st.handled[seq] = st.enqueued[seq]
				if *r = st.released[seq]; st.producers > 0 {
					*r = st.enqueued[seq]
				}
			}
			rec.End()
			rec.Count(n, n)
			st.report(&rec, nil)
			res, err := rec.Result()
			if err != nil {
				t.Fatal(err)
			}
			if got := int(res.Lag.Late); got < tc.late*9/10 || got > tc.late {
				t.Errorf("%d late releases of the generator, want %d", got, tc.late)
			}
			intended, _ := st.intended(n)
			if lag := st.released[n] - intended; lag < tc.last {
				t.Errorf("the last release is %v late, want %v: the test is wrong", time.Duration(lag), time.Duration(tc.last))
			}
			if l, _ := res.At(Handled); tc.call != nil && int64(l.Max) < 3*ms {
				t.Errorf("%s leaves out the wait: %v", Handled, fmt.Sprint(l.Max))
			}
		})
	}
}

func at(i int, d int64) func(int) int64 {
	return func(j int) int64 {
		if i == j {
			return d
		}
		return 0
	}
}

func always(d int64) func(int) int64 { return func(int) int64 { return d } }

func of(f func(int) int64, i int) int64 {
	if f == nil {
		return 0
	}
	return f(i)
}
