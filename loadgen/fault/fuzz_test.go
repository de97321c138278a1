package fault

import (
	"math/rand/v2"
	"testing"
	"time"

	"watchlab/loadgen/apiserver/wire"
)

// FuzzFrames: any bytes of a watch are cut into frames of which none is empty, and a frame has a position or not.
func FuzzFrames(f *testing.F) {
	for e, frames := range garbage {
		for _, g := range frames {
			f.Add(int(e), []byte(g))
		}
	}
	f.Add(int(wire.Protobuf), []byte("\xff\xff\xff\xff\x00"))
	f.Add(int(wire.CBOR), []byte("\x9f\x9f\x9f\x9f"))
	f.Add(int(wire.JSON), []byte(`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","resourceVersion":"7"}}}`+"\n"))
	f.Fuzz(func(t *testing.T, media int, b []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		e := []encoding{{wire.JSON}, {wire.Protobuf}, {wire.CBOR}}[uint(media)%3]
		if len(b) == 0 {
			return
		}
		if n := e.next(b); n < 1 || n > len(b) {
			t.Fatalf("a frame of %d of %d bytes", n, len(b))
		}
		if at := e.cut(b, rand.New(rand.NewPCG(1, 2))); at < 0 || at > len(b) {
			t.Fatalf("cut at %d of %d", at, len(b))
		}
		_, _ = e.read(e.last(b))
		isBookmark(b)
	})
}
