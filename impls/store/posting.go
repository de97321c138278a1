package store

// posting has the numbers of the objects with a value of an index, in any order. Its versions share
// memory.
type posting struct {
	n    uint32
	few  []uint32       // up to chunkSize numbers, never changed
	many vector[uint32] // or more
}

// chunks yields the numbers, in slices that must not be changed.
func (p *posting) chunks(yield func([]uint32) bool) {
	if p.many == nil {
		yield(p.few)
		return
	}
	p.many.chunks(p.n)(yield)
}

func (p *posting) at(i uint32) uint32 {
	if p.many == nil {
		return p.few[i]
	}
	return p.many.at(i)
}

// set replaces number i; at the end it adds one.
func (p *posting) set(old *posting, i, number uint32) {
	if p.many == nil && i < chunkSize {
		few := make([]uint32, max(p.n, i+1))
		copy(few, p.few)
		few[i] = number
		p.few = few
	} else {
		if p.many == nil {
			for j, number := range p.few {
				*p.many.edit(old.many, uint32(j)) = number
			}
			p.few = nil
		}
		*p.many.edit(old.many, i) = number
	}
	p.n = max(p.n, i+1)
}

// pop removes the last number.
func (p *posting) pop(old *posting) {
	p.n--
	switch {
	case p.many == nil:
		p.few = p.few[:p.n:p.n]
	case p.n == chunkSize/2:
		few := make([]uint32, 0, p.n)
		for c := range p.many.chunks(p.n) {
			few = append(few, c...)
		}
		p.few, p.many = few, nil
	default:
		p.many.pop(old.many, p.n)
	}
}
