package fault_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

func TestMain(m *testing.M) {
	source.RunChild()
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

// script passes the answers and events of one client to a checker.
type script struct {
	t *testing.T
	s *storm.Storm
	*checker
	w *watchChecker
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := pods(100, 10)
	c, err := newChecker(s)
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, s: s, checker: c}
}

// state returns the objects at a version, in no order.
func (p *script) state(version int) []v1.Pod {
	live := map[string]v1.Pod{}
	for _, e := range p.s.Events[:version] {
		if e.Type == watch.Deleted {
			delete(live, e.Key)
		} else {
			live[e.Key] = *e.Object.(*v1.Pod)
		}
	}
	var all []v1.Pod
	for _, pod := range live {
		all = append(all, pod)
	}
	return all
}

func (p *script) list(version int, change ...func([]v1.Pod) []v1.Pod) {
	items := p.state(version)
	for _, f := range change {
		items = f(items)
	}
	p.List(metav1.ListOptions{}, &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}, Items: items})
}

func (p *script) watch(version string) {
	p.w = p.Watch(metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
}

// watchList starts a watch with the initial state at a version.
func (p *script) watchList(version, notOlder int) {
	yes := true
	p.w = p.Watch(metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersion: strconv.Itoa(notOlder), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	for _, pod := range p.state(version) {
		p.w.Event(watch.Event{Type: watch.Added, Object: &pod})
	}
}

// events sends the events of a range of versions.
func (p *script) events(from, to int) {
	for _, e := range p.s.Events[from-1 : to] {
		p.w.Event(watch.Event{Type: e.Type, Object: e.Object})
	}
}

func (p *script) bookmark(version int, end bool) {
	o := &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}
	if end {
		o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	p.w.Event(watch.Event{Type: watch.Bookmark, Object: o})
}

func (p *script) check(want ...error) {
	p.t.Helper()
	var got []error
	for _, v := range p.Violations() {
		if !slices.Contains(got, v.Guarantee) {
			got = append(got, v.Guarantee)
		}
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("broken: %v, want %v\n%v", got, want, p.Err())
	}
}

func TestAllowedByGuarantee(t *testing.T) {
	for name, play := range map[string]func(p *script){
		"list and watch": func(p *script) {
			p.list(20)
			p.watch("20")
			p.events(21, 50)
			p.bookmark(50, false)
			p.bookmark(50, false)
			p.w.Event(watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410}})
			p.list(70)
			p.watch("70")
			p.watch("70")
			p.events(71, 100)
		},
		"resume from older version": func(p *script) {
			p.list(20)
			p.watch("20")
			p.events(21, 50)
			p.watch("40")
			p.events(41, 100)
		},
		"watch list": func(p *script) {
			p.watchList(30, 0)
			p.watchList(30, 0) // the connection broke before the end
			p.bookmark(30, true)
			p.bookmark(30, true)
			p.events(31, 60)
			p.watchList(70, 60)
			p.bookmark(70, true)
			p.events(71, 100)
		},
		"pages": func(p *script) {
			items := p.state(60)
			page := func(from, to int, token, next string) {
				p.List(metav1.ListOptions{Limit: 2, Continue: token}, &v1.PodList{
					ListMeta: metav1.ListMeta{ResourceVersion: "60", Continue: next}, Items: items[from:to],
				})
			}
			page(0, 2, "", "a")
			page(0, 2, "", "b") // from the start again
			page(2, len(items), "b", "")
			p.watch("60")
			p.events(61, 100)
		},
		"state without bookmark": func(p *script) {
			p.watch("")
			for _, pod := range p.state(30) {
				p.w.Event(watch.Event{Type: watch.Added, Object: &pod})
			}
			p.events(31, 100)
		},
		"state without events": func(p *script) {
			p.watch("0")
			p.events(1, 2)
			p.list(100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newScript(t)
			play(p)
			p.Finish()
			p.check()
			if p.At() != 100 {
				t.Errorf("At() = %d, want 100", p.At())
			}
		})
	}
}

// Each violation breaks its own guarantee and no other.
func TestViolations(t *testing.T) {
	drop := func(items []v1.Pod) []v1.Pod { return items[1:] }
	for name, test := range map[string]struct {
		play func(p *script)
		want error
	}{
		"an event too late":        {func(p *script) { p.events(21, 30); p.events(32, 32); p.events(31, 31); p.events(33, 100) }, nil},
		"old event":                {func(p *script) { p.events(20, 100) }, errOrdered},
		"an event twice":           {func(p *script) { p.events(21, 50); p.events(50, 100) }, errUnique},
		"events over again":        {func(p *script) { p.events(21, 50); p.events(40, 100) }, errUnique},
		"an event left out":        {func(p *script) { p.events(21, 50); p.events(52, 100) }, errReliable},
		"the end left out":         {func(p *script) { p.events(21, 99) }, errReliable},
		"missing first event":      {func(p *script) { p.events(22, 100) }, errResumable},
		"a bookmark ahead":         {func(p *script) { p.events(21, 50); p.bookmark(52, false); p.list(100) }, errBookmarkable},
		"old bookmark":             {func(p *script) { p.events(21, 50); p.bookmark(49, false); p.events(51, 100) }, errBookmarkable},
		"bookmark without version": {func(p *script) { p.w.Event(watch.Event{Type: watch.Bookmark, Object: &v1.Pod{}}); p.events(21, 100) }, errBookmarkable},
		"a list with a gap":        {func(p *script) { p.list(100, drop) }, errAtomic},
		"list of two versions": {func(p *script) {
			p.list(100, func([]v1.Pod) []v1.Pod { return p.state(99) })
		}, errAtomic},
		"duplicate object in list": {func(p *script) {
			p.list(100, func(items []v1.Pod) []v1.Pod { return append(items, items[0]) })
		}, errUnique},
		"list too old": {func(p *script) {
			p.List(metav1.ListOptions{ResourceVersion: "50"}, &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "40"}, Items: p.state(40)})
			p.list(100)
		}, errOrdered},
		"exact list, wrong version": {func(p *script) {
			p.List(metav1.ListOptions{ResourceVersion: "99", ResourceVersionMatch: metav1.ResourceVersionMatchExact},
				&v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: p.state(100)})
		}, errAtomic},
		"gap in initial state": {func(p *script) {
			p.watchList(30, 0)
			p.bookmark(31, true)
			p.events(32, 100)
		}, errAtomic},
		"initial state too old": {func(p *script) {
			p.watchList(30, 40)
			p.bookmark(30, true)
			p.events(31, 100)
		}, errOrdered},
		"bookmark in initial state": {func(p *script) {
			p.watchList(30, 0)
			p.bookmark(30, false)
			p.bookmark(30, true)
			p.events(31, 100)
		}, errBookmarkable},
		"another type": {func(p *script) {
			e := p.s.Events[20]
			p.w.Event(watch.Event{Type: watch.Bookmark + "X", Object: e.Object})
			p.events(22, 100)
		}, errAtomic},
		"another object": {func(p *script) {
			o := p.s.Events[20].Object.DeepCopyObject().(*v1.Pod)
			o.Labels["n"] = "x"
			p.w.Event(watch.Event{Type: p.s.Events[20].Type, Object: o})
			p.events(22, 100)
		}, errAtomic},
		"another key": {func(p *script) {
			o := p.s.Events[20].Object.DeepCopyObject().(*v1.Pod)
			o.Name = "x"
			p.w.Event(watch.Event{Type: watch.Modified, Object: o})
			p.events(21, 100)
		}, errAtomic},
		"unknown version": {func(p *script) {
			p.w.Event(watch.Event{Type: watch.Added, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "101"}}})
			p.events(21, 100)
		}, errAtomic},
		"client skips versions": {func(p *script) { p.events(21, 50); p.watch("60"); p.events(61, 100) }, errResumable},
	} {
		t.Run(name, func(t *testing.T) {
			p := newScript(t)
			p.list(20)
			p.watch("20")
			test.play(p)
			p.Finish()
			if test.want == nil {
				p.check(errReliable, errOrdered)
				return
			}
			p.check(test.want)
			if err := p.Err(); !errors.Is(err, test.want) || strings.Count(err.Error(), "\n") > 0 && name != "events over again" {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestViolationLimit(t *testing.T) {
	p := newScript(t)
	p.list(20)
	p.watch("20")
	for i := 21; i <= 100; i += 2 {
		p.events(i, i)
	}
	p.Finish()
	if n := len(p.Violations()); n != 10 {
		t.Errorf("%d violations are kept, want 10", n)
	}
	if err := p.Err(); !strings.Contains(err.Error(), "30 more times") {
		t.Errorf("%v", err)
	}
}

// All sources keep the guarantees. The checker detects a client that drops one event.
func TestWrap(t *testing.T) {
	for _, name := range source.Names() {
		for _, loses := range []bool{false, true} {
			t.Run(fmt.Sprintf("source=%s/loses=%v", name, loses), func(t *testing.T) {
				s := pods(300, 20)
				maker, err := source.Options{}.Prepare(name, s)
				if err != nil {
					t.Fatal(err)
				}
				src, err := maker(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = src.Close() }()
				c, err := newChecker(s)
				if err != nil {
					t.Fatal(err)
				}
				lw := src.ListerWatcher()
				if loses {
					lw = lossy{cache.ToListerWatcherWithContext(lw), "150"}
				}
				run(t, s, src, c, c.Wrap(lw))
				c.Finish()
				switch err := c.Err(); {
				case loses && !errors.Is(err, errReliable):
					t.Errorf("%v, want %v", err, errReliable)
				case !loses && err != nil:
					t.Error(err)
				}
				if n := c.Stats(); n.Events == 0 || n.Lists+n.Watches == 0 {
					t.Errorf("observed %+v", n)
				}
			})
		}
	}
}

// run plays a storm to a reflector until the checker has received all events.
func run(t *testing.T, s *storm.Storm, src source.Source, c *checker, lw cache.ListerWatcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := cache.NewReflectorWithOptions(lw, &v1.Pod{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{})
	var wg sync.WaitGroup
	inner, stop := context.WithCancel(ctx)
	wg.Go(func() { r.RunWithContext(inner) })
	defer wg.Wait()
	defer stop()
	if err := c.Reach(ctx, uint64(s.Initial)); err != nil {
		t.Fatal(err)
	}
	p := pace.On(pace.Rate(100_000))
	defer func() { _ = p.Close() }()
	p.Start(time.Now())
	if err := src.Play(ctx, p, uint64(len(s.Events)), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Reach(ctx, uint64(len(s.Events))); err != nil {
		t.Error(err)
	}
}

// lossy drops one event.
type lossy struct {
	cache.ListerWatcherWithContext
	// version is that of the dropped event.
	version string
}

func (l lossy) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

func (l lossy) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

func (l lossy) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := l.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		m, ok := e.Object.(metav1.Object)
		return e, !ok || m.GetResourceVersion() != l.version
	}), nil
}
