package queuetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// kind is what an [op] does.
type kind uint8

const (
	add kind = iota
	update
	del
	// bury is a Delete of a [cache.DeletedFinalStateUnknown].
	bury
	// addNameless is an Add of an object that has no key.
	addNameless
	// replace lists some of the keys, each in a new version; of family queue,
	// some of them twice.
	replace
	// relist lists the newest version of each key, as a Reflector does.
	relist
	resync
	bookmark
	pop
	popBatch
	// popFails is a pop whose process fails: by an error, or a panic if arg is
	// odd.
	popFails
	// look compares Len and HasSynced.
	look
	closeQueue
)

var kindNames = [...]string{
	"Add", "Update", "Delete", "Tombstone", "Nameless", "Replace", "Relist", "Resync", "Bookmark",
	"Pop", "PopBatch", "PopFails", "Look", "Close",
}

func (k kind) String() string { return kindNames[k] }

func (k kind) pops() bool { return k == pop || k == popBatch || k == popFails }

// op is one operation on a queue, small enough that a million fit.
type op struct {
	kind kind
	// within is how many of the next operations happen inside process.
	within uint8
	arg    uint32
}

// random makes n operations on so many keys. Lists are rare, as they are most of
// the cost.
func (s setup) random(rng *rand.Rand, n, keys int) []op {
	of := func(kinds, objectKinds []kind) kind {
		if s.objects {
			kinds = objectKinds
		}
		return kinds[rng.IntN(len(kinds))]
	}
	ops := make([]op, n)
	for i := range ops {
		o := op{arg: rng.Uint32()}
		switch roll := rng.IntN(100); {
		case rng.IntN(8*keys) == 0:
			o.kind = of([]kind{replace, relist, resync}, []kind{replace})
		case roll < 8:
			o.kind = add
		case roll < 46:
			o.kind = update
		case roll < 56:
			o.kind = of([]kind{del, del, bury}, []kind{del})
		case roll < 60:
			o.kind = of([]kind{bookmark, look, addNameless, popFails}, []kind{resync, look, addNameless, popFails})
		default:
			o.kind = of([]kind{pop, popBatch}, []kind{pop})
		}
		if o.kind.pops() && rng.IntN(4) == 0 {
			o.within = uint8(rng.IntN(4))
		}
		ops[i] = o
	}
	return ops
}

// format writes operations one a line.
func format(ops []op) string {
	var b strings.Builder
	within := 0
	for i, o := range ops {
		fmt.Fprintf(&b, "%6d: ", i)
		if within > 0 {
			within--
			b.WriteString("    ")
		}
		fmt.Fprintf(&b, "%v %d", o.kind, o.arg)
		if o.kind.pops() && o.within > 0 {
			fmt.Fprintf(&b, ", and the next %d inside process", o.within)
			within = int(o.within)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
