package ring

import (
	"testing"
	"unsafe"
)

// TestPadding: what different goroutines write is a pair of cache lines apart,
// from each other and from whatever lies before the queue or after.
func TestPadding(t *testing.T) {
	var u LockFree[int]
	type field struct {
		name        string
		start, size uintptr
	}
	groups := []field{
		{"before", 0, 0},
		{"LockFree.tail", unsafe.Offsetof(u.tail), unsafe.Sizeof(u.tail)},
		{"LockFree.capacity to spare", unsafe.Offsetof(u.capacity), unsafe.Offsetof(u.spare) + unsafe.Sizeof(u.spare) - unsafe.Offsetof(u.capacity)},
		{"LockFree.parker", unsafe.Offsetof(u.parker), unsafe.Sizeof(u.parker)},
		{"LockFree.freed", unsafe.Offsetof(u.freed), unsafe.Sizeof(u.freed)},
		{"LockFree.room", unsafe.Offsetof(u.room), unsafe.Sizeof(u.room)},
		{"LockFree.popped to at", unsafe.Offsetof(u.popped), unsafe.Offsetof(u.at) + unsafe.Sizeof(u.at) - unsafe.Offsetof(u.popped)},
		{"after", unsafe.Sizeof(u), 0},
	}
	for i, f := range groups[1:] {
		prev := groups[i]
		if f.start < prev.start+prev.size+pad {
			t.Errorf("%s starts at %d, %s ends at %d: less than %d apart", f.name, f.start, prev.name, prev.start+prev.size, pad)
		}
	}
}
