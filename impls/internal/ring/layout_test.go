package ring

import (
	"testing"
	"unsafe"
)

// TestPadding: what different goroutines write is a pair of cache lines apart,
// from each other and from whatever lies before the queue or after.
func TestPadding(t *testing.T) {
	var u Unbounded[int]
	var b Bounded[int]
	type field struct {
		name        string
		start, size uintptr
	}
	for _, groups := range [][]field{
		{
			{"before", 0, 0},
			{"Unbounded.tail", unsafe.Offsetof(u.tail), unsafe.Sizeof(u.tail)},
			{"Unbounded.last to spare", unsafe.Offsetof(u.last), unsafe.Offsetof(u.spare) + unsafe.Sizeof(u.spare) - unsafe.Offsetof(u.last)},
			{"Unbounded.parker", unsafe.Offsetof(u.parker), unsafe.Sizeof(u.parker)},
			{"Unbounded.popped to at", unsafe.Offsetof(u.popped), unsafe.Offsetof(u.at) + unsafe.Sizeof(u.at) - unsafe.Offsetof(u.popped)},
			{"after", unsafe.Sizeof(u), 0},
		},
		{
			{"before", 0, 0},
			{"Bounded.tail", unsafe.Offsetof(b.tail), unsafe.Sizeof(b.tail)},
			{"Bounded.slots to closedAt", unsafe.Offsetof(b.slots), unsafe.Offsetof(b.closedAt) + unsafe.Sizeof(b.closedAt) - unsafe.Offsetof(b.slots)},
			{"Bounded.parker", unsafe.Offsetof(b.parker), unsafe.Sizeof(b.parker)},
			{"Bounded.freed", unsafe.Offsetof(b.freed), unsafe.Sizeof(b.freed)},
			{"Bounded.popped", unsafe.Offsetof(b.popped), unsafe.Sizeof(b.popped)},
			{"Bounded.room", unsafe.Offsetof(b.room), unsafe.Sizeof(b.room)},
			{"after", unsafe.Sizeof(b), 0},
		},
	} {
		for i, f := range groups[1:] {
			prev := groups[i]
			if f.start < prev.start+prev.size+pad {
				t.Errorf("%s starts at %d, %s ends at %d: less than %d apart", f.name, f.start, prev.name, prev.start+prev.size, pad)
			}
		}
	}
}
