package workqueue

import (
	"cmp"
	"math/bits"
	"slices"
)

// wheel is a hierarchical timing wheel of delayed items. It reads no clock: times are nanoseconds since
// an origin of the caller, all that a Duration has.
//
// Wheel k has 64 buckets of 2^(20+6k) ns each; the finest are a millisecond long. An item is in the wheel
// of the highest digit (of six bits) in which its time differs from cursor, in the bucket of that digit.
// So all times in a wheel are before those in the next one, and no bucket begins before cursor, except
// that of cursor itself in the finest wheel. advance empties the buckets that have begun: what is due
// comes out in the order of its times, and the rest goes to finer wheels.
//
// insert and remove take O(1), and an item moves at most eight times. Items are due to the
// nanosecond: next looks at the times in a bucket of the finest wheel.
type wheel[T comparable] struct {
	cursor   int64          // the latest time that advance saw
	occupied [wheels]uint64 // a bit for each bucket; that of an empty one may be set
	buckets  [wheels][64]list[entry[T]]
	inserted uint64
	passed   []*entry[T] // the result of advance
}

const (
	bucketBits = 20
	digitBits  = 6
	wheels     = 8 // bucketBits + wheels*digitBits is 63 or more
)

// insert adds an item that is due at e.due.
func (w *wheel[T]) insert(e *entry[T]) {
	w.inserted++
	e.sequence = w.inserted
	w.place(e)
}

func (w *wheel[T]) place(e *entry[T]) {
	// A clock that was set back gives times before cursor.
	at := uint64(max(e.due, w.cursor)) >> bucketBits
	k := max(bits.Len64(at^uint64(w.cursor)>>bucketBits)-1, 0) / digitBits
	digit := at >> (k * digitBits) & 63
	w.buckets[k][digit].push(&e.node)
	w.occupied[k] |= 1 << digit
}

// start returns when a bucket begins.
func (w *wheel[T]) start(k, digit int) int64 {
	shift := bucketBits + k*digitBits
	return int64(uint64(w.cursor)>>shift>>digitBits<<digitBits|uint64(digit)) << shift
}

// advance takes out the items that are due at now, the earliest first and those of one time in the order
// of their insertion. The caller clears the slice after use.
func (w *wheel[T]) advance(now int64) []*entry[T] {
	w.passed = w.passed[:0]
	end := max(now, w.cursor)
	for k := range w.occupied {
		for left := w.occupied[k]; left != 0; left &= left - 1 {
			digit := bits.TrailingZeros64(left)
			if w.start(k, digit) > end {
				break
			}
			for e := w.buckets[k][digit].pop(); e != nil; e = w.buckets[k][digit].pop() {
				w.passed = append(w.passed, e)
			}
			w.occupied[k] &^= 1 << digit
		}
	}
	w.cursor = end
	w.passed = slices.DeleteFunc(w.passed, func(e *entry[T]) bool {
		if e.due > now {
			w.place(e)
		}
		return e.due > now
	})
	slices.SortFunc(w.passed, func(a, b *entry[T]) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.sequence, b.sequence))
	})
	return w.passed
}

// next returns when advance is to be called: nothing is due before. It returns false if there are no items.
func (w *wheel[T]) next() (int64, bool) {
	for k := range w.occupied {
		for ; w.occupied[k] != 0; w.occupied[k] &= w.occupied[k] - 1 {
			digit := bits.TrailingZeros64(w.occupied[k])
			b := &w.buckets[k][digit]
			switch {
			case b.empty():
			case k > 0:
				return w.start(k, digit), true
			default:
				first := b.front().due
				for n := b.root.next; n != &b.root; n = n.next {
					first = min(first, n.value.due)
				}
				return first, true
			}
		}
	}
	return 0, false
}
