package workqueue

import (
	"testing"
	"unsafe"
)

// TestLayout: no two shards share a pair of cache lines, and Add needs one line of a shard.
func TestLayout(t *testing.T) {
	var s shard[string]
	if unsafe.Sizeof(uintptr(0)) == 8 {
		if size := unsafe.Sizeof(s); size != 128 {
			t.Errorf("a shard has %d bytes, want 128", size)
		}
		// Of slots, push needs pointer and length.
		if end := unsafe.Offsetof(s.items) + unsafe.Offsetof(s.items.slots) + 16; end > 64 {
			t.Errorf("Add needs the first %d bytes of a shard, want 64", end)
		}
	}
}
