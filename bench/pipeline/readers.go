package pipeline

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/pprof"
	"watchlab/loadgen/storm"
)

// Listed is the duration of a reader's list.
const Listed cell.Boundary = "list"

// readers list the namespaces of an indexer in turn, each from another one on. Like
// generated listers, they append to their own slice. They do not pause: each keeps a
// processor busy, and its allocations count as the cell's. Between two lists a reader lets
// others run. Without that, readers that wait for no lock keep all processors for 10 ms at
// a time, and the generator, the writer and the worker wait for the Go scheduler.
type readers struct {
	indexer    cache.Indexer
	namespaces []string
	st         *stamps

	since, until int64 // begin and end of the reading, in nanoseconds since the stamps' epoch
	over         atomic.Bool
	wg           sync.WaitGroup
	logs         [][]read // by reader
	errs         []error  // by reader, which ends at its first error
}

// read is one list.
type read struct {
	lookUp
	objects int
}

func newReaders(n int, indexer cache.Indexer, s *storm.Storm, st *stamps) *readers {
	r := &readers{
		indexer: indexer, namespaces: namespacesOf(s), st: st,
		logs: make([][]read, n), errs: make([]error, n),
	}
	for i := range r.logs {
		r.logs[i] = make([]read, 0, 1<<14)
	}
	return r
}

// namespacesOf returns the namespaces of a storm, sorted; the empty one, which
// lists everything, for objects without.
func namespacesOf(s *storm.Storm) []string {
	seen := map[string]bool{}
	for i := range s.Events {
		namespace, _, ok := strings.Cut(s.Events[i].Key, "/")
		if !ok {
			namespace = ""
		}
		seen[namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func (r *readers) start(ctx context.Context) {
	r.since = r.st.now()
	for i := range r.logs {
		r.wg.Go(func() {
			pprof.Do(ctx, stageRead, func(context.Context) { r.errs[i] = r.read(i) })
		})
	}
}

func (r *readers) read(i int) error {
	everything := labels.Everything()
	for n := i; !r.over.Load(); n++ {
		var list []any
		begin := r.st.now()
		err := cache.ListAllByNamespace(r.indexer, r.namespaces[n%len(r.namespaces)], everything, func(o any) {
			list = append(list, o)
		})
		if err != nil {
			return err
		}
		r.logs[i] = append(r.logs[i], read{lookUp{begin, r.st.now()}, len(list)})
		runtime.Gosched()
	}
	return nil
}

// stop ends the readers; wait waits for them and returns the first error.
func (r *readers) stop() {
	r.until = r.st.now()
	r.over.Store(true)
}

func (r *readers) wait() error {
	r.wg.Wait()
	return cmp.Or(r.errs...)
}

// report records the lists, and, with fresh, their staleness. A list shows at least the
// objects stored at its begin; the reader uses it at its end.
func (r *readers) report(rec *cell.Recorder, fresh *freshness) {
	var lists []lookUp
	objects := 0
	for _, l := range slices.Concat(r.logs...) {
		lists = append(lists, l.lookUp)
		objects += l.objects
		rec.Latency(Listed, time.Duration(l.end-l.begin))
	}
	rec.Note("reads/s", float64(len(lists))/time.Duration(r.until-r.since).Seconds())
	rec.Note("objects/read", float64(objects)/float64(max(1, len(lists))))
	if fresh != nil {
		fresh.report(rec, ListStaleness, lists)
	}
}
