package cell_test

import (
	"fmt"
	"time"

	"watchlab/bench/cell"
)

func ExampleRecorder() {
	var rec cell.Recorder
	waits := make([]time.Duration, 0, 1000) // stamps are kept while the clock runs …

	rec.Begin()
	for range cap(waits) {
		waits = append(waits, 2*time.Microsecond)
	}
	rec.End()

	for _, w := range waits { // … and reported after it has stopped
		rec.Latency("intended→handled", w)
	}
	rec.Count(1000, 1000)

	res, err := rec.Result()
	fmt.Println(res.EventsIn, res.Latency[0].Boundary, res.Latency[0].P99, err)
	// Output: 1000 intended→handled 2µs <nil>
}
