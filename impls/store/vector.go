package store

import "slices"

const (
	// chunkSize is the number of entries that a write copies. Small chunks make writes cheap and
	// the pages above them large. 16 to 64 were measured.
	chunkSize = 32
	pageSize  = 64 // chunks of a page
	perPage   = chunkSize * pageSize
)

type (
	chunk[T any] [chunkSize]T
	page[T any]  [pageSize]*chunk[T]
)

// vector is an array whose versions share memory: a tree with three levels. A version that is
// published never changes. The writer edits its own copy of the version, and passes the published
// version as old. A node that old has at the same place is shared, and is copied before the first
// write. Each other node was made since old was published, so the writer changes it in place.
// Therefore nodes must not move to another place.
//
// at is O(1). edit copies a chunk, a page and the root, each at most once a version: O(1), and O(n/2048)
// pointers for the root.
//
// Rejected: a batch number in each node, which says the same but costs memory; and deeper trees, which
// save the copy of the root and cost each read a cache miss.
type vector[T any] []*page[T]

func (v vector[T]) at(i uint32) T { return v[i/perPage][i/chunkSize%pageSize][i%chunkSize] }

// edit returns entry i for a write. The new entry at the end of a vector is zero.
func (v *vector[T]) edit(old vector[T], i uint32) *T {
	p := v.editPage(old, i)
	c := &p[i/chunkSize%pageSize]
	switch {
	case *c == nil:
		*c = new(chunk[T])
	case int(i/perPage) < len(old) && *c == old[i/perPage][i/chunkSize%pageSize]:
		own := **c
		*c = &own
	}
	return &(*c)[i%chunkSize]
}

func (v *vector[T]) editPage(old vector[T], i uint32) *page[T] {
	at := int(i / perPage)
	if at < len(*v) && (at >= len(old) || (*v)[at] != old[at]) {
		return (*v)[at] // and so the root is not shared
	}
	v.editRoot(old)
	if at == len(*v) {
		*v = append(*v, new(page[T]))
	} else {
		own := *(*v)[at]
		(*v)[at] = &own
	}
	return (*v)[at]
}

func (v *vector[T]) editRoot(old vector[T]) {
	if len(*v) > 0 && len(old) > 0 && &(*v)[0] == &old[0] {
		*v = slices.Clone(*v)
	}
}

// pop removes the last entry, which is entry n, and the nodes that have no entries any more.
func (v *vector[T]) pop(old vector[T], n uint32) {
	switch {
	case n%perPage == 0:
		v.editRoot(old)
		(*v)[len(*v)-1] = nil
		*v = (*v)[:len(*v)-1]
		if len(*v) == 0 {
			*v = nil
		}
	case n%chunkSize == 0:
		v.editPage(old, n)[n/chunkSize%pageSize] = nil
	default:
		var zero T
		*v.edit(old, n) = zero
	}
}

// chunks yields the first n entries in order, in slices that must not be changed.
func (v vector[T]) chunks(n uint32) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for i := uint32(0); i < n; i += chunkSize {
			if !yield(v[i/perPage][i/chunkSize%pageSize][:min(chunkSize, n-i)]) {
				return
			}
		}
	}
}
