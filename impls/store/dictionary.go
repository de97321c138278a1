package store

import "hash/maphash"

// dictionary numbers n different strings from 0 to n-1. Its versions share memory as those of a
// [vector] do. When a string is removed, the last one takes its number.
//
// It is a hash table with linear probing. A slot has the hash in its upper half, and the number plus
// one in its lower half; 0 is a free slot. The hash alone gives the slot where a string belongs, so
// the table grows and moves slots without the strings. The slots have no pointers, so the garbage
// collector does not scan them. Half to four fifths of them are used.
type dictionary struct {
	n     uint32
	size  uint32 // number of slots
	slots vector[uint64]
	names vector[string]
}

const minSlots = chunkSize

var seed = maphash.MakeSeed()

func hashOf(name string) uint32 { return uint32(maphash.String(seed, name) >> 32) }

// home returns the slot where the probe for a hash begins.
func (d *dictionary) home(hash uint32) uint32 { return uint32(uint64(hash) * uint64(d.size) >> 32) }

func (d *dictionary) after(slot uint32) uint32 {
	if slot++; slot < d.size {
		return slot
	}
	return 0
}

// find returns the number of a string. O(1).
func (d *dictionary) find(hash uint32, name string) (number uint32, found bool) {
	if d.n == 0 {
		return 0, false
	}
	for slot := d.home(hash); ; slot = d.after(slot) {
		s := d.slots.at(slot)
		if s == 0 {
			return 0, false
		}
		if number = uint32(s) - 1; uint32(s>>32) == hash && d.names.at(number) == name {
			return number, true
		}
	}
}

// all returns the strings by number.
func (d *dictionary) all() []string {
	list := make([]string, 0, d.n)
	for names := range d.names.chunks(d.n) {
		list = append(list, names...)
	}
	return list
}

// add gives the next number to a string that has none.
func (d *dictionary) add(old *dictionary, hash uint32, name string) (number uint32) {
	if d.n >= d.size/5*4 {
		d.resize(old, max(minSlots, d.n+d.n/2))
	}
	number = d.n
	d.n++
	*d.names.edit(old.names, number) = name
	d.insert(old, uint64(hash)<<32|uint64(number+1))
	return number
}

func (d *dictionary) insert(old *dictionary, s uint64) {
	slot := d.home(uint32(s >> 32))
	for d.slots.at(slot) != 0 {
		slot = d.after(slot)
	}
	d.setSlot(old, slot, s)
}

func (d *dictionary) setSlot(old *dictionary, slot uint32, s uint64) {
	*d.slots.edit(old.slots, slot) = s
}

// slotOf returns the slot of a number.
func (d *dictionary) slotOf(number uint32) uint32 {
	hash := hashOf(d.names.at(number))
	slot := d.home(hash)
	for d.slots.at(slot) != uint64(hash)<<32|uint64(number+1) {
		slot = d.after(slot)
	}
	return slot
}

// remove removes a number. The last number becomes this one.
func (d *dictionary) remove(old *dictionary, number uint32) {
	d.free(old, d.slotOf(number))
	d.n--
	if last := d.n; number != last {
		slot := d.slotOf(last)
		d.setSlot(old, slot, d.slots.at(slot)&^(1<<32-1)|uint64(number+1))
		*d.names.edit(old.names, number) = d.names.at(last)
	}
	d.names.pop(old.names, d.n)
	if d.n < d.size/4 && d.size > minSlots {
		d.resize(old, max(minSlots, 2*d.n))
	}
}

// free empties a slot. Slots after it move back, so that no probe ends at the gap too early.
func (d *dictionary) free(old *dictionary, gap uint32) {
	distance := func(from, to uint32) uint32 {
		if to < from {
			to += d.size
		}
		return to - from
	}
	for slot := d.after(gap); ; slot = d.after(slot) {
		s := d.slots.at(slot)
		if s == 0 {
			break
		}
		if distance(d.home(uint32(s>>32)), slot) >= distance(gap, slot) {
			d.setSlot(old, gap, s)
			gap = slot
		}
	}
	d.setSlot(old, gap, 0)
}

// resize makes a table with a number of slots, at least.
func (d *dictionary) resize(old *dictionary, size uint32) {
	before, n := d.slots, d.size
	d.size = (size + chunkSize - 1) / chunkSize * chunkSize
	d.slots = nil
	for slot := uint32(0); slot < d.size; slot += chunkSize {
		d.setSlot(old, slot, 0)
	}
	for slots := range before.chunks(n) {
		for _, s := range slots {
			if s != 0 {
				d.insert(old, s)
			}
		}
	}
}
