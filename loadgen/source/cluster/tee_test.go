package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/apiserver"
)

// scripted returns its lists in order, and each watch until the test ends its version.
type scripted struct {
	mu       sync.Mutex
	lists    []*v1.PodList
	refusals int                     // number of watches to reject before the next is accepted
	taken    time.Time               // time of the last accepted list or watch
	watching chan *watch.FakeWatcher // receives each watch
}

func script(lists ...*v1.PodList) *scripted {
	return &scripted{lists: lists, watching: make(chan *watch.FakeWatcher, 10)}
}

func (s *scripted) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[0]
	if len(s.lists) > 1 {
		s.lists = s.lists[1:]
	}
	s.taken = time.Now()
	return l.DeepCopy(), nil
}

func (s *scripted) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "sendInitialEvents", nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusals > 0 {
		s.refusals--
		return nil, fmt.Errorf("scripted: %w", syscall.ECONNREFUSED)
	}
	s.taken = time.Now()
	w := watch.NewFakeWithChanSize(10, false)
	s.watching <- w
	return w, nil
}

// refuse makes the next watches fail.
func (s *scripted) refuse(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = n
}

// last returns the time of the last accepted watch.
func (s *scripted) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

func (s *scripted) IsWatchListSemanticsUnSupported() bool { return true }

func pod(name, version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("u-" + name), ResourceVersion: version}}
}

// another returns a recreated pod with the same name.
func another(p *v1.Pod) *v1.Pod {
	p.UID += "-again"
	return p
}

func podList(version string, pods ...*v1.Pod) *v1.PodList {
	l := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

var gone = &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}

func eventsOf(t *Tee) []string {
	var events []string
	for _, e := range t.Storm(t.Visible()).Events {
		events = append(events, string(e.Type)+" "+e.Key)
	}
	return events
}

// TestTeeCatchesUp: after a broken watch, the changes in the gap appear as differences.
// Unchanged objects cause no event, and a follower sees all events in order.
func TestTeeCatchesUp(t *testing.T) {
	s := script(
		podList("10", pod("a", "1"), pod("b", "2"), pod("d", "3"), pod("e", "4")),
		podList("30", pod("b", "2"), pod("c", "25"), another(pod("d", "26")), pod("e", "27")),
	)
	tee := must(FollowListerWatcher(podResource, s, 100))(t)
	defer tee.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := tee.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	w := <-s.watching
	w.Modify(pod("a", "11"))
	w.Error(gone)
	w.Stop()
	<-s.watching

	got := tee.Storm(tee.Seal())
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	want := []string{
		"ADDED ns/a", "ADDED ns/b", "ADDED ns/d", "ADDED ns/e", "MODIFIED ns/a",
		"DELETED ns/a", "ADDED ns/c", "DELETED ns/d", "ADDED ns/d", "MODIFIED ns/e",
	}
	if events := eventsOf(tee); !slices.Equal(events, want) || got.Initial != 4 {
		t.Errorf("initial %d, %q, want %q", got.Initial, events, want)
	}
	b := tee.Breaks()
	b.Gap = 0
	if want := (Breaks{Relisted: 1, Changes: Changes{Added: 2, Modified: 1, Deleted: 2, Unchanged: 1}}); b != want {
		t.Errorf("%+v, want %+v", b, want)
	}

	// Any number of clients can list and watch the log.
	src := tee.Source()
	defer func() { _ = src.Close() }()
	list := must(cache.ToListerWatcherWithContext(src.ListerWatcher()).ListWithContext(ctx, metav1.ListOptions{}))(t)
	if pods := list.(*v1.PodList); len(pods.Items) != 4 || pods.ResourceVersion != "10" {
		t.Errorf("listed %d pods at %s", len(pods.Items), pods.ResourceVersion)
	}
}

// TestBreaks: a gap lasts from the end of a watch to the start of the one that resumed,
// whatever failed in between, or to the list.
func TestBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(podList("10", pod("a", "1")), podList("30", pod("a", "1")), podList("50", pod("a", "1")))
		tee := must(FollowListerWatcher(podResource, s, 100))(t)
		defer tee.Close()
		var want Breaks
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			if got := tee.Breaks(); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		gap := func(from time.Time) {
			want.Gap += s.last().Sub(from)
		}
		w := <-s.watching
		check("at first")

		// Three refusals, then a watch without events: it counts as established.
		time.Sleep(time.Minute)
		s.refuse(3)
		w.Modify(pod("a", "11"))
		w.Stop()
		from := time.Now()
		synctest.Wait()
		if b := tee.Breaks(); !b.Down || b.Resumed != 0 || b.Gap != 0 {
			t.Errorf("just after the end: %+v", b)
		}
		w = <-s.watching
		want.Resumed++
		gap(from)
		if want.Gap < 250*time.Millisecond {
			t.Errorf("a gap of %v after three refusals", want.Gap)
		}
		check("resumed, and silent")
		time.Sleep(time.Minute)
		w.Modify(pod("a", "12"))
		check("resumed")

		// Accepted, but the version is gone: only the list ends the gap.
		w.Stop()
		from = time.Now()
		w = <-s.watching
		time.Sleep(time.Second)
		w.Error(gone)
		w.Stop()
		w = <-s.watching
		want.Relisted++
		want.Modified++
		gap(from)
		check("listed again")

		// A watch that ends without an event does not count: the gap starts at the end of the
		// watch before it.
		w.Modify(pod("a", "31"))
		w.Stop()
		from = time.Now()
		w = <-s.watching
		time.Sleep(time.Minute)
		s.refuse(1)
		w.Stop()
		synctest.Wait()
		if b := tee.Breaks(); !b.Down || b.Resumed != want.Resumed {
			t.Errorf("after a silent watch: %+v", b)
		}
		w = <-s.watching
		want.Resumed++
		gap(from)
		w.Modify(pod("a", "32"))
		check("resumed after a watch that said nothing")

		// A bookmark also shows that the watch works.
		w.Action(watch.Bookmark, pod("", "40"))
		w.Stop()
		from = time.Now()
		w = <-s.watching
		want.Resumed++
		gap(from)
		w.Action(watch.Bookmark, pod("", "41"))
		check("resumed with a bookmark")

		tee.Close()
		check("closed by ourselves")
	})
}

// TestAudit: objects of the cluster that the Tee has not received are missing; later ones are not.
func TestAudit(t *testing.T) {
	received := map[string]state{
		"same": {Version{"u", "5"}, false}, "newer": {Version{"u", "25"}, false}, "older": {Version{"u", "5"}, false},
		"gone-before": {Version{"u", "5"}, true}, "gone-since": {Version{"u", "25"}, true}, "gone-unknown": {Version{"u", "5"}, false},
		"made-since": {Version{"u", "25"}, false}, "made-again": {Version{"u", "5"}, true}, "not-gone": {Version{"u", "7"}, true},
		"another": {Version{"u", "5"}, false}, "odd": {Version{"u", "x"}, false}, "odder": {Version{"u", "x"}, false},
	}
	listed := inventory{"20", map[string]Version{
		"same": {"u", "5"}, "newer": {"u", "6"}, "older": {"u", "6"},
		"gone-since": {"u", "6"}, "made-again": {"u2", "9"}, "not-gone": {"u", "7"},
		"another": {"u2", "5"}, "odd": {"u", "x"}, "odder": {"u", "y"}, "unknown": {"u", "3"},
	}}
	tee := &Tee{received: received}
	want := []string{"another", "gone-unknown", "made-again", "not-gone", "odder", "older", "unknown"}
	if got := tee.missing(listed); !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
}

// TestAuditWaits: an audit repeats its list while the cluster does not answer, returns
// when all objects were received, and names those that were not.
func TestAuditWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(podList("10", pod("a", "1")))
		asked := 0
		tee, err := follow(podResource, s, 100, func(context.Context) (inventory, error) {
			if asked++; asked < 3 {
				return inventory{}, syscall.ECONNREFUSED
			}
			return inventory{"20", map[string]Version{"ns/a": {"u-a", "1"}, "ns/b": {"u-b", "15"}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer tee.Close()
		w := <-s.watching
		synctest.Wait()
		for _, tt := range []struct {
			name string
			want []string
		}{{"cluster is away", []string{"connection refused"}}, {"b has not come", []string{"1 of 2 objects", "ns/b"}}} {
			ctx, cancel := context.WithTimeout(t.Context(), 75*time.Millisecond)
			err = tee.Audit(ctx)
			cancel()
			for _, want := range append(tt.want, "deadline") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not say %q", tt.name, err, want)
				}
			}
		}
		if !errors.Is(err, ErrMissed) {
			t.Errorf("what was missed: %v", err)
		}
		time.AfterFunc(time.Second, func() { w.Add(pod("b", "15")) })
		if err := tee.Audit(t.Context()); err != nil {
			t.Errorf("b has come: %v", err)
		}
	})
}

// TestAuditOverHTTP: the inventory has the objects of a server, page by page, while they change.
func TestAuditOverHTTP(t *testing.T) {
	const pods = 1500
	made := changing(pods)
	srv, config := serve(t, made, apiserver.Options{})
	c := must(For(config))(t)
	tee := must(NewTee(c, podResource, Scope{}, 10_000))(t)
	defer tee.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := tee.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	srv.Release(uint64(len(made.Events)))
	if err := tee.Audit(ctx); err != nil {
		t.Fatal(err)
	}
	there, err := tee.inventory(ctx)
	if err != nil || len(there.objects) != pods-500 {
		t.Fatalf("%d objects, want %d: %v", len(there.objects), pods-500, err)
	}
	if missing := tee.missing(there); len(missing) > 0 {
		t.Errorf("missing after the audit: %q", missing[:min(3, len(missing))])
	}
	if got, want := tee.Storm(tee.Visible()).Final(), made.Final(); len(got) != len(want) {
		t.Errorf("%d known pods, %d on the server", len(got), len(want))
	}
}
