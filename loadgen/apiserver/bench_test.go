package apiserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// BenchmarkServe measures the server with clients that read and count frames but do not decode them. Every watch
// gets all events of a node loss, which are released one by one without a pause. events/s counts an event once for
// each watch. B/watch is the heap and the stacks of server and client, of which the client's buffers are 272 KiB; many
// watches get fewer events.
func BenchmarkServe(b *testing.B) {
	profile, err := storm.NewProfile("nodeloss")
	if err != nil {
		b.Fatal(err)
	}
	profile.PodBytes = []int{2000}
	profile.Resize(50, 0, 0)
	set, err := profile.Set(1)
	if err != nil {
		b.Fatal(err)
	}
	s := set.Storms[0]
	for _, media := range []wire.Media{wire.JSON, wire.Protobuf} {
		prepared, err := Prepare(s, media, false)
		if err != nil {
			b.Fatal(err)
		}
		for _, transport := range []string{"http", "tls"} {
			for _, watches := range []int{1, 100, 5000} {
				upto := len(s.Events)
				if watches > 1000 {
					upto = s.Initial + 200
				}
				b.Run(fmt.Sprintf("watches=%d/encoding=%s/transport=%s", watches, media, transport), func(b *testing.B) {
					for b.Loop() {
						serveStorm(b, s, prepared, media, transport, watches, upto)
					}
					events := float64(b.N * watches * (upto - s.Initial))
					b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				})
			}
		}
	}
}

func serveStorm(b *testing.B, s *storm.Storm, prepared *Prepared, media wire.Media, transport string, watches, upto int) {
	b.StopTimer()
	srv, err := Open(Options{}, prepared)
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Transport{DisableCompression: true, ReadBufferSize: 16 << 10}
	serve := srv.Start
	if transport == "tls" {
		serve = func() (string, error) { return serveTLS(srv, client) }
	}
	url, err := serve()
	if err != nil {
		b.Fatal(err)
	}
	var reading sync.WaitGroup
	before := inUse()
	for range watches {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, fmt.Sprintf("%s/api/v1/pods?watch=1&resourceVersion=%d", url, s.Initial), nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Accept", wire.FormOf(media, wire.Object).ContentType())
		res, err := client.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		reading.Go(func() {
			if err := skipFrames(res.Body, media, upto-s.Initial); err != nil {
				b.Error(err)
			}
			_ = res.Body.Close()
		})
	}
	b.ReportMetric(float64(inUse()-before)/float64(watches), "B/watch")
	b.StartTimer()
	for _, e := range s.Events[s.Initial:upto] {
		srv.Release(e.Seq)
	}
	reading.Wait()
	b.StopTimer()
	client.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

// inUse is the size of the heap and of the stacks.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// skipFrames reads the given number of frames.
func skipFrames(body io.Reader, media wire.Media, frames int) error {
	buf := make([]byte, 256<<10)
	if media == wire.JSON {
		for frames > 0 {
			n, err := body.Read(buf)
			if frames -= bytes.Count(buf[:n], []byte{'\n'}); err != nil && frames > 0 {
				return err
			}
		}
		return nil
	}
	for ; frames > 0; frames-- {
		var size uint32
		if err := binary.Read(body, binary.BigEndian, &size); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, body, int64(size)); err != nil {
			return err
		}
	}
	return nil
}
