// Package share says how several processes share one storm: which part each has
// ([Of]), and what all of them are told ([Plan]).
//
// A storm is divided by key, so that all events of an object come to one share, in
// their order. Which share has a key follows from a hash of the key and the number
// of shares alone: no process has to know of another, and each makes the same storm
// from the same seed and keeps its part of it. Events keep their intended times, so
// that the shares, played at the same time, are the storm: nothing of it is missing,
// and nothing is there twice.
//
// The keys of the shares are about as many, give or take the square root of their
// number. Their events need not be: a hot key stays in one share ([Sizes] counts).
package share

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"watchlab/loadgen/storm"
)

// Of is one of several shares: number Index, from 0, of Of. The zero value is the
// only share there is: the whole.
type Of struct{ Index, Of int }

// MaxShares is the largest number of shares.
const MaxShares = 10_000

// ErrShare is wrapped by the errors for what is no share.
var ErrShare = errors.New("invalid share")

// Parse reads a share: "2/4" is index 2 of 4, the third. The error wraps [ErrShare].
func Parse(text string) (Of, error) {
	index, of, ok := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(of)
	o := Of{Index: i, Of: n}
	if !ok || err1 != nil || err2 != nil || o.String() != text || n < 1 {
		return Of{}, fmt.Errorf("%w %q (allowed: INDEX/SHARES, such as 0/4, the first of four)", ErrShare, text)
	}
	return o, o.Validate()
}

// String returns the share as [Parse] reads it.
func (o Of) String() string { return strconv.Itoa(o.Index) + "/" + strconv.Itoa(o.Of) }

// Validate refuses a share of none or of too many, and one beyond the last. The error
// wraps [ErrShare].
func (o Of) Validate() error {
	switch {
	case o.Whole():
		return nil
	case o.Of > MaxShares:
		return fmt.Errorf("%w %v: %d shares (allowed: 1 to %d)", ErrShare, o, o.Of, MaxShares)
	case o.Of < 1 || o.Index < 0 || o.Index >= o.Of:
		return fmt.Errorf("%w %v: of %d shares, the first is 0 and the last %d", ErrShare, o, o.Of, o.Of-1)
	}
	return nil
}

// Whole reports whether it is the only share there is.
func (o Of) Whole() bool { return o == Of{} || o == Of{Of: 1} }

// Has reports whether the key is in this share. It doesn't allocate.
func (o Of) Has(key string) bool { return o.Whole() || of(key, o.Of) == o.Index }

// of returns the share that has the key, of n: by the 64-bit FNV-1a hash, mixed as
// MurmurHash3 begins to finish, as its low bits follow those of the key's last letters.
func of(key string, n int) int {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return int(h % uint64(n))
}

// Storm returns the share's part of a storm: the events of its keys, numbered anew,
// at the times that they have there, and the marks. It is valid where the storm is,
// and may be empty. O(events).
func (o Of) Storm(s *storm.Storm) *storm.Storm {
	if o.Whole() {
		return s
	}
	return s.Select(0, o.Has).Storm
}

// Sizes counts the events that each of n shares has of a storm. O(events).
func Sizes(s *storm.Storm, n int) []int {
	sizes := make([]int, max(n, 1))
	for i := range s.Events {
		sizes[of(s.Events[i].Key, len(sizes))]++
	}
	return sizes
}
