package share

import (
	"time"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// Schedule returns when the events of a selection are meant to happen, counted from
// 0 after its initial list, where those of the whole happen on a schedule: at the
// same times. O(1) for each, as the whole's.
func Schedule(whole pace.Schedule, s storm.Selection) pace.Schedule {
	if whole == pace.Schedule(pace.Unpaced) {
		return whole
	}
	return schedule{whole: whole, places: s.Places[s.Initial:], initial: s.WholeInitial}
}

// schedule is that of a selection of a storm's events.
type schedule struct {
	whole pace.Schedule

	places  []int
	initial int
}

// Intended implements [pace.Schedule]. Events beyond the last happen with it.
func (s schedule) Intended(i int) time.Duration {
	if len(s.places) == 0 {
		return 0
	}
	return s.whole.Intended(s.places[max(0, min(i, len(s.places)-1))] - s.initial)
}
