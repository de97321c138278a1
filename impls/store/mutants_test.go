//go:build mutants

package store_test

import (
	"testing"

	"watchlab/impls/conformance"
	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/store"
)

func TestMutants(t *testing.T) {
	var all []conformance.Mutant
	for _, m := range store.Mutants() {
		all = append(all, conformance.Mutant{Name: m.Name, Broken: m.Broken, Check: m.Check, In: "lists=.*"})
	}
	conformance.RunMutants(t, all, func(t *testing.T, i int) { clientgo.RunStore(t, store.Mutants()[i].Variant) })
}
