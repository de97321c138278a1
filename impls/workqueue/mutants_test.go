//go:build mutants

package workqueue_test

import (
	"testing"

	"watchlab/impls/conformance"
	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/workqueue"
)

func TestMutants(t *testing.T) {
	var all []conformance.Mutant
	for _, m := range workqueue.Mutants() {
		all = append(all, conformance.Mutant{Name: m.Name, Broken: m.Broken, Check: m.Check, In: ".*"})
	}
	conformance.RunMutants(t, all, func(t *testing.T, i int) {
		t.Run("impl", func(t *testing.T) { clientgo.RunWorkqueue(t, workqueue.Mutants()[i].Variant) })
	})
}
