package queue

import (
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
		l.inbox = ring.NewLockFree[item](inboxSize)
		q := newBuffered(Options{}, "ring", l)
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
