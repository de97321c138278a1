package bench_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"testing"

	"watchlab/impls/decode"
	"watchlab/impls/inflate"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// BenchmarkInflate decompresses the events of a recording, alone: an event a member, as kube-apiserver sends a
// calm watch, and 100 events a member, as it sends the state. wire-B/op is what it reads, an event.
func BenchmarkInflate(b *testing.B) {
	for _, encoding := range []decode.Encoding{decode.JSON, decode.Protobuf} {
		for _, events := range []int{1, 100} {
			var body []byte
			var total, size int
			for _, v := range inflate.Variants() {
				d, err := v.New(inflate.Options{})
				if err != nil || d.NewReader == nil {
					continue
				}
				b.Run(fmt.Sprintf("impl=%s/encoding=%s/events=%d/storm=recorded-rollout", v.Name, encoding, events), func(b *testing.B) {
					if body == nil {
						plain := watchBody(b, encoding, func() (*storm.Storm, error) { return trace.Load("recorded-rollout") })
						body, total = compressed(b, plain, encoding, events)
						size = len(plain)
					}
					b.ReportAllocs()
					p := make([]byte, 32<<10)
					r := d.NewReader(&repeated{body: body})
					all := func() {
						for n := 0; n < size; {
							k := must(r.Read(p))(b)
							n += k
						}
					}
					all() // buffers grow
					var cpu uint64
					for b.Loop() {
						start := cpuTime()
						all()
						cpu += cpuTime() - start
					}
					n := float64(b.N) * float64(total)
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/op")
					b.ReportMetric(float64(cpu)/n, "cpu-ns/op")
					b.ReportMetric(float64(size)/float64(total), "B/event")
					b.ReportMetric(float64(len(body))/float64(total), "wire-B/event")
				})
			}
		}
	}
}

// compressed returns the frames of a watch as kube-apiserver v1.37 sends them: level 1, and a member for each
// group of events. It also returns the number of events.
func compressed(b *testing.B, plain []byte, encoding decode.Encoding, group int) ([]byte, int) {
	b.Helper()
	var body bytes.Buffer
	gz := must(gzip.NewWriterLevel(&body, 1))(b)
	events := 0
	for len(plain) > 0 {
		n := bytes.IndexByte(plain, '\n') + 1
		if encoding == decode.Protobuf {
			n = 4 + int(binary.BigEndian.Uint32(plain))
		}
		_, err := gz.Write(plain[:n])
		if plain = plain[n:]; err != nil {
			b.Fatal(err)
		}
		if events++; events%group == 0 || len(plain) == 0 {
			if _, err := gz.Flush(), gz.Close(); err != nil {
				b.Fatal(err)
			}
			gz.Reset(&body)
		}
	}
	return body.Bytes(), events
}

// repeated returns the body again and again.
type repeated struct {
	body []byte
	at   int
}

// Read implements [io.Reader]. A read has at most as much as a read of a connection.
func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.body[r.at:])
	r.at = (r.at + n) % len(r.body)
	return n, nil
}
