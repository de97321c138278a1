package keys

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// held is a value that Take can skip.
type held struct {
	obj  any
	held bool
}

type entry = Entry[held]

// TestFIFO plays random operations beside a slice, with so few hashes that keys
// collide, and with positions that overflow.
func TestFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := new(FIFO[held])
		f.head = rapid.SampledFrom([]uint32{0, 1<<32 - 1, 1<<32 - 40, 1<<31 - 3}).Draw(t, "position")
		f.tail = f.head
		hashes := rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "hashes")
		nkeys := rapid.SampledFrom([]int{3, 30, 300}).Draw(t, "keys")
		var want []entry
		find := func(key Key) int {
			return slices.IndexFunc(want, func(e entry) bool { return e.Key == key && e.Hash != retired })
		}
		draw := func(t *rapid.T) (Key, uint64) {
			n := rapid.IntRange(0, nkeys-1).Draw(t, "key")

			h := uint64(n%hashes) * 0x9e3779b97f4a7c15
			return Key{Name: strconv.Itoa(n)}, h
		}
		n := 0
		put := func(t *rapid.T) {
			key, hash := draw(t)
			e, fresh := f.Upsert(hash, key)
			n++
			e.Value.obj = n
			at := find(key)
			if fresh != (at < 0) {
				t.Fatalf("Upsert returned fresh=%t", fresh)
			}
			if at < 0 {
				want = append(want, entry{Key: key, Hash: hash | queuedBit})
				at = len(want) - 1
			}
			want[at].Value.obj = n
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
				e, at := f.Get(hash, key), find(key)
				if (e == nil) != (at < 0) {
					t.Fatalf("Get returned %v", e)
				}
				if e != nil {
					f.Remove(e)
					want = slices.Delete(want, at, at+1)
				}
			},
			"retire": func(t *rapid.T) {
				key, hash := draw(t)
				if e := f.Get(hash, key); e != nil {
					f.Retire(e)
					want[find(key)].Hash = retired
				}
			},
			"hold": func(t *rapid.T) {
				key, hash := draw(t)
				if e := f.Get(hash, key); e != nil {
					e.Value.held = !e.Value.held
					want[find(key)].Value.held = e.Value.held
				}
			},
			"take": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					if len(want) > 0 {
						f.Remove(f.Front())
						want = want[1:]
					}
				}
			},
			"take ready": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					at := slices.IndexFunc(want, func(e entry) bool { return !e.Value.held })
					if at < 0 {
						return
					}
					if got := f.Take(func(v *held) bool { return v.held }); got.Key != want[at].Key || got.Value.obj != want[at].Value.obj {
						t.Fatalf("Take returned %v, want %v", got, want[at])
					}
					want = slices.Delete(want, at, at+1)
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") == 0 {
					f.Clear()
					want = nil
				}
			},
			"": func(t *rapid.T) { compare(t, f, want) },
		})
	})
}

func compare(t *rapid.T, f *FIFO[held], want []entry) {
	t.Helper()
	var got []entry
	for e := range f.All {
		got = append(got, *e)
		if e.Hash != retired && f.Get(e.Hash, e.Key) != e {
			t.Fatalf("%v is not found", e.Key)
		}
	}
	if !slices.Equal(got, want) || f.Len() != len(want) {
		t.Fatalf("of length %d, it holds\n  %v\nwant\n  %v", f.Len(), got, want)
	}
	if f.head != f.tail && f.Front().gap() {
		t.Fatal("a gap is in front")
	}
	// Nothing is kept beyond what waits.
	kept := 0
	for i := range f.entries {
		if f.entries[i].Value.obj != nil {
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
	f := new(FIFO[held])
	key := func(i int) (uint64, Key) {
		k := Key{Name: strconv.Itoa(i)}
		return k.Hash(), k
	}
	const burst = 300_000
	for i := range burst {
		f.Upsert(key(i))
	}
	for f.Len() > 0 {
		f.Remove(f.Front())
	}
	for i := range 3 * keepSlots {
		f.Upsert(key(i))
		f.Remove(f.Front())
	}
	if len(f.entries) > keepEntries || len(f.slots) > keepSlots {
		t.Errorf("after a burst of %d keys, room is kept for %d, and %d slots", burst, len(f.entries), len(f.slots))
	}
	// Nor does a key that comes and goes behind one that stays cost memory.
	f.Upsert(key(-1))
	for i := range 100_000 {
		f.Upsert(key(i))
		f.Remove(f.Get(key(i)))
		f.Upsert(key(i + 1))
		f.Upsert(key(i + 2))
		f.Remove(f.Get(key(i + 1)))
	}
	if f.Len() > 3 && len(f.entries) > 8*f.Len() {
		t.Errorf("room for %d entries is kept for %d", len(f.entries), f.Len())
	}
}
