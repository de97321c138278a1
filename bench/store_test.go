package bench_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/stats"
	"watchlab/impls"
	"watchlab/impls/store"
)

const (
	storeObjects    = 150_000
	storeNamespaces = 50 // of 3,000 objects each
	storePerSpace   = storeObjects / storeNamespaces
	storeGroup      = 1000 // the objects that the largest batch writes together
	storePasses     = 3    // versions of each object, written in turn
)

// storeObject is of the kind that a metadata informer caches. Group and pass are those of the batch
// that writes it.
type storeObject struct {
	metav1.PartialObjectMetadata

	group, pass uint8
}

// storeMaterial has all versions of all objects, so that no benchmark times or counts their making.
// The groups are drawn at random: a batch of 1,000 writes to all namespaces.
type storeMaterial struct {
	namespaces []string
	passes     [storePasses][]cache.Transaction // the writes of a pass, group by group
}

// newStoreMaterial is called once a benchmark, so that the heap of the next one is without it.
func newStoreMaterial() *storeMaterial {
	m := &storeMaterial{}
	for ns := range storeNamespaces {
		m.namespaces = append(m.namespaces, fmt.Sprintf("namespace-%02d", ns))
	}
	order := rand.New(rand.NewPCG(17, 1)).Perm(storeObjects)
	version := 0
	for pass := range m.passes {
		for i, n := range order {
			version++
			o := &storeObject{group: uint8(i / storeGroup), pass: uint8(pass)}
			o.Namespace, o.Name = m.namespaces[n%storeNamespaces], fmt.Sprintf("deployment-6c7f9d8b5-%06d", n)
			o.ResourceVersion = strconv.Itoa(version)
			m.passes[pass] = append(m.passes[pass], cache.Transaction{Type: cache.TransactionTypeUpdate, Object: o})
		}
	}
	return m
}

// replacement returns the objects of a pass as the argument of a Replace, which owns it. They are in the
// order of their keys, as in a list of the API server: a batch is of objects that are far apart.
func (m *storeMaterial) replacement(pass int) []any {
	list := make([]any, 0, storeObjects)
	for _, t := range m.passes[pass] {
		list = append(list, t.Object)
	}
	slices.SortFunc(list, func(a, b any) int {
		x, y := a.(*storeObject), b.(*storeObject)
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return list
}

// storeBench is a filled store and its players.
type storeBench struct {
	*storeMaterial
	store  store.Store
	lister listers.ResourceIndexer[*storeObject]
	torn   bool // a list may show a part of a group: of a batch, or because batches are smaller
	next   int  // the next write, counted over all passes

	stop  atomic.Bool
	fault atomic.Pointer[string] // the first wrong list
}

func newStoreBench(b *testing.B, m *storeMaterial, v store.Variant, batch int) *storeBench {
	b.Helper()
	torn := v.Guarantees[0].Lists != impls.PointInTime || batch%storeGroup != 0
	s := &storeBench{storeMaterial: m, torn: torn, next: storeObjects}
	var err error
	s.store, err = v.New(store.Options{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.store.Replace(s.replacement(0), "1"); err != nil {
		b.Fatal(err)
	}
	s.lister = listers.New[*storeObject](s.store, schema.GroupResource{Resource: "objects"})
	return s
}

// write writes the next batch, which lies in one group if its size divides that of a group.
func (s *storeBench) write(batch int) {
	pass, at := s.next/storeObjects%storePasses, s.next%storeObjects
	if err := s.store.Transaction(s.passes[pass][at : at+batch]...); err != nil {
		panic(err)
	}
	s.next += batch
}

// list lists a namespace as a controller does, through a generated lister. It compares the number of
// objects. With deep, all must be of the namespace and, where the variant lists a point in time, those
// of a group must be of one batch.
func (s *storeBench) list(namespace string, deep bool) []*storeObject {
	got, err := listers.NewNamespaced(s.lister, namespace).List(labels.Everything())
	if err != nil || len(got) != storePerSpace {
		s.fail("a list of %s has %d objects (%v), want %d", namespace, len(got), err, storePerSpace)
	}
	if !deep {
		return got
	}
	var passes [storeObjects / storeGroup]uint8 // 1 + pass; 0 means not seen
	for _, o := range got {
		if o.Namespace != namespace {
			s.fail("a list of %s has an object of %s", namespace, o.Namespace)
		}
		if p := passes[o.group]; !s.torn && p != 0 && p != 1+o.pass {
			s.fail("a list of %s shows a part of a batch", namespace)
		}
		passes[o.group] = 1 + o.pass
	}
	return got
}

func (s *storeBench) fail(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	s.fault.CompareAndSwap(nil, &message)
}

// storeTimes are the times of a player's calls, of one in every so many.
type storeTimes struct {
	calls, every int
	ns           []float64
}

func (t *storeTimes) call(f func()) {
	t.calls++
	if t.calls%t.every != 0 {
		f()
		return
	}
	start := time.Now()
	f()
	t.ns = append(t.ns, float64(time.Since(start)))
}

// read lists one namespace after another until stop, each 16th list deeply, and returns the last list.
// Between two lists it lets others run, as the readers of the informer pipeline do: otherwise readers that
// wait for no lock keep the processors for 10 ms at a time.
func (s *storeBench) read(reader int, times *storeTimes) (last []*storeObject) {
	for i := reader * storeNamespaces / 8; !s.stop.Load(); i++ {
		times.call(func() { last = s.list(s.namespaces[i%storeNamespaces], i%16 == 0) })
		runtime.Gosched()
	}
	return last
}

// play writes batches as fast as the store takes them while readers list, for a time. It returns what
// took how long, and the last list of each reader.
func (s *storeBench) play(readers, batch int, d time.Duration) (writes storeTimes, reads []storeTimes, last [][]*storeObject, elapsed time.Duration) {
	reads, last = make([]storeTimes, readers), make([][]*storeObject, readers)
	writes.every = max(1, 64/batch)
	s.stop.Store(false)
	start := time.Now()
	var wg sync.WaitGroup
	for r := range readers {
		reads[r].every = 1
		wg.Go(func() { last[r] = s.read(r, &reads[r]) })
	}
	for time.Since(start) < d {
		for range writes.every {
			writes.call(func() { s.write(batch) })
		}
	}
	elapsed = time.Since(start)
	s.stop.Store(true)
	wg.Wait()
	return writes, reads, last, elapsed
}

// check fails the benchmark at the first wrong list, of the play or of the store as it is.
func (s *storeBench) check(b *testing.B) {
	b.Helper()
	for _, ns := range s.namespaces {
		s.list(ns, true)
	}
	if f := s.fault.Load(); f != nil {
		b.Fatal(*f)
	}
}

// eachStore runs a benchmark for every variant of the stores.
func eachStore(b *testing.B, labels string, f func(*testing.B, store.Variant)) {
	for _, v := range store.Variants() {
		b.Run(fmt.Sprintf("impl=%s%s/objects=%d", v.Name, labels, storeObjects), func(b *testing.B) { f(b, v) })
	}
}

// BenchmarkStore writes batches to a store of 150,000 objects, one after the other, while readers list
// a namespace of 3,000 after the other through a generated lister, which appends to a slice of its own.
// An iteration lasts 2 s, and half of that without readers; an op is a written object. A batch touches
// all namespaces, and no index value changes. cpu-ns/op and B/op are of the whole process: with readers,
// most of both are theirs. write-p99-ns is of a batch, read-p99-ns of a list. Each list is checked for
// its number of objects. Each 16th is checked for its namespace and, where the variant lists a point in
// time, for a part of a batch.
func BenchmarkStore(b *testing.B) {
	material := sync.OnceValue(newStoreMaterial)
	for _, c := range []struct{ readers, batch int }{{0, 1}, {0, 1000}, {1, 1000}, {8, 1}, {8, 1000}} {
		d := 2 * time.Second
		if c.readers == 0 {
			d /= 2
		}
		eachStore(b, fmt.Sprintf("/readers=%d/batch=%d", c.readers, c.batch), func(b *testing.B, v store.Variant) {
			b.ReportAllocs()
			var took time.Duration
			var written, listed, cpu, size, mallocs uint64
			var writeTimes, readTimes []float64
			for b.Loop() {
				b.StopTimer()
				s := newStoreBench(b, material(), v, c.batch)
				before, start := heap(), cpuTime()
				b.StartTimer()
				writes, reads, _, elapsed := s.play(c.readers, c.batch, d)
				b.StopTimer()
				cpu += cpuTime() - start
				var after runtime.MemStats
				runtime.ReadMemStats(&after)
				size, mallocs = size+after.TotalAlloc-before.TotalAlloc, mallocs+after.Mallocs-before.Mallocs
				took, written, writeTimes = took+elapsed, written+uint64(writes.calls*c.batch), append(writeTimes, writes.ns...)
				for _, r := range reads {
					listed, readTimes = listed+uint64(r.calls), append(readTimes, r.ns...)
				}
				s.check(b)
				b.StartTimer()
			}
			b.ReportMetric(float64(took)/float64(written), "ns/op")
			b.ReportMetric(float64(cpu)/float64(written), "cpu-ns/op")
			b.ReportMetric(float64(size)/float64(written), "B/op")
			b.ReportMetric(float64(mallocs)/float64(written), "allocs/op")
			b.ReportMetric(float64(written)/took.Seconds(), "writes/s")
			b.ReportMetric(p99(writeTimes), "write-p99-ns")
			if c.readers > 0 {
				b.ReportMetric(float64(listed)/took.Seconds(), "reads/s")
				b.ReportMetric(p99(readTimes), "read-p99-ns")
			}
		})
	}
}

func p99(ns []float64) float64 {
	slices.Sort(ns)
	return ns[len(ns)*99/100]
}

// BenchmarkStoreMemory reports the heap that a store holds for each of 150,000 objects, without the
// objects: all are written once in batches of 1,000, and then 1 s more with readers, whose last lists
// are kept.
func BenchmarkStoreMemory(b *testing.B) {
	const readers, batch = 8, 1000
	material := sync.OnceValue(newStoreMaterial)
	eachStore(b, fmt.Sprintf("/readers=%d/batch=%d", readers, batch), func(b *testing.B, v store.Variant) {
		var retained []float64
		for b.Loop() {
			material()
			before := heap()
			s := newStoreBench(b, material(), v, batch)
			for range storeObjects / batch {
				s.write(batch)
			}
			_, _, last, _ := s.play(readers, batch, time.Second)
			after := heap()
			retained = append(retained, float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/storeObjects)
			runtime.KeepAlive(last)
			s.check(b)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(stats.Median(retained), "retained-B/object")
	})
}

// BenchmarkStorePause replaces all 150,000 objects while one reader gets an object and lists a namespace
// in turn. pause-max-ns is the longest time from one finished read to the next, of reads that overlap a
// Replace: the median of 5. floor-max-ns is the same while another store of the variant is replaced: what
// the scheduler and the machine take. The collector waits until a Replace is over, because the lists of a
// reader that does not wait would start it. An op is a Replace.
func BenchmarkStorePause(b *testing.B) {
	const replaces = 5
	material := sync.OnceValue(newStoreMaterial)
	eachStore(b, "/readers=1", func(b *testing.B, v store.Variant) {
		var pauses, floors []float64
		var took time.Duration
		for b.Loop() {
			s, other := newStoreBench(b, material(), v, storeObjects), newStoreBench(b, material(), v, storeObjects)
			var longest, finished atomic.Int64
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i, last := 0, time.Now(); !s.stop.Load(); i++ {
					if o := s.passes[0][i%storeObjects].Object.(*storeObject); i%2 == 1 {
						s.list(o.Namespace, i%16 == 1)
					} else if _, ok, err := s.store.GetByKey(o.Namespace + "/" + o.Name); !ok || err != nil {
						s.fail("%s lacks an object (%v)", o.Namespace, err)
					}
					now := time.Now()
					gap := int64(now.Sub(last))
					for l := longest.Load(); gap > l && !longest.CompareAndSwap(l, gap); l = longest.Load() {
					}
					last = now
					finished.Add(1)
				}
			}()
			reads := func() { // waits for a read that begins from now on
				for n := finished.Load() + 2; finished.Load() < n; {
					runtime.Gosched()
				}
			}
			replace := func(of *storeBench, n int) (pause float64, took time.Duration) {
				list := s.replacement(n % storePasses)
				runtime.GC()
				defer debug.SetGCPercent(debug.SetGCPercent(-1))
				reads()
				longest.Store(0)
				start := time.Now()
				if err := of.store.Replace(list, strconv.Itoa(n)); err != nil {
					b.Fatal(err)
				}
				took = time.Since(start)
				reads()
				return float64(longest.Load()), took
			}
			for n := range replaces {
				floor, _ := replace(other, n)
				pause, d := replace(s, n)
				floors, pauses, took = append(floors, floor), append(pauses, pause), took+d
			}
			s.stop.Store(true)
			<-done
			s.check(b)
		}
		b.ReportMetric(float64(took)/float64(len(pauses)), "ns/op")
		b.ReportMetric(stats.Median(pauses), "pause-max-ns")
		b.ReportMetric(stats.Median(floors), "floor-max-ns")
	})
}
