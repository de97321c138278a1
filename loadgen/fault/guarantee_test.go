package fault_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/loadgen/storm"
)

func TestMain(m *testing.M) {
	// Neither log faults nor pause after them: client-go's pause is global and does not
	// use the virtual time of a bubble.
	klog.SetLogger(klog.New(nil))
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// pods returns a deterministic storm of n events of small pods. Its first events are an
// initial list.
func pods(n, keys int) *storm.Storm {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(keys)))
	s := &storm.Storm{
		Name:     "pods",
		Resource: v1.SchemeGroupVersion.WithResource("pods"),
		Kind:     v1.SchemeGroupVersion.WithKind("Pod"),
		Initial:  keys / 2,
	}
	index := map[string]int32{}
	live := map[string]bool{}
	for i := range n {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace:       "default",
			Name:            fmt.Sprintf("pod-%d", rng.IntN(keys)),
			ResourceVersion: strconv.Itoa(i + 1),
			Labels:          map[string]string{"n": strconv.Itoa(i)},
		}}
		if i < s.Initial {
			p.Name = fmt.Sprintf("pod-%d", i)
		}
		key := storm.ObjectKey(p.Namespace, p.Name)
		if _, ok := index[key]; !ok {
			index[key] = int32(len(index))
		}
		t := watch.Added
		if live[key] {
			t = watch.Modified
			if rng.IntN(4) == 0 {
				t = watch.Deleted
			}
		}
		live[key] = t != watch.Deleted
		s.Events = append(s.Events, storm.Event{
			Type: t, Seq: uint64(i + 1), At: time.Duration(i) * time.Millisecond, Key: key, KeyIndex: index[key], Object: p,
		})
	}
	s.Keys = len(index)
	return s
}

// The guarantees of a watch by etcd's names (https://etcd.io/docs/latest/learning/api_guarantees/#watch-apis), as the
// errors of their violations.
var (
	errOrdered      = errors.New("broken guarantee Ordered")      // an event is not newer than the last one
	errAtomic       = errors.New("broken guarantee Atomic")       // an event or a state is not that of its version
	errReliable     = errors.New("broken guarantee Reliable")     // an event is left out
	errResumable    = errors.New("broken guarantee Resumable")    // the client goes on from a version that it does not have
	errBookmarkable = errors.New("broken guarantee Bookmarkable") // a bookmark is not of the version of the last event
)

// checker checks the lists and watches of one client, such as a Reflector, against a storm that is not changed: each
// watch sends the storm's events, without a gap. An ERROR event, a broken connection or a refused request breaks no
// guarantee. It is safe for concurrent use.
type checker struct {
	storm *storm.Storm

	mu             sync.Mutex // guards the fields below
	at             uint64     // the client has received everything up to it
	raised         chan struct{}
	lists, watches int
	errs           []error
}

func newChecker(s *storm.Storm) *checker { return &checker{storm: s, raised: make(chan struct{})} }

// reach waits until the client has received everything up to a version.
func (c *checker) reach(ctx context.Context, version uint64) error {
	for {
		c.mu.Lock()
		at, raised := c.at, c.raised
		c.mu.Unlock()
		if at >= version {
			return nil
		}
		select {
		case <-raised:
		case <-ctx.Done():
			return fmt.Errorf("the client has received up to %d of %d: %w", at, version, ctx.Err())
		}
	}
}

// set sets the client's version. The caller holds mu, as for the functions below.
func (c *checker) set(version uint64) {
	c.at = version
	close(c.raised)
	c.raised = make(chan struct{})
}

func (c *checker) broken(guarantee error, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%w: %s", guarantee, fmt.Sprintf(format, args...)))
}

// event returns the storm's event of an object's version, whose object must be equal.
func (c *checker) event(o runtime.Object) *storm.Event {
	key, version := identify(o)
	if version == 0 || version > uint64(len(c.storm.Events)) {
		c.broken(errAtomic, "%s of version %d, which has never been", key, version)
		return nil
	}
	e := &c.storm.Events[version-1]
	want, got := e.Object.DeepCopyObject(), o.DeepCopyObject()
	want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // Decoders omit it.
	got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if !equality.Semantic.DeepEqual(want, got) {
		c.broken(errAtomic, "%s of version %d is not what it was", key, version)
	}
	return e
}

// state compares the objects of a list, or of a watch before its first event, with those of a version.
func (c *checker) state(objects []runtime.Object, version uint64) {
	got, want := map[string]uint64{}, map[string]uint64{}
	for _, o := range objects {
		if e := c.event(o); e != nil {
			got[e.Key] = e.Seq
		}
	}
	for _, e := range c.storm.Events[:min(version, uint64(len(c.storm.Events)))] {
		if want[e.Key] = e.Seq; e.Type == watch.Deleted {
			delete(want, e.Key)
		}
	}
	if len(objects) != len(got) || !maps.Equal(want, got) {
		c.broken(errAtomic, "a state of %d objects is not that of version %d: %v, want %v", len(objects), version, got, want)
	}
	c.set(version)
}

func (c *checker) list(list runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	items, err := meta.ExtractList(list)
	m, merr := meta.ListAccessor(list)
	if err = errors.Join(err, merr); err != nil {
		c.broken(errAtomic, "%v", err)
		return
	}
	version, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	c.state(items, version)
}

// watched is a watch of the client.
type watched struct {
	*checker
	version uint64 // of the last event
	initial bool   // a bookmark ends the initial events
	objects []runtime.Object
}

func (c *checker) watch(opts metav1.ListOptions) *watched {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches++
	w := &watched{checker: c, initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents}
	if w.version, _ = strconv.ParseUint(opts.ResourceVersion, 10, 64); !w.initial && w.version > c.at {
		c.broken(errResumable, "the client goes on from version %d, it has received up to %d", w.version, c.at)
	}
	return w
}

func (w *watched) event(e watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Type == watch.Error {
		return
	}
	_, version := identify(e.Object)
	m, _ := meta.Accessor(e.Object)
	switch {
	case e.Type == watch.Bookmark && w.initial && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		w.initial, w.version = false, version
		w.state(w.objects, version)
		return
	case e.Type == watch.Bookmark:
		if w.initial || version != w.version {
			w.broken(errBookmarkable, "a bookmark of version %d after version %d", version, w.version)
		}
		return
	case w.initial:
		w.objects = append(w.objects, e.Object)
		return
	}
	is := w.checker.event(e.Object)
	switch {
	case is == nil:
		return
	case is.Type != e.Type:
		w.broken(errAtomic, "%s of version %d, which was %s", e.Type, version, is.Type)
	case version <= w.version:
		w.broken(errOrdered, "version %d after %d", version, w.version)
	case version > w.version+1:
		w.broken(errReliable, "version %d after %d", version, w.version)
	}
	w.version = version
	w.set(version)
}

// wrap returns a ListerWatcher that reports to the checker.
func (c *checker) wrap(lw cache.ListerWatcherWithContext) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, opts)
			if err == nil {
				c.list(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			in, err := lw.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			out := make(chan watch.Event)
			proxy := watch.NewProxyWatcher(out)
			go c.watch(opts).forward(in, out, proxy.StopChan())
			return proxy, nil
		},
	}
}

// forward passes on the events of a watch until the client stops it.
func (w *watched) forward(in watch.Interface, out chan<- watch.Event, stop <-chan struct{}) {
	defer close(out)
	for {
		select {
		case e, ok := <-in.ResultChan():
			if !ok {
				return
			}
			w.event(e)
			select {
			case out <- e:
			case <-stop:
			}
		case <-stop:
			in.Stop()
			for range in.ResultChan() {
				continue
			}
			return
		}
	}
}

// TestChecker: each violation breaks its guarantee and no other, and a client may go on from an older version.
func TestChecker(t *testing.T) {
	s := pods(100, 10)
	var w *watched
	send := func(from, to int) {
		for _, e := range s.Events[from-1 : to] {
			w.event(watch.Event{Type: e.Type, Object: e.Object})
		}
	}
	bookmark := func(version int, ends string) {
		o := &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: ends}}}
		w.event(watch.Event{Type: watch.Bookmark, Object: o})
	}
	list := func(version, without int) *v1.PodList {
		live := map[string]v1.Pod{}
		for _, e := range s.Events[:version] {
			if live[e.Key] = *e.Object.(*v1.Pod); e.Type == watch.Deleted {
				delete(live, e.Key)
			}
		}
		l := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}}
		for _, p := range live {
			l.Items = append(l.Items, p)
		}
		l.Items = l.Items[without:]
		return l
	}
	for name, test := range map[string]struct {
		play func(c *checker)
		want error
	}{
		"a whole watch": {func(*checker) { send(21, 50); bookmark(50, ""); send(51, 100) }, nil},
		"a watch from an older version": {func(c *checker) {
			send(21, 50)
			w = c.watch(metav1.ListOptions{ResourceVersion: "40"})
			send(41, 100)
		}, nil},
		"a new list":               {func(c *checker) { send(21, 50); c.list(list(100, 0)) }, nil},
		"a list with a gap":        {func(c *checker) { c.list(list(100, 1)) }, errAtomic},
		"an event twice":           {func(*checker) { send(21, 50); send(50, 50) }, errOrdered},
		"an old event":             {func(*checker) { send(20, 20) }, errOrdered},
		"an event left out":        {func(*checker) { send(21, 50); send(52, 100) }, errReliable},
		"the first event left out": {func(*checker) { send(22, 100) }, errReliable},
		"a bookmark ahead":         {func(*checker) { bookmark(21, "") }, errBookmarkable},
		"an old bookmark":          {func(*checker) { bookmark(19, "") }, errBookmarkable},
		"another type":             {func(*checker) { w.event(watch.Event{Type: "OTHER", Object: s.Events[20].Object}) }, errAtomic},
		"another object": {func(*checker) {
			o := s.Events[20].Object.DeepCopyObject().(*v1.Pod)
			o.Labels["n"] = "x"
			w.event(watch.Event{Type: s.Events[20].Type, Object: o})
		}, errAtomic},
		"versions skipped by the client": {func(c *checker) { c.watch(metav1.ListOptions{ResourceVersion: "60"}) }, errResumable},
		"initial events with a gap": {func(c *checker) {
			w = c.watch(metav1.ListOptions{SendInitialEvents: new(true)})
			for _, p := range list(30, 1).Items {
				w.event(watch.Event{Type: watch.Added, Object: &p})
			}
			bookmark(30, "true")
		}, errAtomic},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecker(s)
			c.list(list(20, 0))
			w = c.watch(metav1.ListOptions{ResourceVersion: "20"})
			test.play(c)
			if err := errors.Join(c.errs...); !errors.Is(err, test.want) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
