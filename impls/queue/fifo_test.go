package queue

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls/internal/keys"
)

// TestFIFO plays random operations beside a slice, with so few hashes that keys
// collide, and with positions that overflow.
func TestFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := new(fifo)
		f.head = rapid.SampledFrom([]uint32{0, 1<<32 - 1, 1<<32 - 40, 1<<31 - 3}).Draw(t, "position")
		f.tail = f.head
		hashes := rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "hashes")
		nkeys := rapid.SampledFrom([]int{3, 30, 300}).Draw(t, "keys")
		var want []entry
		find := func(key keys.Key) int {
			return slices.IndexFunc(want, func(e entry) bool { return e.key == key })
		}
		draw := func(t *rapid.T) (keys.Key, uint64) {
			n := rapid.IntRange(0, nkeys-1).Draw(t, "key")

			h := uint64(n%hashes) * 0x9e3779b97f4a7c15
			return keys.Key{Name: strconv.Itoa(n)}, h
		}
		n := 0
		put := func(t *rapid.T) {
			key, hash := draw(t)
			e, fresh := f.upsert(hash, key)
			n++
			e.obj = n
			at := find(key)
			if fresh != (at < 0) {
				t.Fatalf("upsert says fresh=%t", fresh)
			}
			if at < 0 {
				want = append(want, entry{key: key, hash: hash})
				at = len(want) - 1
			}
			want[at].obj = n
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": put,
			"put many": func(t *rapid.T) {
				for range rapid.IntRange(1, 60).Draw(t, "n") {
					put(t)
				}
			},
			"remove": func(t *rapid.T) {
				key, hash := draw(t)
				e, at := f.find(hash, key), find(key)
				if (e == nil) != (at < 0) {
					t.Fatalf("find returned %v", e)
				}
				if e != nil {
					f.remove(e)
					want = slices.Delete(want, at, at+1)
				}
			},
			"hold": func(t *rapid.T) {
				key, hash := draw(t)
				if e := f.find(hash, key); e != nil {
					e.held = !e.held
					want[find(key)].held = e.held
				}
			},
			"take": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					if len(want) > 0 {
						f.remove(f.front())
						want = want[1:]
					}
				}
			},
			"take ready": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					at := slices.IndexFunc(want, func(e entry) bool { return !e.held })
					if at < 0 {
						return
					}
					if got := f.takeReady(); got.key != want[at].key || got.obj != want[at].obj {
						t.Fatalf("takeReady returned %v, want %v", got, want[at])
					}
					want = slices.Delete(want, at, at+1)
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") == 0 {
					f.clear()
					want = nil
				}
			},
			"": func(t *rapid.T) { compare(t, f, want) },
		})
	})
}

func compare(t *rapid.T, f *fifo, want []entry) {
	t.Helper()
	var got []entry
	for e := range f.all {
		got = append(got, *e)
		if f.find(e.hash, e.key) != e {
			t.Fatalf("%v is not found", e.key)
		}
	}
	if !slices.Equal(got, want) || f.len() != len(want) {
		t.Fatalf("of length %d, it holds\n  %v\nwant\n  %v", f.len(), got, want)
	}
	if f.head != f.tail && f.front().gap {
		t.Fatal("a gap is in front")
	}
	// Nothing is kept beyond what waits.
	kept := 0
	for i := range f.entries {
		if f.entries[i].obj != nil {
			kept++
		}
	}
	if kept != len(want) {
		t.Fatalf("%d objects are kept, %d wait", kept, len(want))
	}
	used := 0
	for _, s := range f.slots {
		if s != 0 {
			used++
		}
	}
	if used != f.used {
		t.Fatalf("%d slots are in use, %d counted", used, f.used)
	}
}

// TestFIFOShrinks: what a burst has grown is given back.
func TestFIFOShrinks(t *testing.T) {
	f := new(fifo)
	key := func(i int) (uint64, keys.Key) {
		k := keys.Key{Name: strconv.Itoa(i)}
		return k.Hash(), k
	}
	const burst = 300_000
	for i := range burst {
		f.upsert(key(i))
	}
	for f.len() > 0 {
		f.remove(f.front())
	}
	for i := range 3 * keepSlots {
		f.upsert(key(i))
		f.remove(f.front())
	}
	if len(f.entries) > keepEntries || len(f.slots) > keepSlots {
		t.Errorf("after a burst of %d keys, room is kept for %d, and %d slots", burst, len(f.entries), len(f.slots))
	}
	// Nor does a key that comes and goes behind one that stays cost memory.
	f.upsert(key(-1))
	for i := range 100_000 {
		f.upsert(key(i))
		f.remove(f.find(key(i)))
		f.upsert(key(i + 1))
		f.upsert(key(i + 2))
		f.remove(f.find(key(i + 1)))
	}
	if f.len() > 3 && len(f.entries) > 8*f.len() {
		t.Errorf("room for %d entries is kept for %d", len(f.entries), f.len())
	}
}
