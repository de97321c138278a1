package pprof

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
)

// Kind is a kind of profile.
type Kind string

// The kinds. Heap and Allocs have one sample per 512 KiB (runtime.MemProfileRate).
const (
	CPU    Kind = "cpu"    // CPU time by function, one sample per 10 ms
	Heap   Kind = "heap"   // live memory at the end of the measurement, after a collection
	Allocs Kind = "allocs" // all allocations
	Mutex  Kind = "mutex"  // holders of contended locks, and the time that other goroutines waited for them
	Block  Kind = "block"  // time that goroutines wait for locks and channels, one sample per 10 µs
)

// Kinds returns all kinds, in the order of tables.
func Kinds() []Kind { return []Kind{CPU, Heap, Allocs, Mutex, Block} }

// ErrKind is wrapped by the errors for unknown kinds.
var ErrKind = errors.New("no such kind of profile")

// Parse reads kinds separated by commas; "all" means all kinds. Errors wrap [ErrKind].
func Parse(list string) ([]Kind, error) {
	if list == "all" {
		return Kinds(), nil
	}
	var kinds []Kind
	for name := range strings.SplitSeq(list, ",") {
		k := Kind(strings.TrimSpace(name))
		switch {
		case !slices.Contains(Kinds(), k):
			return nil, fmt.Errorf("%w %q (have all, %s)", ErrKind, k, strings.ReplaceAll(strings.Trim(fmt.Sprint(Kinds()), "[]"), " ", ", "))
		case !slices.Contains(kinds, k):
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

// FileName returns the name of a cell's file within [Dir]. Different cells have different names.
func (k Kind) FileName(cell string) string { return lab.FileName(cell) + "." + string(k) + ".pb.gz" }

// Dir is the subfolder of a results folder with the profiles.
const Dir = "profiles"
