package deltafifotest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Kind is what an [Op] does.
type Kind uint8

// The kinds. Take and TakeBatch fall together where the variant has no batch
// path.
const (
	Add Kind = iota
	Update
	Delete
	// Tombstone is a Delete of a [cache.DeletedFinalStateUnknown].
	Tombstone
	// Nameless is an Add of an object that has no key.
	Nameless
	// Replace lists some of the keys, each in a new version.
	Replace
	// Relist lists what was told last of each key, as a Reflector does.
	Relist
	Resync
	Bookmark
	Take
	TakeBatch
	// TakeFails is a TakeBatch whose process fails: by an error, or a panic if
	// Arg is odd.
	TakeFails
	// Look compares what can be seen from outside: Len and HasSynced.
	Look
	Close
	kinds
)

var kindNames = [...]string{
	"Add", "Update", "Delete", "Tombstone", "Nameless", "Replace", "Relist", "Resync", "Bookmark",
	"Take", "TakeBatch", "TakeFails", "Look", "Close",
}

func (k Kind) String() string { return kindNames[k] }

// Op is one operation on a queue, small enough that a million fit.
type Op struct {
	Kind Kind

	Within uint8

	Arg uint32
}

// Decode makes operations of any bytes, two for each.
func Decode(data []byte) []Op {
	var ops []Op
	for ; len(data) >= 2; data = data[2:] {
		op := Op{Kind: Kind(data[0]%32) % kinds, Within: data[0] >> 6, Arg: uint32(data[1])}
		if op.Kind == Close && data[0]%32 >= uint8(kinds) {
			op.Kind = Update // Seldom enough that something comes before.
		}
		ops = append(ops, op)
	}
	return ops
}

// Random makes n operations on so many keys. Lists are so rare that they don't
// make up most of the cost.
func Random(rng *rand.Rand, n, keys int) []Op {
	ops := make([]Op, n)
	for i := range ops {
		op := Op{Arg: rng.Uint32()}
		switch roll := rng.IntN(100); {
		case rng.IntN(8*keys) == 0:
			op.Kind = []Kind{Replace, Relist, Resync}[rng.IntN(3)]
		case roll < 8:
			op.Kind = Add
		case roll < 46:
			op.Kind = Update
		case roll < 56:
			op.Kind = []Kind{Delete, Delete, Tombstone}[rng.IntN(3)]
		case roll < 60:
			op.Kind = []Kind{Bookmark, Look, Nameless, TakeFails}[rng.IntN(4)]
		case roll < 80:
			op.Kind = Take
		default:
			op.Kind = TakeBatch
		}
		if op.Kind.Takes() && rng.IntN(4) == 0 {
			op.Within = uint8(rng.IntN(4))
		}
		ops[i] = op
	}
	return ops
}

// Takes reports whether the operation takes from the queue.
func (k Kind) Takes() bool { return k == Take || k == TakeBatch || k == TakeFails }

// Format writes operations one a line, as the report of a failure has them.
func Format(ops []Op) string {
	var b strings.Builder
	within := 0
	for i, op := range ops {
		fmt.Fprintf(&b, "%6d: ", i)
		if within > 0 {
			within--
			b.WriteString("    ")
		}
		b.WriteString(op.Kind.String())
		switch op.Kind {
		case Add, Update, Delete, Tombstone, Replace, TakeFails:
			fmt.Fprintf(&b, " %d", op.Arg)
		}
		if op.Kind.Takes() && op.Within > 0 {
			fmt.Fprintf(&b, ", and the next %d inside process", op.Within)
			within = int(op.Within)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Shrink leaves out what a failure does not need, by halves, quarters and so on
// down to single operations. fails must be true of ops. It plays
// O(n log n) times for n that are needed.
func Shrink(ops []Op, fails func([]Op) bool) []Op {
	for size := len(ops) / 2; size > 0; {
		cut := false
		for from := 0; from < len(ops); {
			fewer := append(append([]Op(nil), ops[:from]...), ops[min(len(ops), from+size):]...)
			if fails(fewer) {
				ops, cut = fewer, true
			} else {
				from += size
			}
		}
		// Single ones as long as that helps: one may be needed only by another.
		if size > 1 {
			size /= 2
		} else if !cut {
			return ops
		}
	}
	return ops
}
