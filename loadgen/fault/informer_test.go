package fault_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/storm"
)

var long = flag.Duration("faults", time.Second, "how long informers are to run through all faults over TCP")

// Times are virtual: the tests run in testing/synctest bubbles.
const (
	// between is the time between two events.
	between = 3 * time.Second
	// period is the time between two faults. A refused Reflector retries after up to 60 s.
	period = 130371 * time.Millisecond
	// patience is the time limit of an informer.
	patience = 24 * time.Hour
)

// client returns a ListerWatcher like that of generated clients and informers.
func client(t testing.TB, s *storm.Storm, host string, transport http.RoundTripper, accept string) cache.ListerWatcher {
	t.Helper()
	gv := s.Kind.GroupVersion()
	c, err := rest.RESTClientFor(&rest.Config{
		Host: host, APIPath: "/api", QPS: -1, Transport: transport,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: accept, ContentType: "application/json",
			GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	lw := cache.NewListWatchFromClient(c, s.Resource.Resource, metav1.NamespaceAll, fields.Everything())
	return cache.ToListWatcherWithWatchListSemantics(lw, c)
}

// informer is client-go's Reflector, a queue under test and a store, assembled as in
// client-go's controller.
type informer struct {
	store cache.Store
	queue deltafifo.Queue

	// changed receives a value after each batch.
	changed chan struct{}

	mu sync.Mutex
	// newest holds the last handled version by key. mu guards it and errs.
	newest map[string]uint64
	errs   []error
}

func newInformer(t testing.TB, variant string, delivery deltafifo.Delivery) *informer {
	t.Helper()
	inf := &informer{store: cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc), newest: map[string]uint64{}, changed: make(chan struct{}, 1)}
	opts := deltafifo.Options{Delivery: delivery}
	if delivery == deltafifo.PerKey {
		// Only per-key queues need them: in-order queues deliver a Replace as one batch,
		// as in today's informers.
		opts.KnownObjects = inf.store
	}
	q, err := deltafifo.New(variant, opts)
	if err != nil {
		t.Fatal(err)
	}
	inf.queue = q
	return inf
}

// run processes deltas until the queue is closed.
func (inf *informer) run() {
	one := func(obj any, _ bool) error {
		for _, d := range obj.(cache.Deltas) {
			inf.handle(d)
		}
		return nil
	}
	many := func(deltas []cache.Delta, _ bool) error {
		for _, d := range deltas {
			inf.handle(d)
		}
		return nil
	}
	for {
		var err error
		if b, ok := inf.queue.(deltafifo.BatchQueue); ok {
			err = b.PopBatch(many, one)
		} else {
			_, err = inf.queue.Pop(one)
		}
		select {
		case inf.changed <- struct{}{}:
		default:
		}
		if errors.Is(err, cache.ErrFIFOClosed) {
			return
		}
		if err != nil {
			inf.fail("%v", err)
		}
	}
}

func (inf *informer) fail(format string, args ...any) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.errs = append(inf.errs, fmt.Errorf(format, args...))
}

// handle applies a delta to the store and checks that no key goes back to an older version.
func (inf *informer) handle(d cache.Delta) {
	var err error
	switch info := d.Object.(type) {
	case cache.ReplacedAllInfo:
		err = inf.store.Replace(info.Objects, info.ResourceVersion)
		for _, o := range info.Objects {
			inf.see(o, "Replaced")
		}
	case cache.SyncAllInfo, cache.BookmarkInfo:
	case cache.DeletedFinalStateUnknown:
		err = inf.store.Delete(info)
	default:
		inf.see(d.Object, string(d.Type))
		if d.Type == cache.Deleted {
			err = inf.store.Delete(d.Object)
		} else {
			err = inf.store.Update(d.Object)
		}
	}
	if err != nil {
		inf.fail("%v: %v", d.Type, err)
	}
}

func (inf *informer) see(o any, what string) {
	key, version := identify(o)
	inf.mu.Lock()
	defer inf.mu.Unlock()
	// A list repeats known versions.
	if before := inf.newest[key]; version < before {
		inf.errs = append(inf.errs, fmt.Errorf("%s %s of version %d after %d", what, key, version, before))
	}
	inf.newest[key] = version
}

func identify(o any) (string, uint64) {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Sprintf("%T", o), 0
	}
	version, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	return storm.ObjectKey(m.GetNamespace(), m.GetName()), version
}

// settle waits until the store equals the final state.
func (inf *informer) settle(ctx context.Context, final map[string]uint64) {
	for !maps.Equal(inf.state(), final) {
		select {
		case <-inf.changed:
		case <-ctx.Done():
			return // check reports the difference
		}
	}
}

// state returns the versions in the store by key.
func (inf *informer) state() map[string]uint64 {
	state := map[string]uint64{}
	for _, o := range inf.store.List() {
		key, version := identify(o)
		state[key] = version
	}
	return state
}

// rig is a server with faults and any number of informers.
type rig struct {
	t       testing.TB
	s       *storm.Storm
	server  *apiserver.Server
	inj     *fault.Injector
	clients []*checker
	infs    []*informer
	running sync.WaitGroup
	// backoff is that of the reflectors; nil means client-go's default.
	backoff *wait.Backoff
	stop    context.CancelFunc
	ctx     context.Context
}

func newRig(t testing.TB, s *storm.Storm, specs []fault.Spec, seed int64, bookmarks time.Duration) *rig {
	t.Helper()
	server, err := apiserver.New(s, apiserver.Options{BookmarkInterval: bookmarks})
	if err != nil {
		t.Fatal(err)
	}
	inj, err := fault.New(specs, seed)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	return &rig{t: t, s: s, server: server, inj: inj, ctx: ctx, stop: stop}
}

// add starts an informer behind a checker.
func (r *rig) add(lw cache.ListerWatcher, variant string, delivery deltafifo.Delivery) {
	r.t.Helper()
	c := newChecker(r.s)
	inf := newInformer(r.t, variant, delivery)
	reflector := cache.NewReflectorWithOptions(c.wrap(cache.ToListerWatcherWithContext(lw)), &v1.Pod{}, inf.queue, cache.ReflectorOptions{Name: variant, Backoff: r.backoff})
	r.clients, r.infs = append(r.clients, c), append(r.infs, inf)
	r.running.Go(inf.run)
	r.running.Go(func() {
		reflector.RunWithContext(r.ctx)
		inf.queue.Close()
	})
}

// play releases one event per period while faults happen. It waits until all informers
// have received and stored all events.
func (r *rig) play(every, patience time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	for _, c := range r.clients {
		if err := c.reach(ctx, uint64(r.s.Initial)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.inj.Start(); err != nil {
		r.t.Fatal(err)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for _, e := range r.s.Events[r.s.Initial:] {
		<-tick.C
		r.server.Release(e.Seq)
	}
	for _, c := range r.clients {
		if err := c.reach(ctx, uint64(len(r.s.Events))); err != nil {
			r.t.Error(err)
		}
	}
	for _, inf := range r.infs {
		inf.settle(ctx, r.s.Final())
	}
	select {
	case <-r.inj.Over():
	case <-ctx.Done():
		r.t.Errorf("the faults go on after %v", patience)
	}
	r.stop()
	r.running.Wait()
	r.inj.Stop()
}

// check fails the test if an informer lost an event or a guarantee was broken.
func (r *rig) check() {
	r.t.Helper()
	for i, inf := range r.infs {
		for _, err := range slices.Concat(r.clients[i].errs, inf.errs) {
			r.t.Errorf("informer %d: %v", i, err)
		}
		if diff := cmp.Diff(r.s.Final(), inf.state()); diff != "" {
			r.t.Errorf("informer %d: the store (-want +got):\n%s", i, diff)
		}
	}
	if r.t.Failed() {
		for _, in := range r.inj.Log() {
			r.t.Log(in)
		}
	}
}

// bubble runs an informer through faults in a testing/synctest bubble.
func bubble(t *testing.T, s *storm.Storm, specs []fault.Spec, seed int64, accept, variant string, delivery deltafifo.Delivery) (counts map[fault.Name]int, checked *checker) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, s, specs, seed, 10*time.Second)
		l := fault.NewPipe()
		srv := &http.Server{Handler: r.inj.Wrap(r.server)}
		r.running.Go(func() { _ = srv.Serve(l) })
		transport := l.Transport()
		r.add(client(t, s, "http://pipe", transport, accept), variant, delivery)
		stop := r.stop
		r.stop = func() {
			stop()
			_ = srv.Close()
			transport.CloseIdleConnections()
		}
		r.play(between, patience)
		r.check()
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
		counts, checked = r.inj.Counts(), r.clients[0]
	})
	return counts, checked
}

// watchLists runs f with WatchList and with list and watch.
func watchLists(t *testing.T, f func(t *testing.T)) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchlist=%v", on), func(t *testing.T) {
			featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, on)
			f(t)
		})
	}
}

// encodings are Accept headers of informers; the server picks a supported one.
var encodings = []string{"application/json", "application/vnd.kubernetes.protobuf,application/json"}

// TestEachFault repeats one fault at a time. Without a fault, the client lists and watches once.
func TestEachFault(t *testing.T) {
	s := pods(600, 30)
	watchLists(t, func(t *testing.T) {
		_, checked := bubble(t, pods(60, 30), nil, 1, encodings[0], "cond", deltafifo.InOrder)
		if checked.watches != 1 || checked.lists > 1 {
			t.Errorf("%d watches and %d lists, want one watch", checked.watches, checked.lists)
		}
		for i, name := range fault.Names() {
			t.Run("fault="+string(name), func(t *testing.T) {
				specs := []fault.Spec{{Name: name, Every: fault.Duration(period), Count: 6}}
				counts, checked := bubble(t, s, specs, int64(i), encodings[i%2], "cond", deltafifo.InOrder)
				if counts[name] < 3 {
					t.Errorf("%d injections", counts[name])
				}
				switch name {
				case fault.Stall, fault.Drip, fault.DuplicateBookmark:
					// The Reflector ends watches on its own after several minutes.
					if n := checked.watches; n > 8 {
						t.Errorf("%d watches: the fault ends them", n)
					}
				default:
					if n := checked.watches; n < 4 {
						t.Errorf("%d watches: the fault ended too few", n)
					}
				}
			})
		}
	})
}

// Faults that frames trigger hit in the middle of a write.
func TestFaultsAfterFrames(t *testing.T) {
	s := pods(600, 30)
	watchLists(t, func(t *testing.T) {
		var specs []fault.Spec
		for i, name := range fault.Names() {
			spec := fault.Spec{Name: name, Frames: 7 + 2*i, Count: 5}
			if spec.Validate() == nil {
				specs = append(specs, spec)
			}
		}
		// After a stall, one Write has many frames.
		specs = append(specs, fault.Spec{Name: fault.Stall, Every: fault.Duration(period), Count: 4, Duration: fault.Duration(20 * time.Second)})
		counts, _ := bubble(t, s, specs, 1, encodings[0], "ring", deltafifo.InOrder)
		if len(counts) < 6 {
			t.Errorf("injections of %v only", counts)
		}
	})
}

// TestAllFaultsOnAllVariants injects all faults into each variant.
func TestAllFaultsOnAllVariants(t *testing.T) {
	s := pods(500, 30)
	watchLists(t, func(t *testing.T) {
		for i, v := range deltafifo.Variants() {
			for _, mode := range v.Guarantees {
				t.Run("impl="+v.Name+"/delivery="+mode.Mode, func(t *testing.T) {
					specs := fault.Cycle(period, 1)
					counts, _ := bubble(t, s, specs, int64(i), encodings[i%2], v.Name, deltafifo.Delivery(mode.Mode))
					// Up to three faults may hit while the Reflector waits to retry.
					if len(counts) < len(fault.Names())-3 {
						t.Errorf("injections of %v only", counts)
					}
				})
			}
		}
	})
}

// TestOverTCP runs all variants at once over TCP, in real time, for the duration of -faults.
func TestOverTCP(t *testing.T) {
	watchLists(t, func(t *testing.T) {
		length := *long / 2
		const pace = time.Millisecond
		s := pods(max(500, int(length/pace)), 50)
		// Run as many rounds of a tour as fit, and leave a quarter of the time to settle.
		period := min(max(length/time.Duration(8*len(fault.Names())), 50*time.Millisecond), time.Second)
		rounds := max(1, int(length*3/4/period)/len(fault.Names()))
		specs := fault.Cycle(period, rounds)
		for i, s := range specs {
			if s.Duration = fault.Duration(period / 3); s.Validate() == nil {
				specs[i] = s
			}
		}
		r := newRig(t, s, specs, 1, 100*time.Millisecond)
		srv := &http.Server{Handler: r.inj.Wrap(r.server), ReadHeaderTimeout: time.Minute}
		// A short backoff: the faults need open watches.
		r.backoff = &wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 100 * time.Millisecond}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r.running.Go(func() { _ = srv.Serve(l) })
		transport := &http.Transport{DisableCompression: true}
		for _, v := range deltafifo.Variants() {
			r.add(client(t, s, "http://"+l.Addr().String(), transport, encodings[len(r.infs)%2]), v.Name, deltafifo.Delivery(v.Guarantees[0].Mode))
		}
		stop := r.stop
		r.stop = func() {
			stop()
			_ = srv.Close()
			transport.CloseIdleConnections()
		}
		r.play(pace, length+5*time.Minute)
		r.check()
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
		// A longer run has time for every fault.
		if n := len(r.inj.Counts()); period == time.Second && n < len(fault.Names()) {
			t.Errorf("injections of %d faults only", n)
		}
		t.Logf("%d informers, %d events each in %v; faults: %v", len(r.clients), len(s.Events), length, r.inj.Counts())
	})
}
