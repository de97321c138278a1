package apiserver

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/impls/decode"
	"watchlab/impls/informer"
)

// BenchmarkFirstList fills a new informer with 150,000 pods of `watchlab serve` by a watch that begins with the state:
// client-go's of a factory, and [informer.ForResource]. cpu-ns/object is the client's CPU time until it has synced,
// heap-peak-B/object the most of its heap in use, read every 5 ms, and heap-B/object what stays. The informers play in
// turn.
func BenchmarkFirstList(b *testing.B) {
	const objects = 150_000
	file, _ := serveProcess(b, "--storm", "relist")
	typed := func(transform bool) func(*rest.Config) (cache.SharedIndexInformer, error) {
		return func(config *rest.Config) (cache.SharedIndexInformer, error) {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return nil, err
			}
			i := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
			if transform {
				err = i.SetTransform(func(obj any) (any, error) {
					if o, err := meta.Accessor(obj); err == nil {
						o.SetManagedFields(nil)
					}
					return obj, nil
				})
			}
			return i, err
		}
	}
	ours := func(encoding decode.Encoding, decoder, inflate string) func(*rest.Config) (cache.SharedIndexInformer, error) {
		return func(config *rest.Config) (cache.SharedIndexInformer, error) {
			return informer.ForResource(config, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, informer.Options{
				Decode: decoder, Inflate: inflate, Decoder: decode.Options{Encoding: encoding},
			})
		}
	}
	for _, encoding := range []decode.Encoding{decode.Protobuf, decode.JSON} {
		for _, of := range []struct {
			name, compression string
			make              func(*rest.Config) (cache.SharedIndexInformer, error)
		}{
			{"clientgo", "gzip", typed(false)}, {"clientgo-transform", "gzip", typed(true)}, {"clientgo-transform", "none", typed(true)},
			{"watchlab", "gzip", ours(encoding, "shared", "members")}, {"watchlab", "none", ours(encoding, "shared", "none")},
			{"watchlab-readonly", "gzip", ours(encoding, "shared-readonly", "members")},
		} {
			b.Run(fmt.Sprintf("impl=%s/encoding=%s/compression=%s", of.name, encoding, of.compression), func(b *testing.B) {
				var cpu time.Duration
				var peak, kept uint64
				for b.Loop() {
					config := must(clientcmd.BuildConfigFromFlags("", file))(b)
					config.QPS, config.ContentType, config.DisableCompression = -1, encoding.MediaType(), of.compression == "none"
					i := must(of.make(config))(b)
					runtime.GC()
					runtime.GC()
					before, began, most := heapInUse(), cpuTime(b, os.Getpid()), watchHeap()
					ctx, cancel := context.WithCancel(b.Context())
					var ended sync.WaitGroup
					ended.Go(func() { i.RunWithContext(ctx) })
					if !cache.WaitForCacheSync(b.Context().Done(), i.HasSynced) || len(i.GetStore().ListKeys()) != objects {
						b.Fatalf("%d objects", len(i.GetStore().ListKeys()))
					}
					cpu += cpuTime(b, os.Getpid()) - began
					peak += most() - before
					runtime.GC()
					runtime.GC()
					kept += heapInUse() - before
					cancel()
					ended.Wait()
				}
				n := float64(b.N * objects)
				b.ReportMetric(float64(cpu.Nanoseconds())/n, "cpu-ns/object")
				b.ReportMetric(float64(peak)/n, "heap-peak-B/object")
				b.ReportMetric(float64(kept)/n, "heap-B/object")
			})
		}
	}
}

// heapInUse returns the bytes of the heap's objects, live or not yet collected.
func heapInUse() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// watchHeap watches the heap until its result is called, which returns the most.
func watchHeap() (most func() uint64) {
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		top := uint64(0)
		for {
			top = max(top, heapInUse())
			select {
			case <-every.C:
			case <-done:
				peak <- top
				return
			}
		}
	}()
	return func() uint64 { close(done); return <-peak }
}
