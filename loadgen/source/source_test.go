package source_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

func TestMain(m *testing.M) {
	source.RunChild()
	goleak.VerifyTestMain(m)
}

// patience is the time limit for expected events.
const patience = time.Minute

var nodeloss = sync.OnceValues(func() (*storm.Storm, error) { return trace.Load("recorded-nodeloss") })

func newSource(t testing.TB, name string, s *storm.Storm) (source.Source, error) {
	maker, err := source.Options{}.Prepare(name, s)
	if err != nil {
		return nil, err
	}
	return maker(t.Context())
}

func load(t testing.TB) *storm.Storm {
	t.Helper()
	s := must(nodeloss())(t)
	return s
}

var generated = sync.OnceValues(func() (*storm.Set, error) {
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		return nil, err
	}
	p.Resize(0, 60, 0)
	return p.Set(1)
})

// small returns a storm of some hundred events.
func small(t testing.TB) *storm.Storm {
	t.Helper()
	set := must(generated())(t)
	return set.Storms[0]
}

// empty is a storm without an initial list: its first list has version "0".
func empty() *storm.Storm {
	s := &storm.Storm{
		Name:     "empty",
		Resource: v1.SchemeGroupVersion.WithResource("pods"),
		Kind:     v1.SchemeGroupVersion.WithKind("Pod"),
		Keys:     3,
	}
	for i := range 90 {
		seq := uint64(i + 1)
		name := fmt.Sprintf("pod-%d", i%3)
		s.Events = append(s.Events, storm.Event{
			Type:     []watch.EventType{watch.Added, watch.Modified, watch.Deleted}[i/3%3],
			Seq:      seq,
			At:       time.Duration(i) * time.Millisecond,
			Key:      "default/" + name,
			KeyIndex: int32(i % 3),
			Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, ResourceVersion: strconv.FormatUint(seq, 10),
			}},
		})
	}
	return s
}

// sink records the events of a consumer and wakes up waiting goroutines.
type sink struct {
	mu     sync.Mutex
	cond   *sync.Cond
	got    []uint64          // versions in order of arrival
	live   map[string]uint64 // version of each existing object, by key
	newest map[string]uint64 // highest version of each key
	max    uint64
	errs   []error
}

func newSink() *sink {
	s := &sink{live: map[string]uint64{}, newest: map[string]uint64{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *sink) take(obj any, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.cond.Broadcast()
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		delete(s.live, d.Key)
		return
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	key := storm.ObjectKey(m.GetNamespace(), m.GetName())
	seq, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	if seq <= s.newest[key] {
		s.errs = append(s.errs, fmt.Errorf("%s: %d after %d", key, seq, s.newest[key]))
	}
	s.newest[key] = seq
	s.max = max(s.max, seq)
	s.got = append(s.got, seq)
	if deleted {
		delete(s.live, key)
	} else {
		s.live[key] = seq
	}
}

// handler feeds the sink from an informer.
func (s *sink) handler() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.take(obj, false) },
		UpdateFunc: func(_, obj any) { s.take(obj, false) },
		DeleteFunc: func(obj any) { s.take(obj, true) },
	}
}

// await waits until the sink has seen version seq or a later one.
func (s *sink) await(t testing.TB, seq uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.max < seq && ctx.Err() == nil {
		s.cond.Wait()
	}
	if s.max < seq {
		t.Errorf("saw events up to %d in %v, want %d", s.max, patience, seq)
	}
}

// checkAll fails the test unless the sink received every event of the storm exactly once: the
// initial list in any order, the rest in the order of the storm.
func (s *sink) checkAll(t testing.TB, st *storm.Storm) {
	t.Helper()
	s.checkState(t, st)
	s.mu.Lock()
	defer s.mu.Unlock()
	got := slices.Clone(s.got)
	slices.Sort(got[:min(st.Initial, len(got))])
	want := make([]uint64, len(st.Events))
	for i := range want {
		want[i] = uint64(i + 1)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// checkState fails the test unless the sink ended in the storm's final state and no key's
// version ever decreased.
func (s *sink) checkState(t testing.TB, st *storm.Storm) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.errs {
		t.Error(err)
	}
	if diff := cmp.Diff(st.Final(), s.live); diff != "" {
		t.Errorf("final state (-want +got):\n%s", diff)
	}
}

// checkStore compares an informer's store with the storm's final state.
func checkStore(t testing.TB, st *storm.Storm, store cache.Store) {
	t.Helper()
	got := map[string]uint64{}
	for _, o := range store.List() {
		m := must(meta.Accessor(o))(t)
		got[storm.ObjectKey(m.GetNamespace(), m.GetName())], _ = strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	}
	if diff := cmp.Diff(st.Final(), got); diff != "" {
		t.Errorf("store (-want +got):\n%s", diff)
	}
}

// inform runs a shared informer on the source until the test ends.
func inform(t testing.TB, src source.Source, s *sink) cache.SharedIndexInformer {
	t.Helper()
	inf := cache.NewSharedIndexInformer(src.ListerWatcher(), &v1.Pod{}, 0, cache.Indexers{})
	if _, err := inf.AddEventHandler(s.handler()); err != nil {
		t.Fatal(err)
	}
	run(t, inf.RunWithContext)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		t.Fatal("not synced")
	}
	return inf
}

// run runs f until the test ends.
func run(t testing.TB, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func open(t testing.TB, name string, st *storm.Storm) source.Source {
	t.Helper()
	src := must(newSource(t, name, st))(t)
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// client lists and watches without a Reflector.
func client(src source.Source) cache.ListerWatcherWithContext {
	return cache.ToListerWatcherWithContext(src.ListerWatcher())
}

func pacer(t testing.TB, r pace.Rate) *pace.Pacer {
	p := pace.On(r)
	p.Start(time.Now())
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// play releases all events of the storm, and returns those whose release was reported.
func play(t testing.TB, src source.Source, st *storm.Storm, r pace.Rate) (released []uint64) {
	return playTo(t, src, pacer(t, r), uint64(len(st.Events)))
}

func playTo(t testing.TB, src source.Source, p *pace.Pacer, upto uint64) (released []uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	noError(t, src.Play(ctx, p, upto, func(seq uint64, _ time.Time) { released = append(released, seq) }))
	return released
}

// each runs a test on both sources, with WatchList and with list and watch.
func each(t *testing.T, f func(t *testing.T, name string)) {
	for _, name := range source.Names() {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprintf("source=%s/watchlist=%v", name, watchList), func(t *testing.T) {
				featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
				f(t, name)
			})
		}
	}
}

func TestInformer(t *testing.T) {
	for name, st := range map[string]*storm.Storm{"small": small(t), "empty": empty()} {
		t.Run("storm="+name, func(t *testing.T) {
			each(t, func(t *testing.T, name string) { seesEverything(t, name, st) })
		})
	}
	if testing.Short() {
		return
	}
	// The whole recording, with the current defaults of informers.
	for _, name := range source.Names() {
		t.Run("storm=nodeloss/source="+name, func(t *testing.T) { seesEverything(t, name, load(t)) })
	}
}

func seesEverything(t *testing.T, name string, st *storm.Storm) {
	src := open(t, name, st)
	s := newSink()
	inf := inform(t, src, s)
	s.await(t, uint64(st.Initial))
	released := play(t, src, st, pace.Unpaced)
	s.await(t, uint64(len(st.Events)))
	s.checkAll(t, st)
	checkStore(t, st, inf.GetStore())
	if n := src.Relists(); n != 0 {
		t.Errorf("Relists() = %d, want 0", n)
	}
	if len(released) != len(st.Events)-st.Initial || !slices.IsSorted(released) ||
		released[0] != uint64(st.Initial+1) {
		t.Errorf("released %d events, want those after the initial list once, in order", len(released))
	}
}

// A broken watch resumes at its position: of two informers, neither loses or duplicates an event.
func TestDisconnectAndResume(t *testing.T) {
	st := small(t)
	each(t, func(t *testing.T, name string) {
		src := open(t, name, st)
		sinks := []*sink{newSink(), newSink()}
		var informers []cache.SharedIndexInformer
		for _, s := range sinks {
			informers = append(informers, inform(t, src, s))
			s.await(t, uint64(st.Initial))
		}
		middle := uint64(st.Initial+len(st.Events)) / 2
		// The Reflector lists again after a watch without events.
		p := pacer(t, 20_000)
		playTo(t, src, p, middle)
		for _, s := range sinks {
			s.await(t, uint64(st.Initial+1))
		}
		src.Disconnect()
		playTo(t, src, p, uint64(len(st.Events)))
		for i, s := range sinks {
			s.await(t, uint64(len(st.Events)))
			s.checkAll(t, st)
			checkStore(t, st, informers[i].GetStore())
		}
		if n := src.Relists(); n != 1 {
			t.Errorf("Relists() = %d, want 1: the second informer's list, as a resume is none", n)
		}
	})
}

func TestClosed(t *testing.T) {
	for _, name := range source.Names() {
		src := open(t, name, empty())
		noError(t, src.Close())
		if err := src.Close(); err != nil {
			t.Errorf("%s: a second Close: %v", name, err)
		}
		if _, err := client(src).ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("%s: a list of a closed source: no error", name)
		}
	}
}

func TestNew(t *testing.T) {
	_, err := newSource(t, "etcd", empty())
	if !errors.Is(err, source.ErrUnknownSource) || !strings.Contains(err.Error(), "memory, apiserver") {
		t.Errorf("New(etcd): %v, want ErrUnknownSource and the names", err)
	}
	unknown := empty()
	unknown.Kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	if _, err := newSource(t, source.APIServerName, unknown); err == nil {
		t.Error("a kind unknown to client-go: no error")
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError ends the test with the error of a call.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
