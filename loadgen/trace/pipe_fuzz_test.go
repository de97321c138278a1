package record

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"watchlab/loadgen/trace"
)

// FuzzPipe: the raw output of a watch is a trace that reads whole, whatever it is.
func FuzzPipe(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":` + pod("a", "") + "}\n" + `{"type":"DELETED","object":` + pod("a", "") + "}", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`,
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`, "{}", "\x1e{\n", `{"type":null}`, "{\"object\":\n[[[[",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		var out bytes.Buffer
		w, err := trace.NewWriter(&out, trace.Header{})
		if err != nil {
			t.Fatal(err)
		}
		events, err := Pipe(trace.NewReader(bytes.NewReader(data), "pipe"), w, nil, func(*trace.Error) {})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		frames := 0
		for r := trace.NewReader(&out, "trace"); ; frames++ {
			if _, err := r.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("after %d frames: %v", frames, err)
			}
		}
		if frames < events {
			t.Fatalf("%d frames of %d events", frames, events)
		}
	})
}
