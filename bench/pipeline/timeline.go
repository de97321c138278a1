package pipeline

import (
	"time"

	"watchlab/bench/cell"
)

// maxMoments is how many moments a timeline has.
const maxMoments = 200

// timeline tells how the events after the initial list went, of a cell that stamps
// all of them at a pace: in moments of equal length, from the start of the schedule
// until the last was handled. taken is when each left the queue; one without it is
// counted as never queued, as it was taken out of the queue at a time that nobody
// knows.
func (s *stamps) timeline(rec *cell.Recorder, initial int, taken []int64) {
	if s.paced {
		rec.Timeline(s.moments(initial, taken))
	}
}

func (s *stamps) moments(initial int, taken []int64) []cell.Moment {
	last := s.start
	for seq := initial + 1; seq < len(s.handled); seq++ {
		last = max(last, s.released[seq], s.enqueued[seq], taken[seq], s.handled[seq])
	}
	if last == s.start {
		return nil
	}
	// Rounded up, so that the last stamp lies within.
	width := (last - s.start + maxMoments) / maxMoments
	n := int((last-s.start)/width) + 1
	at := func(stamp int64) int { return int(max(stamp-s.start, 0) / width) }

	moments := make([]cell.Moment, n)
	// change is by how many more events were queued at the end of the moment than
	// at its beginning.
	change := make([]int64, n)
	for seq := initial + 1; seq < len(s.handled); seq++ {
		if released := s.released[seq]; released != 0 {
			moments[at(released)].Released++
		}
		if handled := s.handled[seq]; handled != 0 {
			moments[at(handled)].Handled++
		}
		if s.enqueued[seq] != 0 && taken[seq] != 0 {
			// The consumer may have it before the producer has said so.
			change[min(at(s.enqueued[seq]), at(taken[seq]))]++
			change[at(taken[seq])]--
		}
	}
	depth := int64(0)
	for i := range moments {
		depth += change[i]
		moments[i].At = time.Duration(width * int64(i+1))
		moments[i].Depth = uint64(depth)
	}
	return moments
}
