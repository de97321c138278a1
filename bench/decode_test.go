package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls/decode"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// decodeEvents bounds the storms of BenchmarkDecode, shortEvents all storms with -short, which plays whether a cell
// works and measures nothing.
const decodeEvents, shortEvents = 12_000, 1000

// BenchmarkDecode decodes the body of a watch with each decoder, from memory, and keeps the newest
// object of each key, as a cache does. An iteration is a whole storm with a new decoder; an op is
// an event. cpu-ns/op is the CPU time of the process, garbage collection included.
// retained-B/object is the heap that the kept objects and the decoder hold. In the storms distinct-N
// every event adds another pod, and N percent of its environment values, annotations and images are
// new; distinct-bare is distinct-100 without managed fields. few-100 and few-bare are the first 1,000 events
// of these two. custom is of custom resources, decoded to
// unstructured objects. object-first is recorded-rollout with the object of a frame before its type, as
// proxies write it. second-… is the list again, unchanged, while the objects are in use.
func BenchmarkDecode(b *testing.B) {
	storms := map[string]func() (*storm.Storm, error){
		"distinct-bare": func() (*storm.Storm, error) { return distinct(decodeEvents, 100, true) },
		"few-bare":      func() (*storm.Storm, error) { return distinct(1000, 100, true) },
		"few-100":       func() (*storm.Storm, error) { return distinct(1000, 100, false) },
		"relist":        relisted,
		"custom":        customs,
		"object-first":  func() (*storm.Storm, error) { return trace.Load("recorded-rollout") },
	}
	for percent := 0; percent <= 100; percent += 25 {
		storms[fmt.Sprint("distinct-", percent)] = func() (*storm.Storm, error) { return distinct(decodeEvents, percent, false) }
	}
	for _, name := range trace.Names() {
		storms[name] = func() (*storm.Storm, error) { return trace.Load(name) }
	}
	for _, encoding := range []decode.Encoding{decode.JSON, decode.Protobuf, decode.CBOR} {
		for _, name := range slices.Sorted(maps.Keys(storms)) {
			if name == "object-first" && encoding != decode.JSON {
				continue
			}
			var body []byte // of the encoding, made for the first decoder that is run
			o := decode.Options{Encoding: encoding, Unstructured: name == "custom"}
			for _, v := range decode.Variants() {
				if _, err := v.New(o); err != nil {
					continue
				}
				b.Run(fmt.Sprintf("impl=%s/encoding=%s/storm=%s", v.Name, encoding, name), func(b *testing.B) {
					if body == nil {
						body = watchBody(b, encoding, storms[name])
						if name == "object-first" {
							body = typeFirst.ReplaceAll(body, []byte(`{"object":$2,"type":$1}`))
						}
					}
					decodeBody(b, v, o, body, name == "relist")
				})
			}
		}
	}
}

// typeFirst matches a frame in JSON as the API server writes it.
var typeFirst = regexp.MustCompile(`(?m)^\{"type":("[A-Z]+"),"object":(.*)\}$`)

// BenchmarkShape decodes pods of one size and of several shapes: containers by environment entries of
// each. An annotation fills them up to 20 kB of protobuf. It measures as BenchmarkDecode does.
func BenchmarkShape(b *testing.B) {
	const pods, size = 500, 20_000
	// Only what describes the recording: its objects in the heap would make the collector run less often.
	empty := sync.OnceValues(func() (*storm.Storm, error) {
		s, err := trace.Load("recorded-rollout")
		if err != nil {
			return nil, err
		}
		c := *s
		c.Initial, c.Events = 0, nil
		return &c, nil
	})
	for _, containers := range []int{1, 4, 8} {
		for _, env := range []int{0, 10, 20} {
			shaped := func() (*storm.Storm, error) {
				s, err := empty()
				if err != nil {
					return nil, err
				}
				c := *s
				for i := range pods {
					pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shape", Name: fmt.Sprintf("pod-%05d", i), UID: types.UID(fmt.Sprint(i))}}
					for n := range containers {
						one := v1.Container{Name: fmt.Sprint("container-", n), Image: fmt.Sprintf("registry.example/%d/image:%d", i, n)}
						for e := range env {
							one.Env = append(one.Env, v1.EnvVar{Name: fmt.Sprint("VARIABLE_", e), Value: fmt.Sprintf("value-%d-%d-%d", i, n, e)})
						}
						pod.Spec.Containers = append(pod.Spec.Containers, one)
					}
					padding := strings.Repeat(fmt.Sprintf("%05d", i), size/5) // differs, so that no decoder shares it
					pod.Annotations = map[string]string{"padding": padding}
					pod.Annotations["padding"] = padding[:2*size-pod.Size()]
					c.Events = append(c.Events, storm.Event{Type: watch.Added, Object: pod})
				}
				return &c, nil
			}
			for _, encoding := range []decode.Encoding{decode.Protobuf, decode.JSON} {
				var body []byte
				for _, v := range decode.Variants() {
					o := decode.Options{Encoding: encoding}
					if _, err := v.New(o); err != nil || v.Name != "shared" && v.Name != "clientgo-"+string(encoding) {
						continue
					}
					b.Run(fmt.Sprintf("impl=%s/encoding=%s/containers=%d/env=%d", v.Name, encoding, containers, env), func(b *testing.B) {
						if body == nil {
							body = watchBody(b, encoding, shaped)
						}
						decodeBody(b, v, o, body, false)
					})
				}
			}
		}
	}
}

func decodeBody(b *testing.B, v decode.Variant, o decode.Options, body []byte, again bool) {
	b.ReportAllocs()
	var events, objects, mallocs, size, retained, cpu, secondCPU, grown uint64
	for b.Loop() {
		b.StopTimer()
		before := heap()
		d := must(v.New(o))(b)
		kept := map[types.UID]kruntime.Object{}
		b.StartTimer()
		start := cpuTime()
		n := decodeAll(b, d, body, kept)
		cpu += cpuTime() - start
		b.StopTimer()
		var at runtime.MemStats
		runtime.ReadMemStats(&at)
		events, mallocs, size = events+n, mallocs+at.Mallocs-before.Mallocs, size+at.TotalAlloc-before.TotalAlloc
		after := heap()
		objects, retained = objects+uint64(len(kept)), retained+after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc)
		if again {
			start := cpuTime()
			decodeAll(b, d, body, kept)
			secondCPU += cpuTime() - start
			if last := heap(); last.HeapAlloc > after.HeapAlloc {
				grown += last.HeapAlloc - after.HeapAlloc
			}
		}
		runtime.KeepAlive(d)
		runtime.KeepAlive(kept)
		b.StartTimer()
	}
	report := func(sum uint64, n uint64, unit string) { b.ReportMetric(float64(sum)/float64(n), unit) }
	report(uint64(b.Elapsed()), events, "ns/op")
	report(cpu, events, "cpu-ns/op")
	report(mallocs, events, "allocs/op")
	report(size, events, "B/op")
	report(retained, objects, "retained-B/object")
	if again {
		report(secondCPU, events, "second-cpu-ns/op")
		report(grown, objects, "second-B/object")
	}
}

func decodeAll(b *testing.B, d decode.Decoder, body []byte, kept map[types.UID]kruntime.Object) (n uint64) {
	w := d.Watch(io.NopCloser(bytes.NewReader(body)))
	defer w.Close()
	for {
		typ, obj, err := w.Decode()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		n++
		if uid := obj.(metav1.Object).GetUID(); typ == watch.Deleted {
			delete(kept, uid)
		} else {
			kept[uid] = obj
		}
	}
}

func cpuTime() uint64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return uint64(u.Utime.Nano() + u.Stime.Nano())
}

func heap() runtime.MemStats {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m
}

// watchBody encodes the events of a storm as the API server does.
func watchBody(b *testing.B, encoding decode.Encoding, load func() (*storm.Storm, error)) []byte {
	b.Helper()
	s := must(load())(b)
	d := must(decode.New("clientgo-"+string(encoding), decode.Options{}))(b)
	info := d.Info()
	var body bytes.Buffer
	out := info.StreamSerializer.Framer.NewFrameWriter(&body)
	most := max(decodeEvents, s.Initial)
	if testing.Short() {
		most = shortEvents
	}
	for _, e := range s.Events[:min(len(s.Events), most)] {
		obj := e.Object.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(s.Kind)
		raw := must(kruntime.Encode(info.Serializer, obj))(b)
		event := metav1.WatchEvent{Type: string(e.Type), Object: kruntime.RawExtension{Raw: raw}}
		frame := must(kruntime.Encode(info.StreamSerializer.Serializer, &event))(b)
		if _, err := out.Write(frame); err != nil {
			b.Fatal(err)
		}
	}
	return body.Bytes()
}

// relisted is a list of 150,000 pods.
func relisted() (*storm.Storm, error) {
	p, err := storm.NewProfile("relist")
	if err != nil {
		return nil, err
	}
	set, err := p.Set(1)
	if err != nil {
		return nil, err
	}
	return set.Storms[0], nil
}

// distinct makes each of the first events of the recorded rollout the addition of another pod, of whose
// values a share is new.
func distinct(events, percent int, bare bool) (*storm.Storm, error) {
	s, err := trace.Load("recorded-rollout")
	if err != nil {
		return nil, err
	}
	c := *s
	c.Events = slices.Clone(s.Events[:min(events, len(s.Events))])
	r := rand.New(rand.NewPCG(1, 2))
	for i := range c.Events {
		e := &c.Events[i]
		pod := e.Object.DeepCopyObject().(*v1.Pod)
		pod.Name, pod.UID = fmt.Sprintf("%s-%d", pod.Name, i), types.UID(fmt.Sprintf("%s-%d", pod.UID, i))
		other := func(s *string) {
			if r.IntN(100) < percent {
				*s = fmt.Sprintf("%s-%d", strings.TrimSuffix(*s, "="), i)
			}
		}
		if bare {
			pod.ManagedFields = nil
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["example.com/config-hash"] = ""
		for _, k := range slices.Sorted(maps.Keys(pod.Annotations)) {
			v := pod.Annotations[k]
			other(&v)
			pod.Annotations[k] = v
		}
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for j := range containers {
				other(&containers[j].Image)
				for k := range containers[j].Env {
					other(&containers[j].Env[k].Value)
				}
			}
		}
		for _, statuses := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for j := range statuses {
				other(&statuses[j].Image)
				other(&statuses[j].ImageID)
			}
		}
		e.Type, e.Object = watch.Added, pod
	}
	return &c, nil
}
