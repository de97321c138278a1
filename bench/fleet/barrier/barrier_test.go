package barrier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"watchlab/bench/fleet/barrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	wait  = time.Minute
	plays = 5
)

// testRun is a namespace with the Leases of one run, in its own synctest bubble.
type testRun struct {
	*testing.T
	server        *clienttesting.Fake
	leases        barrier.Leases
	pods, writers int
	origin        time.Time

	mu       sync.Mutex       // guards starts and warnings
	starts   map[int][]string // of each member in order
	warnings []string
}

// fakeLeases returns client-go's object tracker and a client of its Leases.
func fakeLeases() (*clienttesting.Fake, barrier.Leases) {
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	server := &clienttesting.Fake{}
	r := coordinationv1.SchemeGroupVersion.WithResource("leases")
	server.AddReactor("patch", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		l := &coordinationv1.Lease{}
		if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), l); err != nil {
			return true, nil, err
		}
		err := tracker.Create(r, l, a.GetNamespace())
		if apierrors.IsAlreadyExists(err) {
			err = tracker.Update(r, l, a.GetNamespace())
		}
		return true, l, err
	})
	server.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	server.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	return server, unstreamed{gentype.NewFakeClientWithList(server, "lab", r, coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} },
		func(to, from *coordinationv1.LeaseList) { to.ListMeta = from.ListMeta },
		func(l *coordinationv1.LeaseList) []*coordinationv1.Lease { return gentype.ToPointerSlice(l.Items) },
		func(l *coordinationv1.LeaseList, items []*coordinationv1.Lease) {
			l.Items = gentype.FromPointerSlice(items)
		},
	)}
}

// unstreamed has no initial events in its watches.
type unstreamed struct{ barrier.Leases }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func in(t *testing.T, pods, writers int, play func(*testRun)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, leases := fakeLeases()
		play(&testRun{T: t, server: server, leases: leases, pods: pods, writers: writers, origin: time.Now(), starts: map[int][]string{}})
	})
}

func (p *testRun) options(m int) barrier.Options {
	return barrier.Options{
		Leases: p.leases, Run: "test", Self: m, Pods: p.pods, Writers: p.writers, Plays: plays, Wait: wait,
		Warn: func(text string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.warnings = append(p.warnings, text)
		},
	}
}

func (p *testRun) join(m int) *barrier.Barrier {
	p.Helper()
	b, err := barrier.Join(p.Context(), p.options(m))
	if err != nil {
		p.Errorf("%d: %v", m, err)
		p.FailNow()
	}
	// The fake API server drops events between a list and its watch.
	time.Sleep(time.Microsecond)
	return b
}

// meet calls Meet and records the start.
func (p *testRun) meet(b *barrier.Barrier, m, position int) {
	p.Helper()
	refused := int64(0)
	if m >= p.pods {
		refused = int64(10 + m - p.pods)
	}
	s, err := b.Meet(p.Context(), position, "a play", refused)
	if err != nil {
		p.Errorf("%d at %d: %v", m, position, err)
	}
	text := fmt.Sprintf("%d at %v", position, time.Since(p.origin).Round(time.Millisecond))
	if s.Late > 0 {
		text += fmt.Sprintf(" late %v", s.Late.Round(time.Millisecond))
	}
	if len(s.Absent) > 0 {
		text += fmt.Sprintf(" without %v", s.Absent)
	}
	if s.Refused > 0 {
		text += fmt.Sprintf(" after %d refused", s.Refused)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts[m] = append(p.starts[m], text)
}

func (p *testRun) leave(b *barrier.Barrier, done bool) {
	p.Helper()
	if err := b.Leave(context.Background(), done); err != nil {
		p.Error(err)
	}
}

// play joins after a delay and plays the positions; each takes the given time.
func (p *testRun) play(m int, after, takes time.Duration, positions ...int) {
	time.Sleep(after)
	b := p.join(m)
	for _, at := range positions {
		p.meet(b, m, at)
		time.Sleep(takes)
	}
	p.leave(b, true)
}

func (p *testRun) expect(m int, starts ...string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.starts[m], starts) {
		p.Errorf("%d began\n\t%s\nwant\n\t%s", m, strings.Join(p.starts[m], "\n\t"), strings.Join(starts, "\n\t"))
	}
}

// TestAllMeet: all members start together when the slowest has arrived.
func TestAllMeet(t *testing.T) {
	in(t, 3, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() { p.play(0, 0, time.Second, 0, 1, 2) })
		members.Go(func() { p.play(1, 10*time.Second, 3*time.Second, 0, 1, 2) })
		members.Go(func() { p.play(2, 5*time.Second, 2*time.Second, 0, 1, 2) })
		members.Wait()
		for i := range 3 {
			p.expect(i, "0 at 10.206s", "1 at 13.412s", "2 at 16.618s")
		}
		if len(p.warnings) > 0 {
			t.Error(p.warnings)
		}
	})
}

// TestLatePodIsSkipped: the leader waits once for a missing pod, then reports it as
// absent. After the pod has caught up, the leader waits for it again.
func TestLatePodIsSkipped(t *testing.T) {
	in(t, 3, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() { p.play(0, 0, 10*time.Second, 0, 1, 2, 3, 4) })
		members.Go(func() { p.play(1, 0, 10*time.Second, 0, 1, 2, 3, 4) })

		members.Go(func() { p.play(2, 65*time.Second, 10*time.Second, 0, 3, 4) })
		members.Wait()
		together := []string{
			"0 at 1m0.206s without [2]", "1 at 1m10.412s without [2]", "2 at 1m20.618s", "3 at 1m30.824s", "4 at 1m41.03s",
		}
		p.expect(0, together...)
		p.expect(1, together...)
		p.expect(2, "0 at 1m5s late 4.794s", "3 at 1m30.824s", "4 at 1m41.03s")
		if want := []string{"pod 2 missed the barrier timeout 1m0s and is skipped"}; !slices.Equal(p.warnings, want) {
			t.Errorf("warnings %q", p.warnings)
		}
	})
}

// TestPodRestart: a restarted pod does not wait until it has caught up.
func TestPodRestart(t *testing.T) {
	in(t, 2, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() { p.play(0, 0, 10*time.Second, 0, 1, 2, 3) })
		members.Go(func() {
			first := p.join(1)
			p.meet(first, 1, 0)
			time.Sleep(10 * time.Second)
			p.meet(first, 1, 1)

			time.Sleep(5 * time.Second)
			second := p.join(1)
			for at := range 4 {
				p.meet(second, 1, at)
				time.Sleep(2 * time.Second)
			}
			p.leave(first, false)
			p.leave(second, true)
		})
		members.Wait()
		p.expect(0, "0 at 204ms", "1 at 10.408s", "2 at 20.612s", "3 at 30.816s")
		p.expect(1, "0 at 204ms", "1 at 10.408s",
			"0 at 15.408s late 5s", "1 at 17.408s late 7s", "2 at 20.612s", "3 at 30.816s")
	})
}

// TestLeaderLost: without the leader the other members continue alone after the
// timeout. When the leader has caught up, all members meet again.
func TestLeaderLost(t *testing.T) {
	in(t, 2, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() { p.play(0, 151*time.Second, 10*time.Second, 3, 4) })
		members.Go(func() { p.play(1, 0, 10*time.Second, 0, 1, 2, 3, 4) })
		members.Wait()
		p.expect(1, "0 at 2m0s without [0]", "1 at 2m10s without [0]", "2 at 2m20s without [0]",
			"3 at 2m30s without [0]", "4 at 2m41.408s")
		p.expect(0, "3 at 2m31.204s", "4 at 2m41.408s")
	})
}

// TestLeaderRestart: a restarted leader does not repeat a start.
func TestLeaderRestart(t *testing.T) {
	in(t, 2, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() {
			first := p.join(0)
			p.meet(first, 0, 0)
			time.Sleep(10 * time.Second)
			p.meet(first, 0, 1)
			second := p.join(0)
			for at := range 3 {
				p.meet(second, 0, at)
				time.Sleep(10 * time.Second)
			}
			p.leave(first, false)
			p.leave(second, true)
		})
		members.Go(func() { p.play(1, 0, 10*time.Second, 0, 1, 2) })
		members.Wait()
		p.expect(0, "0 at 204ms", "1 at 10.408s", "0 at 10.408s late 0s", "1 at 20.408s late 10s", "2 at 30.612s")
		p.expect(1, "0 at 204ms", "1 at 10.408s", "2 at 30.612s")
	})
}

// TestPodLeaves: the leader does not wait for a member that has left.
func TestPodLeaves(t *testing.T) {
	in(t, 2, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() { p.play(0, 0, time.Second, 0, 1) })
		members.Go(func() { p.play(1, 0, 0, 0) })
		members.Wait()
		p.expect(0, "0 at 204ms", "1 at 1.408s without [1]")
	})
	in(t, 2, 0, func(p *testRun) {
		var members sync.WaitGroup
		members.Go(func() { p.play(0, 0, 0, 0) })
		members.Go(func() { p.play(1, 0, time.Second, 0, 1) })
		members.Wait()
		p.expect(1, "0 at 204ms", "1 at 1.204s without [0]")
	})
}

// TestWritersMeet: writers meet with the pods, and say how many writes were refused.
func TestWritersMeet(t *testing.T) {
	in(t, 1, 3, func(p *testRun) {
		var members sync.WaitGroup
		for m := range 3 {
			members.Go(func() { p.play(m, 0, 0, 0) })
		}
		members.Wait()
		for m := range 3 {
			p.expect(m, "0 at 1m0.208s without [3] after 21 refused")
		}
		if want := []string{"writer 2 missed the barrier timeout 1m0s and is skipped"}; !slices.Equal(p.warnings, want) {
			t.Errorf("warnings %q", p.warnings)
		}
	})
}

// TestWithoutAPIServer: without an API server a pod starts alone.
func TestWithoutAPIServer(t *testing.T) {
	in(t, 2, 0, func(p *testRun) {
		b := p.join(1)
		p.server.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewServiceUnavailable("it is being started")
		})
		p.meet(b, 1, 0)
		if len(p.warnings) != 1 || !strings.Contains(p.warnings[0], "it is being started: a play starts alone") {
			t.Errorf("warnings %q", p.warnings)
		}
		if at := time.Since(p.origin).Round(time.Millisecond); at != wait {
			t.Errorf("it began after %v", at)
		}
		p.expect(1, "0 at 1m0s without [0]")
		_ = b.Leave(context.Background(), false)
	})
}

// TestForbidden: forbidden requests are not retried.
func TestForbidden(t *testing.T) {
	in(t, 2, 0, func(p *testRun) {
		p.server.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "x", errors.New("no"))
		})
		_, err := barrier.Join(p.Context(), p.options(0))
		if !apierrors.IsForbidden(err) || time.Since(p.origin) > 0 {
			t.Errorf("after %v: %v", time.Since(p.origin), err)
		}
	})
}

// TestInterrupted: the end of the context ends a wait.
func TestInterrupted(t *testing.T) {
	for i := range 2 {
		in(t, 3, 0, func(p *testRun) {
			b := p.join(i)
			ctx, cancel := context.WithTimeout(p.Context(), time.Second)
			defer cancel()
			if _, err := b.Meet(ctx, 0, "a play", 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("pod %d: %v", i, err)
			}
			p.leave(b, false)
		})
	}
}

// TestLeaseShowsProgress: a Lease shows the progress of its member.
func TestLeaseShowsProgress(t *testing.T) {
	in(t, 1, 0, func(p *testRun) {
		says := func(want string) {
			list, err := p.leases.List(p.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range list.Items {
				if m, progress, ok := barrier.Read(&l); ok && (m != 0 || progress.String() != want || l.Name != barrier.LeaseName("test", m)) {
					t.Errorf("%s of member %d: %s, want %s", l.Name, m, progress, want)
				}
			}
		}
		b := p.join(0)
		says("joined")
		p.meet(b, 0, 2)
		says("play 3 of 5, a play")
		p.leave(b, false)
		says("left")
	})
}
