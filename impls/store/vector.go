package store

import "slices"

const (
	chunkSize = 16 // entries
	pageSize  = 32 // chunks
	blockSize = 16 // pages
	perPage   = pageSize * chunkSize
	perBlock  = blockSize * perPage
)

type (
	chunk[T any] [chunkSize]T
	page[T any]  [pageSize]*chunk[T]
	block[T any] [blockSize]*page[T]
)

// vector is an array whose versions share memory: a tree with four levels. A version that is
// published never changes. The writer edits its own copy of the version, and passes the published
// version as old. A node that old has at the same place is shared, and is copied before the first
// write. Each other node was made since old was published, so the writer changes it in place.
// Therefore nodes must not move to another place.
//
// at is O(1). edit copies at most four nodes, each once a version: O(1) but for the root, which has a
// pointer for 8,192 entries.
//
// The sizes are a compromise: of large chunks a batch copies more, and of small ones a reader of many
// entries misses the cache more often. Three levels need larger pages, which makes a version with one
// write twice as large. Rejected: a batch number in each node instead of the comparison with old, which
// costs memory.
type vector[T any] []*block[T]

func (v vector[T]) at(i uint32) T {
	return v[i/perBlock][i/perPage%blockSize][i/chunkSize%pageSize][i%chunkSize]
}

// own returns the node of a version for a write: a new one, a copy of the old one if it is shared,
// or the version's own.
func own[N any](node **N, old *N) *N {
	switch *node {
	case nil:
		*node = new(N)
	case old:
		n := *old
		*node = &n
	}
	return *node
}

// edit returns entry i for a write. The new entry at the end of a vector is zero.
func (v *vector[T]) edit(old vector[T], i uint32) *T {
	_, _, c := v.path(old, i)
	return &c[i%chunkSize]
}

// path returns the nodes above entry i for a write.
func (v *vector[T]) path(old vector[T], i uint32) (b *block[T], p *page[T], c *chunk[T]) {
	at, inBlock, inPage := int(i/perBlock), i/perPage%blockSize, i/chunkSize%pageSize
	var oldBlock *block[T]
	var oldPage *page[T]
	var oldChunk *chunk[T]
	if at < len(old) {
		oldBlock = old[at]
		if oldPage = oldBlock[inBlock]; oldPage != nil {
			oldChunk = oldPage[inPage]
		}
	}
	if len(*v) > 0 && len(old) > 0 && &(*v)[0] == &old[0] {
		*v = slices.Clone(*v)
	}
	if at == len(*v) {
		*v = append(*v, nil)
	}
	b = own(&(*v)[at], oldBlock)
	p = own(&b[inBlock], oldPage)
	return b, p, own(&p[inPage], oldChunk)
}

// pop removes the last entry, which is entry n, and the nodes that have no entries any more.
func (v *vector[T]) pop(old vector[T], n uint32) {
	b, p, c := v.path(old, n)
	var zero T
	c[n%chunkSize] = zero
	if n%chunkSize == 0 {
		p[n/chunkSize%pageSize] = nil
	}
	if n%perPage == 0 {
		b[n/perPage%blockSize] = nil
	}
	if n%perBlock == 0 {
		(*v)[n/perBlock] = nil
		*v = (*v)[:n/perBlock]
	}
}

// chunks yields the first n entries in order, in slices that must not be changed.
func (v vector[T]) chunks(n uint32) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for i := uint32(0); i < n; i += chunkSize {
			if !yield(v[i/perBlock][i/perPage%blockSize][i/chunkSize%pageSize][:min(chunkSize, n-i)]) {
				return
			}
		}
	}
}
