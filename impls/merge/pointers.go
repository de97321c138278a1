package merge

import (
	"math/bits"
	"unsafe"

	v1 "k8s.io/api/core/v1"
)

// pointers maps the last received pods to their entries. It is a table with open addressing and
// linear probing, at most half full. Go's map takes about four times as long, because its hash
// defends against chosen keys, which addresses are not. An address is a valid key: Go does not move
// heap objects, and the table keeps them alive. The zero value is an empty table.
type pointers struct {
	slots []pointerSlot
	shift uint // reduces a hash to an index: its highest bits
	count int
}

type pointerSlot struct {
	pod   *v1.Pod
	entry *entry
}

const minSlots = 16 // of the smallest table

// home returns the index where the search for a pod begins.
func (p *pointers) home(pod *v1.Pod) uint {
	// Fibonacci hashing: the golden ratio spreads addresses, which differ by
	// multiples of the pod's size, over the highest bits.
	return uint(uint64(uintptr(unsafe.Pointer(pod)))*0x9e3779b97f4a7c15>>p.shift) & uint(len(p.slots)-1)
}

// get returns the entry of a pod, or nil.
func (p *pointers) get(pod *v1.Pod) *entry {
	if len(p.slots) == 0 {
		return nil
	}
	mask := uint(len(p.slots) - 1)
	for i := p.home(pod); ; i = (i + 1) & mask {
		slot := &p.slots[i]
		if slot.pod == pod {
			return slot.entry
		}
		if slot.pod == nil {
			return nil
		}
	}
}

// put adds a pod that is not in the table.
func (p *pointers) put(pod *v1.Pod, e *entry) {
	if 2*(p.count+1) > len(p.slots) {
		p.resize(max(minSlots, 2*len(p.slots)))
	}
	p.insert(pod, e)
	p.count++
}

func (p *pointers) insert(pod *v1.Pod, e *entry) {
	mask := uint(len(p.slots) - 1)
	i := p.home(pod)
	for p.slots[i].pod != nil {
		i = (i + 1) & mask
	}
	p.slots[i] = pointerSlot{pod, e}
}

// remove removes a pod, if present.
func (p *pointers) remove(pod *v1.Pod) {
	if len(p.slots) == 0 {
		return
	}
	mask := uint(len(p.slots) - 1)
	i := p.home(pod)
	for p.slots[i].pod != pod {
		if p.slots[i].pod == nil {
			return
		}
		i = (i + 1) & mask
	}
	// Close the gap: entries that were pushed past it move back, so that no search ends early.
	for j := (i + 1) & mask; p.slots[j].pod != nil; j = (j + 1) & mask {
		if home := p.home(p.slots[j].pod); (j-home)&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = pointerSlot{}
	p.count--
	if len(p.slots) > minSlots && 8*p.count < len(p.slots) {
		p.resize(len(p.slots) / 2)
	}
}

func (p *pointers) resize(size int) {
	old := p.slots
	p.slots = make([]pointerSlot, size)
	p.shift = uint(64 - bits.Len(uint(size-1)))
	for _, slot := range old {
		if slot.pod != nil {
			p.insert(slot.pod, slot.entry)
		}
	}
}
