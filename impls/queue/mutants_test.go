//go:build mutants

package queue_test

import (
	"testing"

	"watchlab/impls/conformance"
	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/queue"
)

func TestMutants(t *testing.T) {
	var all []conformance.Mutant
	for _, m := range queue.Mutants() {
		// The setup's name: capacity, shards, path.
		all = append(all, conformance.Mutant{Name: m.Name, Broken: m.Broken, Check: m.Check, In: ".*/.*"})
	}
	conformance.RunMutants(t, all, func(t *testing.T, i int) {
		clientgo.RunQueue(t, queue.Mutants()[i].Variant)
	})
}
