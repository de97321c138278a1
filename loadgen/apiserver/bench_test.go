package apiserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// nodeLoss returns the storm of the benchmarks: the pods of a node loss, all of similar size.
func nodeLoss(b *testing.B, nodes, size int) *storm.Storm {
	b.Helper()
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		b.Fatal(err)
	}
	p.PodBytes = []int{size}
	p.Resize(nodes, 0, 0)
	set, err := p.Set(1)
	if err != nil {
		b.Fatal(err)
	}
	return set.Storms[0]
}

// BenchmarkServe measures the server with clients that read and count frames but do not decode
// them. Every watcher gets all events of the storm, which are released one by one without a pause.
//
// events/s counts an event once for each watcher. client=client-go decodes events like
// an informer, which takes most of the time.
func BenchmarkServe(b *testing.B) {
	for _, size := range []int{2000, 10_000} {
		s := nodeLoss(b, 50, size)
		prepared, err := Prepare(s, wire.JSON)
		if err != nil {
			b.Fatal(err)
		}
		for _, client := range []string{"raw", "client-go"} {
			for _, transport := range []string{"http", "tls"} {
				for _, watchers := range []int{1, 100} {
					for _, media := range []wire.Media{wire.JSON, wire.Protobuf} {
						r := &serveRun{storm: s, prepared: prepared, tls: transport == "tls", watchers: watchers, media: media, decode: client == "client-go"}
						b.Run(fmt.Sprintf("watchers=%d/encoding=%s/pod=%dkB/transport=%s/client=%s", watchers, media, size/1000, transport, client), r.run)
					}
				}
			}
		}
	}
}

type serveRun struct {
	storm    *storm.Storm
	prepared *Prepared
	tls      bool
	watchers int
	media    wire.Media
	decode   bool
}

func (r *serveRun) run(b *testing.B) {
	form := wire.FormOf(r.media, wire.Object)
	// Encode in advance: it happens once for all watchers and has its own benchmark.
	if err := r.prepared.recording.Encode(form); err != nil {
		b.Fatal(err)
	}
	events := len(r.storm.Events) - r.storm.Initial
	var delivered, sent int64
	var heap float64
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		srv, config := r.start(b)
		ctx, cancel := context.WithCancel(context.Background())
		var ready, done sync.WaitGroup
		var got atomic.Int64
		for range r.watchers {
			ready.Add(1)
			done.Go(func() {
				n, err := r.watch(ctx, config, events, ready.Done)
				if err != nil {
					b.Error(err)
				}
				got.Add(int64(n))
			})
		}
		ready.Wait()
		before := srv.WireBytes()
		b.StartTimer()
		for i := r.storm.Initial; i < len(r.storm.Events); i++ {
			srv.Release(r.storm.Events[i].Seq)
		}
		done.Wait()
		b.StopTimer()
		delivered += got.Load()
		sent += srv.WireBytes() - before
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = max(heap, float64(m.HeapInuse)/1e6)
		cancel()
		if err := srv.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(delivered)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(sent)/1e6/b.Elapsed().Seconds(), "MB/s")
	b.ReportMetric(float64(sent)/float64(max(delivered, 1)), "B/event")
	b.ReportMetric(heap, "heap-MB")
	b.ReportMetric(0, "ns/op")
}

// start returns a started server and its client configuration.
func (r *serveRun) start(b *testing.B) (*Server, *rest.Config) {
	b.Helper()
	srv, err := Open(Options{}, r.prepared)
	if err != nil {
		b.Fatal(err)
	}
	config := &rest.Config{QPS: -1, ContentConfig: rest.ContentConfig{AcceptContentTypes: wire.FormOf(r.media, wire.Object).ContentType()}}
	if !r.tls {
		if config.Host, err = srv.Start(); err != nil {
			b.Fatal(err)
		}
		return srv, config
	}
	id, err := NewIdentity(time.Now())
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	if config.Host, err = srv.Serve(l, id.ServerConfig()); err != nil {
		b.Fatal(err)
	}
	config.CAData = id.CA
	return srv, config
}

// watch reads the given number of events on a connection of its own, like a controller.
func (r *serveRun) watch(ctx context.Context, config *rest.Config, events int, ready func()) (int, error) {
	version := fmt.Sprint(r.storm.Initial)
	if r.decode {
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			return 0, err
		}
		w, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return 0, err
		}
		defer w.Stop()
		ready()
		for n := range events {
			if _, ok := <-w.ResultChan(); !ok {
				return n, io.ErrUnexpectedEOF
			}
		}
		return events, nil
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{DisableCompression: true, ReadBufferSize: 256 << 10, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/pods?watch=1&resourceVersion="+version, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", config.AcceptContentTypes)
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	ready()
	return count(res.Body, r.media, events)
}

// count reads the given number of frames.
func count(body io.Reader, media wire.Media, events int) (int, error) {
	buf := make([]byte, 256<<10)
	n, skip := 0, 0
	var head []byte
	for n < events {
		k, err := body.Read(buf)
		if err != nil {
			return n, err
		}
		data := buf[:k]
		if media == wire.JSON {
			n += bytes.Count(data, []byte{'\n'})
			continue
		}
		for len(data) > 0 {
			if skip > 0 {
				d := min(skip, len(data))
				data, skip = data[d:], skip-d
				if skip == 0 {
					n++
				}
				continue
			}
			d := min(4-len(head), len(data))
			head, data = append(head, data[:d]...), data[d:]
			if len(head) == 4 {
				skip, head = int(binary.BigEndian.Uint32(head)), head[:0]
			}
		}
	}
	return n, nil
}

// BenchmarkEncode measures the encoding of an event, which happens once for all watchers.
func BenchmarkEncode(b *testing.B) {
	s := nodeLoss(b, 5, 10_000)
	kind := wire.NewKind(s.Kind, "PodList", false, nil)
	for _, media := range []wire.Media{wire.JSON, wire.Protobuf, wire.CBOR} {
		b.Run("encoding="+media.String(), func(b *testing.B) {
			b.ReportAllocs()
			var scratch, frame []byte
			i := 0
			for b.Loop() {
				e := &s.Events[i%len(s.Events)]
				var err error
				if scratch, err = kind.AppendObject(scratch[:0], wire.FormOf(media, wire.Object), e.Object); err != nil {
					b.Fatal(err)
				}
				frame = wire.AppendEvent(frame[:0], media, e.Type, scratch)
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(len(frame)), "B/event")
		})
	}
}
