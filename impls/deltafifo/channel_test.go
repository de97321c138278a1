package deltafifo

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// named makes an object of a name; its key is that.
func named(format string, args ...any) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: fmt.Sprintf(format, args...)}
}

func newQueue[T Queue](t *testing.T, v Variant, o Options) T {
	t.Helper()
	q, err := v.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q.(T)
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// popNames pops until the queue is closed and empty, and returns the names in order.
func popNames(t *testing.T, q Queue) []string {
	t.Helper()
	var names []string
	for {
		_, err := q.Pop(func(obj any, _ bool) error {
			for _, d := range obj.(cache.Deltas) {
				names = append(names, d.Object.(metav1.Object).GetName())
			}
			return nil
		})
		if errors.Is(err, cache.ErrFIFOClosed) {
			return names
		}
		mustDo(t, err)
	}
}

// TestChannelOwnerEnds: after Close the owner ends without a consumer. The
// backlog, including items still in the channel, is popped later.
func TestChannelOwnerEnds(t *testing.T) {
	for _, capacity := range []int{0, 3 * chunk} {
		for _, d := range []Delivery{InOrder, PerKey} {
			t.Run(fmt.Sprintf("delivery=%s/capacity=%d", d, capacity), func(t *testing.T) {
				// The bubble fails if the owner does not end.
				synctest.Test(t, func(t *testing.T) {
					q := newQueue[*channel](t, channelVariant(), Options{Delivery: d, Capacity: capacity})
					var want []string
					for i := range 2*chunk + 7 {
						want = append(want, fmt.Sprint(i))
						mustDo(t, q.Add(named("%d", i)))
					}
					q.Close()
					synctest.Wait()
					if n := q.Len(); n != len(want) {
						t.Errorf("length is %d, want %d", n, len(want))
					}
					if got := popNames(t, q); !slices.Equal(got, want) {
						t.Errorf("handed over %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// TestChannelSlots: each unit of capacity is returned however the delta leaves.
func TestChannelSlots(t *testing.T) {
	q := newQueue[*channel](t, channelVariant(), Options{Delivery: PerKey, Capacity: 8})
	held := func(want int) {
		t.Helper()
		q.settle()
		if n := int(q.slots.Used.Load()); n != want {
			t.Errorf("%d places are taken, want %d", n, want)
		}
	}
	mustDo(t, q.Add(named("a")), q.Update(named("a")), q.Delete(named("a")))
	held(3)
	mustDo(t, q.Delete(named("a"))) // Folded.
	held(3)
	mustDo(t, q.Delete(named("nobody"))) // Ignored.
	held(3)
	mustDo(t, q.Replace([]any{named("a"), named("b")}, "1")) // Carried out.
	held(3)
	q.Close()
	popNames(t, q)
	held(0)
}
