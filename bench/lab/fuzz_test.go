package lab_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// FuzzReadResult: what a process of a cell writes is a result, its error, or no result.
func FuzzReadResult(f *testing.F) {
	for _, err := range []error{nil, errors.New("x")} {
		var b bytes.Buffer
		noError(f, lab.WriteResult(&b, cell.Result{EventsIn: 7, Latency: []cell.Latency{{Boundary: "a→b"}}}, err))
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()/2])
	}
	f.Add([]byte("panic: x\n"))
	f.Add([]byte("\xf8\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		if _, err := lab.ReadResult(bytes.NewReader(data)); err != nil {
			_ = err.Error()
		}
	})
}
