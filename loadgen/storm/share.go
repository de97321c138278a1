package storm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"watchlab/loadgen/pace"
)

// Share is part Index of Count, from 0; the zero value is the whole storm. Shares divide a storm
// among the pods of a load Job.
//
//  1. A hash of an object's key selects its share, so all events of an object are in one share,
//     in order.
//  2. Each pod generates the whole storm from the same seed and keeps its share ([Share.Has],
//     [Storm.Select]). Pods need not communicate.
//  3. Events keep their intended times ([Selection.Schedule]). Shares that play at the same time
//     equal the whole storm: each event occurs exactly once.
//
// Shares have about equal numbers of keys: the difference is on the order of the square root of
// that number. A hot key makes their numbers of events unequal.
type Share struct{ Index, Count int }

// MaxShares is the maximum of Share.Count.
const MaxShares = 10_000

// ErrShare is wrapped by errors for an invalid share.
var ErrShare = errors.New("invalid share")

// ParseShare reads a share: "2/4" is index 2 of 4, the third share. The error wraps [ErrShare].
func ParseShare(text string) (Share, error) {
	index, of, ok := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(of)
	s := Share{Index: i, Count: n}
	if !ok || err1 != nil || err2 != nil || s.String() != text || n < 1 {
		return Share{}, fmt.Errorf("%w %q (allowed: INDEX/SHARES, such as 0/4, the first of four)", ErrShare, text)
	}
	return s, s.Validate()
}

// String returns the share in the format of [ParseShare].
func (s Share) String() string { return strconv.Itoa(s.Index) + "/" + strconv.Itoa(s.Count) }

// Validate checks Index and Count. The error wraps [ErrShare].
func (s Share) Validate() error {
	switch {
	case s.Whole():
		return nil
	case s.Count > MaxShares:
		return fmt.Errorf("%w %v: %d shares (allowed: 1 to %d)", ErrShare, s, s.Count, MaxShares)
	case s.Count < 1 || s.Index < 0 || s.Index >= s.Count:
		return fmt.Errorf("%w %v: of %d shares, the first is 0 and the last %d", ErrShare, s, s.Count, s.Count-1)
	}
	return nil
}

// Whole reports whether the share is the whole storm.
func (s Share) Whole() bool { return s == Share{} || s == Share{Count: 1} }

// Has reports whether the key is in this share. It does not allocate.
func (s Share) Has(key string) bool { return s.Whole() || indexOf(key, s.Count) == s.Index }

// indexOf returns the share index of a key among n shares. The hash is 64-bit FNV-1a with the
// first step of MurmurHash3's finalizer: the low bits of FNV-1a correlate with those of the
// key's last letters.
func indexOf(key string, n int) int {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return int(h % uint64(n))
}

// Schedule returns the schedule of the selection from the schedule of the whole storm: each
// event keeps its intended time. Event 0 is the first event after the initial list; events past
// the end have the time of the last one. Each lookup is O(1).
func (p Selection) Schedule(whole pace.Schedule) pace.Schedule {
	if whole == pace.Schedule(pace.Unpaced) {
		return whole
	}
	places := p.Places[p.Initial:]
	return pace.Func(func(i int) time.Duration {
		if len(places) == 0 {
			return 0
		}
		return whole.Intended(places[max(0, min(i, len(places)-1))] - p.WholeInitial)
	})
}
