package storm_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// event is the part of an event that stays the same in a share.
type event struct {
	Type watch.EventType
	At   time.Duration
	Key  string
}

func eventsOf(s *storm.Storm) []event {
	var out []event
	for _, e := range s.Events {
		out = append(out, event{e.Type, e.At, e.Key})
	}
	return out
}

// The shares of a storm of any length add up to the storm. Each share is valid, and no key is
// in two shares.
func TestSharesFormStorm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStorm(t)
		n := rapid.IntRange(1, 6).Draw(t, "shares")
		length := rapid.IntRange(0, 200).Draw(t, "length")
		whole := s.AtLeast(length)
		cut := rapid.IntRange(whole.Initial, max(whole.Initial, len(whole.Events)+5)).Draw(t, "cut")
		whole = whole.First(cut)

		together := make([]event, len(whole.Events))
		filled, initial, keys := 0, 0, map[string]int{}
		for i := range n {
			of := storm.Share{Index: i, Count: n}
			part := s.Select(length, of.Has).First(cut)
			if len(part.Events) > 0 {
				if err := part.Validate(); err != nil {
					t.Fatalf("share %v: %v", of, err)
				}
			}
			if part.Whole != len(whole.Events) || part.WholeInitial != whole.Initial {
				t.Fatalf("share %v has %d events, %d initial; want %d and %d", of, part.Whole, part.WholeInitial, len(whole.Events), whole.Initial)
			}
			if !slices.IsSorted(part.Places) {
				t.Fatalf("share %v: places %v", of, part.Places)
			}
			for j, e := range eventsOf(part.Storm) {
				if at := part.Places[j]; together[at] == (event{}) {
					together[at] = e
					filled++
				}
				if other, ok := keys[e.Key]; ok && other != i {
					t.Fatalf("key %s is in shares %d and %d", e.Key, other, i)
				}
				keys[e.Key] = i
			}
			initial += part.Initial
			// Marks follow the same events as in the whole storm.
			var marks []storm.Mark
			for _, m := range whole.Marks {
				if after, _ := slices.BinarySearch(part.Places, int(m.After)); after < len(part.Events) {
					marks = append(marks, storm.Mark{After: uint64(after), Type: m.Type})
				}
			}
			if !slices.Equal(marks, part.Marks) {
				t.Fatalf("share %v (-want +got):\n%s", of, cmp.Diff(marks, part.Marks))
			}
		}
		if filled != len(whole.Events) || initial != whole.Initial {
			t.Fatalf("%d events in all, %d initial; want %d and %d", filled, initial, len(whole.Events), whole.Initial)
		}
		if want := eventsOf(whole); !slices.Equal(want, together) {
			t.Fatalf("union of the shares (-want +got):\n%s", cmp.Diff(want, together))
		}
	})
}

// For every pace, the intended times of the shares equal those of the whole storm.
func TestIntendedTimesKept(t *testing.T) {
	for _, text := range []string{"max", "2000", "poisson:2000", "trace:2x"} {
		p := must(pace.Parse(text))(t)
		rapid.Check(t, func(t *rapid.T) {
			s := drawStorm(t)
			n, length := rapid.IntRange(1, 4).Draw(t, "shares"), rapid.IntRange(0, 120).Draw(t, "length")
			whole := s.AtLeast(length)
			own := whole.Events[whole.Initial:]
			of := p.Schedule(pace.Score{Events: len(own), Seed: 7, At: func(i int) time.Duration {
				if len(own) == 0 {
					return 0
				}
				return own[min(i, len(own)-1)].At
			}})
			for i := range n {
				part := s.Select(length, storm.Share{Index: i, Count: n}.Has)
				schedule := part.Schedule(of)
				if on := pace.On(schedule); on.Paced() != p.Paced() {
					t.Fatalf("a share of %s: paced %v", text, on.Paced())
				}
				for j := range part.Events[part.Initial:] {
					place := part.Places[part.Initial+j] - whole.Initial
					if got, want := schedule.Intended(j), of.Intended(place); got != want {
						t.Fatalf("%s, share %d/%d: event %d is intended at %v, in the whole storm at %v", text, i, n, j, got, want)
					}
				}
			}
		})
	}
}

// The share of a key must be stable across releases and machines, because the shares of a run
// may be on several machines.
func TestKeyOwner(t *testing.T) {
	want := map[string]int{"default/web-0": 2, "default/web-1": 0, "default/web-2": 0, "kube-system/coredns-7db6d8ff4d-x2x9v": 0, "": 2}
	got := map[string]int{}
	for key := range want {
		for i := range 4 {
			if (storm.Share{Index: i, Count: 4}).Has(key) {
				got[key] = i
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("keys are in shares %v, want %v", got, want)
	}
}

// Names that differ only in their last letters are spread over the shares.
func TestBalance(t *testing.T) {
	s := &storm.Storm{}
	for i := range 100_000 {
		s.Events = append(s.Events, storm.Event{Key: fmt.Sprintf("batch/job-%d", i)})
	}
	for _, n := range []int{2, 3, 4, 10, 64, 100} {
		sizes := make([]int, n)
		for i := range sizes {
			of := storm.Share{Index: i, Count: n}
			for _, e := range s.Events {
				if of.Has(e.Key) {
					sizes[i]++
				}
			}
		}
		mean := float64(len(s.Events)) / float64(n)
		if least, most := float64(slices.Min(sizes)), float64(slices.Max(sizes)); least < mean*0.85 || most > mean*1.15 {
			t.Errorf("of %d shares, one has %.0f keys and one %.0f; the mean is %.0f", n, least, most, mean)
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]storm.Share{"0/1": {Count: 1}, "2/4": {Index: 2, Count: 4}, "9999/10000": {Index: 9999, Count: 10000}} {
		got, err := storm.ParseShare(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "4/4", "-1/4", "1/0", "0/0", "a/b", " 1/4", "+1/4", "1/4/4", "01/4", "0/10001"} {
		if of, err := storm.ParseShare(text); !errors.Is(err, storm.ErrShare) {
			t.Errorf("%q: %v, %v", text, of, err)
		}
	}
	if !(storm.Share{}).Whole() || !(storm.Share{Count: 1}).Whole() || (storm.Share{Count: 2}).Whole() {
		t.Error("what is whole")
	}
}
