package queue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// heldUp is an inbox with a claimed but unpublished position, as the lock-free
// ring allows. Items behind it are pushed but cannot be taken.
type heldUp struct {
	inbox

	after  int
	filled chan struct{}
}

func (l *heldUp) goneOn() bool {
	select {
	case <-l.filled:
		return true
	default:
		return false
	}
}

func (l *heldUp) TakeBatch(dst []item) int {
	if l.goneOn() {
		return l.inbox.TakeBatch(dst)
	}
	n := l.inbox.TakeBatch(dst[:min(len(dst), l.after)])
	l.after -= n
	return n
}

func (l *heldUp) Wait() error {
	if l.after == 0 {
		<-l.filled
	}
	return l.inbox.Wait()
}

// TestProducerHeldUp: a Pop sees an update that returned before it, while an
// earlier producer is suspended.
func TestProducerHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &heldUp{after: 1, filled: make(chan struct{})}
		q := newBuffered(Options{}, "ring", func(size int) inbox {
			l.inbox = ring.NewLockFree[item](size)
			return l
		})
		object := func(name, rv string) *metav1.ObjectMeta { return &metav1.ObjectMeta{Name: name, ResourceVersion: rv} }
		for _, o := range []*metav1.ObjectMeta{object("a", "1"), object("b", "2"), object("a", "3")} {
			if err := q.Update(o); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		done := make(chan error)
		go func() {
			for {
				_, err := q.Pop(func(obj any, _ bool) error {
					o := obj.(*metav1.ObjectMeta)
					got = append(got, o.Name+"@"+o.ResourceVersion)
					return nil
				})
				if err != nil {
					done <- err
					return
				}
			}
		}()
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("%v was popped while a producer ahead of an update that had returned was suspended", got)
		}
		close(l.filled)
		q.Close()
		if err := <-done; !errors.Is(err, cache.ErrFIFOClosed) {
			t.Error(err)
		}
		if want := []string{"a@3", "b@2"}; !slices.Equal(got, want) {
			t.Errorf("popped %v, want %v", got, want)
		}
	})
}

// TestCapacityBeyondTheLine: Capacity may exceed the size of the inbox.
func TestCapacityBeyondTheLine(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	const capacity = 3*inboxSize + 5
	q, err := New("ring", Options{Capacity: capacity, Context: canceled})
	if err != nil {
		t.Fatal(err)
	}
	key := 0
	add := func() error {
		key++
		var name [4]byte
		for i := range name {
			name[i] = 'a' + byte(key>>(5*i)&31)
		}
		return q.Add(&metav1.ObjectMeta{Name: string(name[:])})
	}
	for round := range 3 {
		for q.Len() < capacity {
			if err := add(); err != nil {
				t.Fatalf("round %d: with %d of %d keys waiting, Add returned %v", round, q.Len(), capacity, err)
			}
		}
		if err := add(); err == nil {
			t.Fatalf("round %d: a key was accepted beyond the capacity", round)
		}
		for range 1 + round*inboxSize {
			if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	q.Close()
}

// TestLineIsShort: behind a slow handler, many updates of few keys use the memory of few keys.
func TestLineIsShort(t *testing.T) {
	q, err := New("ring", Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects := make([]*metav1.ObjectMeta, 10)
	for i := range objects {
		objects[i] = &metav1.ObjectMeta{Name: string(rune('a' + i))}
	}
	update := func(n int) {
		for i := range n {
			if err := q.Update(objects[i%len(objects)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	update(1)
	var before, after runtime.MemStats
	if _, err := q.Pop(func(any, bool) error {
		update(inboxSize)
		runtime.ReadMemStats(&before) // The inbox has its full length.
		update(50 * inboxSize)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes were allocated for %d keys", n, len(objects))
	}
	if n := q.Len(); n != len(objects) {
		t.Errorf("%d keys wait, want %d", n, len(objects))
	}
	q.Close()
}

// unpublished is an inbox in which a producer has claimed a position and publishes it late.
type unpublished struct {
	inbox

	looks int // how often the consumer's end finds nothing
}

func (l *unpublished) TakeBatch(dst []item) int {
	if l.looks > 0 {
		l.looks--
		return 0
	}
	return l.inbox.TakeBatch(dst)
}

// TestUpdateOfFullQueue: an update and a deletion of a queued key do not wait for room, though the
// position before them is not published.
func TestUpdateOfFullQueue(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	object := func(name, rv string) *metav1.ObjectMeta { return &metav1.ObjectMeta{Name: name, ResourceVersion: rv} }
	for name, call := range map[string]func(q Queue) error{
		"Update":  func(q Queue) error { return q.Update(object("a", "3")) },
		"Delete":  func(q Queue) error { return q.Delete(object("b", "3")) },
		"Replace": func(q Queue) error { return q.Replace([]any{object("c", "3")}, "") },
	} {
		l := new(unpublished)
		q := newBuffered(Options{Capacity: 2, Context: canceled}, "ring", func(size int) inbox {
			l.inbox = ring.NewLockFree[item](size)
			return l
		})
		if err := errors.Join(q.Add(object("a", "1")), q.Add(object("b", "2"))); err != nil {
			t.Fatal(err)
		}
		l.looks = 10
		if err := call(q); err != nil {
			t.Errorf("%s of a full queue that needs no room returned %v", name, err)
		}
		q.Close()
	}
}
