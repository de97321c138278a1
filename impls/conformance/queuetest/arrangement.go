package queuetest

import (
	"fmt"

	"watchlab/impls"
	"watchlab/impls/queue"
)

// Arrangement is one way to set a variant up.
type Arrangement struct {
	Capacity, Shards int
}

// Options returns the options that make the arrangement.
func (a Arrangement) Options() queue.Options {
	return queue.Options{Capacity: a.Capacity, Shards: a.Shards}
}

// String returns the arrangement as the name of a subtest.
func (a Arrangement) String() string {
	return fmt.Sprintf("capacity=%d/shards=%d", a.Capacity, a.Shards)
}

// Capacities that bounded variants are held to their contract with: none, the
// smallest, one that is no power of two, and one that is larger than a batch.
var Capacities = []int{0, 1, 7, 1024}

// Arrangements returns all in which a variant can be set up.
func Arrangements(v queue.Variant) []Arrangement {
	g := v.Guarantees[0]
	capacities, shards := []int{0}, []int{0}
	if g.Bounded {
		capacities = Capacities
	}
	if g.Consumers == impls.ManyConsumers {
		shards = []int{0, 1, 3}
	}
	var all []Arrangement
	for _, c := range capacities {
		for _, s := range shards {
			all = append(all, Arrangement{Capacity: c, Shards: s})
		}
	}
	return all
}
