package ring_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls/internal/ring"
)

// TestModel holds a queue that one goroutine uses to a slice.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Also around the length of a segment, and of several.
		capacity := rapid.SampledFrom([]int{0, 1, 2, 3, 7, 8, 1000}).Draw(t, "capacity")
		locked := rapid.Bool().Draw(t, "locked")
		q := newQueue[int](shape{capacity, locked})
		var model []int
		// held were taken, and their places not released.
		next, held, closed := 0, 0, false
		push := func(t *rapid.T, push func(int) error) {
			next++
			var want error
			switch {
			case closed:
				want = ring.ErrClosed
			case capacity > 0 && len(model)+held == capacity:
				want = ring.ErrFull
			default:
				model = append(model, next)
			}
			if err := push(next); !errors.Is(err, want) {
				t.Fatalf("a push with %d waiting returned %v, want %v", len(model), err, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"try push": func(t *rapid.T) { push(t, q.TryPush) },
			"push": func(t *rapid.T) {
				if capacity > 0 && len(model)+held == capacity && !closed {
					t.Skip("Push would sleep")
				}
				push(t, q.Push)
			},
			"push many": func(t *rapid.T) {
				for range rapid.IntRange(1, 700).Draw(t, "n") {
					push(t, q.TryPush)
				}
			},
			"take": func(t *rapid.T) {
				dst := make([]int, rapid.IntRange(0, 600).Draw(t, "n"))
				n := q.TakeBatch(dst)
				if want := min(len(dst), len(model)); n != want || !slices.Equal(dst[:n], model[:n]) {
					t.Fatalf("took %v, want %d of %v", dst[:n], want, model)
				}
				model, held = model[n:], held+n
			},
			"release": func(*rapid.T) {
				n := rapid.IntRange(0, held).Draw(t, "n")
				q.Release(n)
				held -= n
			},
			"pop": func(t *rapid.T) {
				dst := make([]int, rapid.IntRange(0, 600).Draw(t, "n"))
				n := pop(q, dst)
				if want := min(len(dst), len(model)); n != want {
					t.Fatalf("popped %d of %d, want %d", n, len(model), want)
				}
				if !slices.Equal(dst[:n], model[:n]) {
					t.Fatalf("popped %v, want %v", dst[:n], model[:n])
				}
				model = model[n:]
			},
			"wait": func(t *rapid.T) {
				var want error
				switch {
				case len(model) > 0:
				case closed:
					want = ring.ErrClosed
				default:
					t.Skip("Wait would sleep")
				}
				if err := q.Wait(); !errors.Is(err, want) {
					t.Fatalf("Wait with %d waiting returned %v, want %v", len(model), err, want)
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					q.Close()
					closed = true
				}
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("length is %d, want %d", q.Len(), len(model))
				}
			},
		})
	})
}
