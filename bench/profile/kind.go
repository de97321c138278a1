package profile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Kind is what a profile tells of.
type Kind string

// The kinds.
const (
	// CPU: where processor time goes, a sample every 10 ms of it.
	CPU Kind = "cpu"
	// Heap: what was live when collections, looked at every 10 ms, found the most; a
	// sample every 512 kB (runtime.MemProfileRate).
	Heap Kind = "heap"
	// Allocs: what was allocated, sampled likewise.
	Allocs Kind = "allocs"
	// Mutex: where goroutines held locks that others waited for, and how long these
	// waited.
	Mutex Kind = "mutex"
	// Block: where goroutines waited, for locks and channels, sampled every 10 µs of
	// waiting.
	Block Kind = "block"
	// Goroutine: where goroutines stood when there were the most.
	Goroutine Kind = "goroutine"
	// Trace: every scheduling event, for go tool trace.
	Trace Kind = "trace"
)

// Kinds are all there are, in the order of their names in tables.
func Kinds() []Kind { return []Kind{CPU, Heap, Allocs, Mutex, Block, Goroutine, Trace} }

// ErrKind is wrapped by the errors of [Parse].
var ErrKind = errors.New("no such kind of profile")

// Parse reads kinds that are separated by commas; "all" is all of them.
func Parse(list string) ([]Kind, error) {
	if list == "all" {
		return Kinds(), nil
	}
	var kinds []Kind
	for name := range strings.SplitSeq(list, ",") {
		k := Kind(strings.TrimSpace(name))
		switch {
		case !slices.Contains(Kinds(), k):
			return nil, fmt.Errorf("%w %q (have all, %s)", ErrKind, k, joinKinds(", "))
		case !slices.Contains(kinds, k):
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

func joinKinds(separator string) string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, separator)
}

// FileName returns the name of a cell's file of this kind, within [Dir]. Two cells
// never have the same.
func (k Kind) FileName(cell string) string {
	// Room for the kind and for a hidden neighbour's name, in file systems that take
	// 255 bytes.
	const longest = 200
	plain := true
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '=', c == '.', c == ',':
			return c
		}
		// The slash between the parts of a name is the only character that turns into
		// this one without a trace.
		plain = plain && c == '/'
		return '_'
	}, cell)
	if !plain || len(name) > longest {
		h := fnv.New64a()
		_, _ = h.Write([]byte(cell)) // It never fails.
		name = fmt.Sprintf("%s-%016x", name[:min(len(name), longest)], h.Sum64())
	}
	if k == Trace {
		return name + ".trace"
	}
	return name + "." + string(k) + ".pb.gz"
}

// Dir is the folder within a results folder in which profiles stand.
const Dir = "profiles"
