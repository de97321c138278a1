package deltafifotest

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// Arrangement is one way to set a variant up.
type Arrangement struct {
	Delivery deltafifo.Delivery

	Known      bool
	Capacity   int
	HandOver   impls.Ownership
	Compaction deltafifo.Compaction

	BatchSize, Shards int
}

// Options returns the options that make the arrangement. known is what the
// consumer holds, which is passed on if the arrangement says so.
func (a Arrangement) Options(known cache.KeyListerGetter) deltafifo.Options {
	o := deltafifo.Options{
		Delivery: a.Delivery, Capacity: a.Capacity, HandOver: a.HandOver, Compaction: a.Compaction,
		BatchSize: a.BatchSize, Shards: a.Shards,
	}
	if a.Known {
		o.KnownObjects = known
	}
	return o
}

// String returns the arrangement as the name of a subtest.
func (a Arrangement) String() string {
	s := fmt.Sprintf("delivery=%s/known=%t/capacity=%d/handover=%s/compaction=%s", a.Delivery, a.Known, a.Capacity, a.HandOver, a.Compaction)
	if a.BatchSize > 0 {
		s += fmt.Sprintf("/batchsize=%d", a.BatchSize)
	}
	if a.Shards > 0 {
		s += fmt.Sprintf("/shards=%d", a.Shards)
	}
	return s
}

func (a Arrangement) lent() bool   { return a.HandOver == impls.Lent }
func (a Arrangement) latest() bool { return a.Compaction == deltafifo.Latest }

// Capacities that bounded variants are held to their contract with: the
// smallest, one that is no power of two, and one that is larger than a batch.
var Capacities = []int{0, 1, 7, 1024}

// Arrangements returns all in which a variant can be set up, or an error where
// it refuses what its guarantees say that it takes.
func Arrangements(v deltafifo.Variant) ([]Arrangement, error) {
	var all []Arrangement
	for _, g := range v.Guarantees {
		for _, a := range ofMode(g) {
			q, err := v.New(a.Options(newStore()))
			if err == nil {
				q.Close()
			}
			switch {
			case err == nil:
				all = append(all, a)
			case !errors.Is(err, impls.ErrOptions):
				return nil, fmt.Errorf("%s of %v returned %w, which does not wrap ErrOptions", v.Name, a, err)
			case !a.Known && !a.lent() && !a.latest():
				return nil, fmt.Errorf("%s promises %v, and yet: %w", v.Name, g, err)
			}
		}
	}
	return all, nil
}

func ofMode(g impls.Guarantees) []Arrangement {
	var all []Arrangement
	capacities := Capacities
	if !g.Bounded {
		capacities = []int{0}
	}
	compactions := []deltafifo.Compaction{deltafifo.None}
	if g.Mode == string(deltafifo.PerKey) {
		compactions = append(compactions, deltafifo.Latest)
	}
	for _, known := range []bool{false, true} {
		for _, capacity := range capacities {
			for _, compaction := range compactions {
				for _, handOver := range []impls.Ownership{impls.Owned, impls.Lent} {
					all = append(all, Arrangement{
						Delivery: deltafifo.Delivery(g.Mode), Known: known, Capacity: capacity,
						Compaction: compaction, HandOver: handOver,
					})
				}
			}
		}
	}
	return all
}
