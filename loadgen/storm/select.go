package storm

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Selection is what somebody has of a storm who sees some of its keys only.
type Selection struct {
	*Storm

	Places []int

	Whole, WholeInitial int
}

// Select returns what [Storm.AtLeast](n) has of the keys that keep chooses:
// the same events, numbered anew, in the same order and at the same times. Marks
// stand behind the same events; one that would stand behind the last is left out.
// O(events of the storm + events that are selected) time; memory as AtLeast, for the
// latter alone.
func (s *Storm) Select(n int, keep func(key string) bool) Selection {
	p := Selection{Whole: len(s.Events), WholeInitial: s.Initial}
	out := *s
	out.Events, out.Marks, out.Initial, out.Keys = nil, nil, 0, 0
	p.Storm = &out

	// ours is the index that a key of the whole has in the selection.
	const unseen, notOurs = -2, -1
	ours := slices.Repeat([]int32{unseen}, s.Keys)
	alive := make([]bool, s.Keys)
	marks := s.Marks
	for i := range s.Events {
		e := s.Events[i]
		alive[e.KeyIndex] = e.Type != watch.Deleted
		p.mark(&marks, e.Seq)
		if ours[e.KeyIndex] == unseen {
			ours[e.KeyIndex] = notOurs
			if keep(e.Key) {
				ours[e.KeyIndex] = int32(out.Keys)
				out.Keys++
			}
		}
		if ours[e.KeyIndex] == notOurs {
			continue
		}
		if i < s.Initial {
			out.Initial++
		}
		e.KeyIndex = ours[e.KeyIndex]
		p.add(e, 0, i)
	}
	if lap := s.lap(alive); len(s.Events) < n && len(lap.events) > 0 {
		p.laps(s, lap, n, ours)
	}
	out.Marks = within(out.Marks, len(out.Events))
	return p
}

// laps adds as many laps as the whole needs to have n events.
func (p *Selection) laps(s *Storm, lap lap, n int, ours []int32) {
	each := 0
	for _, e := range lap.events {
		if ours[e.KeyIndex] >= 0 {
			each++
		}
	}
	more := each * ((n - p.Whole + len(lap.events) - 1) / len(lap.events))
	p.Events, p.Places = slices.Grow(p.Events, more), slices.Grow(p.Places, more)
	for shift := lap.period; p.Whole < n; shift += lap.period {
		marks := s.Marks
		for i, e := range lap.events {
			p.mark(&marks, e.Seq)
			if at := ours[e.KeyIndex]; at >= 0 {
				e.KeyIndex = at
				p.add(e, shift, p.Whole+i)
			}
		}
		p.mark(&marks, s.Events[len(s.Events)-1].Seq)
		p.Whole += len(lap.events)
	}
}

// mark takes over the marks before the event of that number.
func (p *Selection) mark(marks *[]Mark, seq uint64) {
	for len(*marks) > 0 && (*marks)[0].After < seq {
		p.Marks = append(p.Marks, Mark{After: uint64(len(p.Events)), What: (*marks)[0].What})
		*marks = (*marks)[1:]
	}
}

// add takes over an event.
func (p *Selection) add(e Event, shift time.Duration, place int) {
	e.At += shift
	if seq := uint64(len(p.Events) + 1); seq != e.Seq || shift > 0 {
		e.Seq = seq
		e.Object = Renumber(e.Object, seq)
	}
	p.Events = append(p.Events, e)
	p.Places = append(p.Places, place)
}

// First returns what is selected of the whole's first n events; see [Storm.First].
func (p Selection) First(n int) Selection {
	if p.Whole <= n {
		return p
	}
	have, _ := slices.BinarySearch(p.Places, n)
	p.Storm, p.Places, p.Whole = p.Storm.First(have), p.Places[:have:have], n
	return p
}

// lap is what is repeated of a storm that is made longer: the events of the second
// lap and of those that follow, which are all alike.
type lap struct {
	events []Event
	period time.Duration
}

// lap returns the lap that follows a state in which the keys in alive are there.
func (s *Storm) lap(alive []bool) lap {
	own := s.Events[s.Initial:]
	if len(own) == 0 {
		return lap{}
	}
	// A lap begins where the initial list ends, so that the gap before its
	// first event is repeated too.
	l := lap{period: own[len(own)-1].At}
	if s.Initial > 0 {
		l.period -= s.Events[s.Initial-1].At
	}
	for _, e := range own {
		there := alive[e.KeyIndex]
		switch {
		case e.Type == watch.Deleted && !there:
			continue
		case e.Type == watch.Deleted:
		case there:
			e.Type = watch.Modified
		default:
			e.Type = watch.Added
		}
		alive[e.KeyIndex] = e.Type != watch.Deleted
		l.events = append(l.events, e)
	}
	return l
}
