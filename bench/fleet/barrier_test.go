package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/internal/golden"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeLeases are the Leases of a namespace. A watch begins with those that exist.
type fakeLeases struct {
	mu       sync.Mutex // guards the fields below
	all      map[string]*coordinationv1.Lease
	watchers []*watch.RaceFreeFakeWatcher
	failure  error // of each request
}

func (f *fakeLeases) IsWatchListSemanticsUnSupported() bool { return true }

// fail makes each further request fail.
func (f *fakeLeases) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
}

func (f *fakeLeases) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := &coordinationv1.LeaseList{}
	for _, l := range f.all {
		list.Items = append(list.Items, *l)
	}
	return list, f.failure
}

func (f *fakeLeases) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := watch.NewRaceFreeFake()
	for _, l := range f.all {
		w.Add(l)
	}
	f.watchers = append(f.watchers, w)
	return w, f.failure
}

func (f *fakeLeases) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*coordinationv1.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &coordinationv1.Lease{}
	if f.failure != nil {
		return nil, f.failure
	}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, err
	}
	f.all[name] = l
	for _, w := range f.watchers {
		w.Modify(l)
	}
	return l, nil
}

// barrierRun is a run in its own synctest bubble.
type barrierRun struct {
	*testing.T
	leases *fakeLeases
	pods   int
	origin time.Time

	mu       sync.Mutex       // guards starts and warnings
	starts   map[int][]string // of each member in order
	warnings []string
}

func inBubble(t *testing.T, pods int, play func(*barrierRun)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		play(&barrierRun{
			T: t, leases: &fakeLeases{all: map[string]*coordinationv1.Lease{}}, pods: pods,
			origin: time.Now(), starts: map[int][]string{},
		})
	})
}

func (r *barrierRun) options(m int) BarrierOptions {
	return BarrierOptions{
		Leases: r.leases, Run: "test", Self: m, Pods: r.pods, Plays: 5, Wait: time.Minute,
		Warn: func(text string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.warnings = append(r.warnings, text)
		},
	}
}

func (r *barrierRun) join(m int) *Barrier {
	r.Helper()
	b, err := JoinBarrier(r.Context(), r.options(m))
	if err != nil {
		r.Errorf("%d: %v", m, err)
		r.FailNow()
	}
	return b
}

// meet calls Meet and records the start.
func (r *barrierRun) meet(b *Barrier, m, position int) {
	r.Helper()
	s, err := b.Meet(r.Context(), position, "a play")
	if err != nil {
		r.Errorf("%d at %d: %v", m, position, err)
	}
	text := fmt.Sprintf("%d at %v", position, time.Since(r.origin).Round(time.Millisecond))
	if s.Late > 0 {
		text += fmt.Sprintf(" late %v", s.Late.Round(time.Millisecond))
	}
	if len(s.Absent) > 0 {
		text += fmt.Sprintf(" without %v", s.Absent)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts[m] = append(r.starts[m], text)
}

// life is the life of a member's process: it joins after a time, and each play takes a time.
type life struct {
	member       int
	after, takes time.Duration
	plays        []int
	killed       bool // at the start of the last play, without a word
}

// parseLife reads a life, as in "member 0: joins after 5s, 2s a play, plays 0 1 2, killed".
func parseLife(t *testing.T, line string) (l life) {
	t.Helper()
	var after, takes string
	if _, err := fmt.Sscanf(line, "member %d: joins after %s %s a play,", &l.member, &after, &takes); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	l.after, _ = time.ParseDuration(strings.TrimSuffix(after, ","))
	l.takes, _ = time.ParseDuration(takes)
	line, l.killed = strings.CutSuffix(line, ", killed")
	_, plays, _ := strings.Cut(line, "plays ")
	for f := range strings.FieldsSeq(plays) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		l.plays = append(l.plays, n)
	}
	return l
}

// play lets a process meet the others before each of its plays.
func (r *barrierRun) play(l life) {
	time.Sleep(l.after)
	b := r.join(l.member)
	for i, position := range l.plays {
		if r.meet(b, l.member, position); l.killed && i == len(l.plays)-1 {
			break
		}
		time.Sleep(l.takes)
	}
	b.Leave()
}

// TestBarrier plays testdata/barrier.txt: members start together, and none waits for long for another one. A case
// has the number of pods, the lives of processes, and after > the starts of each member and the warnings.
func TestBarrier(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, _, script string) string {
		cases := strings.Split(script, "\n\n")
		for i, text := range cases {
			text, _, _ = strings.Cut(strings.TrimSpace(text), "\n>")
			lines := strings.Split(text, "\n")
			var pods int
			if _, err := fmt.Sscanf(lines[1], "%d pods", &pods); err != nil {
				t.Fatalf("%s: %v", lines[1], err)
			}
			t.Run(lines[0], func(t *testing.T) {
				inBubble(t, pods, func(r *barrierRun) {
					var members sync.WaitGroup
					for _, line := range lines[2:] {
						members.Go(func() { r.play(parseLife(t, line)) })
					}
					members.Wait()
					for _, m := range slices.Sorted(maps.Keys(r.starts)) {
						text += fmt.Sprintf("\n> %d starts %s", m, strings.Join(r.starts[m], ", "))
					}
					for _, w := range r.warnings {
						text += "\n> " + w
					}
				})
			})
			cases[i] = text
		}
		return strings.Join(cases, "\n\n") + "\n"
	})
}

// TestBarrierFails: without an API server a pod starts alone, a forbidden request is not retried, and the end of the
// context ends a wait.
func TestBarrierFails(t *testing.T) {
	inBubble(t, 2, func(r *barrierRun) {
		b := r.join(1)
		r.leases.fail(apierrors.NewServiceUnavailable("it is being started"))
		r.meet(b, 1, 0)
		if !slices.Equal(r.starts[1], []string{"0 at 1m0s without [0]"}) || len(r.warnings) != 1 ||
			!strings.Contains(r.warnings[0], "it is being started: a play starts alone") {
			t.Errorf("starts %q, warnings %q", r.starts[1], r.warnings)
		}
		b.Leave()
	})
	inBubble(t, 2, func(r *barrierRun) {
		r.leases.fail(apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "x", errors.New("no")))
		if _, err := JoinBarrier(r.Context(), r.options(0)); !apierrors.IsForbidden(err) || time.Since(r.origin) > 0 {
			t.Errorf("after %v: %v", time.Since(r.origin), err)
		}
	})
	for m := range 2 {
		inBubble(t, 3, func(r *barrierRun) {
			b := r.join(m)
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			if _, err := b.Meet(ctx, 0, "a play"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("pod %d: %v", m, err)
			}
			b.Leave()
		})
	}
}

// TestProgress: a Lease shows the progress of its member.
func TestProgress(t *testing.T) {
	inBubble(t, 1, func(r *barrierRun) {
		says := func(want string) {
			if m, p, ok := readProgress(r.leases.all[leaseName("test", 0)]); !ok || m != 0 || p.String() != want {
				t.Errorf("member %d: %s, want %s", m, p, want)
			}
		}
		b := r.join(0)
		says("joined")
		r.meet(b, 0, 2)
		says("play 3 of 5, a play")
		b.Leave()
	})
}

// FuzzLease: a Lease that others write is a member's progress, on one line, or it is none.
func FuzzLease(f *testing.F) {
	f.Add("2", `{"position":3,"plays":9,"play":"round 2 of Queue/impl=cond"}`)
	f.Add("-1", `{"position":-9223372036854775808}`)
	f.Add("x", "null")
	f.Fuzz(func(t *testing.T, label, text string) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{memberLabel: label}, Annotations: map[string]string{barrierField: text},
		}}
		if m, p, ok := readProgress(l); ok && (m < 0 || strings.Contains(p.String(), "\n")) {
			t.Fatalf("%q, %q reads as %d: %q", label, text, m, p)
		}
	})
}
