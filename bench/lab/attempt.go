package lab

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Attempt tells one result of a shard from others of the same shard.
type Attempt struct {
	Index    int
	Number   int
	Pod      string
	Started  time.Time
	Finished bool
}

func (s Shard) attempt() Attempt {
	o := s.Outcome
	return Attempt{Index: s.Index, Number: s.Attempt, Pod: s.Pod, Started: o.Started, Finished: o.Ended != nil && !o.Interrupted}
}

// Choose says which of several results of each shard counts: the first attempt that came
// to its end, so that nobody has the choice; of those that none did, the last. It returns
// their places, by index, and those of the others. What stands there twice, the same
// attempt of the same pod begun at the same time, counts once. The error wraps
// [ErrShards]: two different results claim to be the same attempt.
func Choose(attempts []Attempt) (chosen, passed []int, err error) {
	order := make([]int, len(attempts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := attempts[i], attempts[j]
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Number, b.Number), a.Started.Compare(b.Started), cmp.Compare(a.Pod, b.Pod))
	})
	for len(order) > 0 {
		n := 1
		for n < len(order) && attempts[order[n]].Index == attempts[order[0]].Index {
			n++
		}
		of := order[:n]
		order = order[n:]
		best := of[len(of)-1]
		if at := slices.IndexFunc(of, func(i int) bool { return attempts[i].Finished }); at >= 0 {
			best = of[at]
		}
		chosen = append(chosen, best)
		for k, i := range of {
			a := attempts[i]
			if k > 0 {
				before := attempts[of[k-1]]
				if a.Number == before.Number && a.Pod == before.Pod && !a.Started.Equal(before.Started) {
					return nil, nil, fmt.Errorf("%w: shard %d has two results of attempt %d (pod %q), one begun at %s and one at %s",
						ErrShards, a.Index, a.Number, a.Pod, before.Started.UTC().Format(time.RFC3339Nano), a.Started.UTC().Format(time.RFC3339Nano))
				}
			}
			same := a.Number == attempts[best].Number && a.Pod == attempts[best].Pod && a.Started.Equal(attempts[best].Started)
			if i != best && !same {
				passed = append(passed, i)
			}
		}
	}
	return chosen, passed, nil
}
