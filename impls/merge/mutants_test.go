//go:build mutants

package merge_test

import (
	"testing"

	"watchlab/impls/conformance"
	"watchlab/impls/merge"
)

func TestMutants(t *testing.T) {
	var all []conformance.Mutant
	for _, m := range merge.Mutants() {
		all = append(all, conformance.Mutant{Name: m.Name, Broken: m.Broken, Check: m.Check, In: ".*"})
	}
	conformance.RunMutants(t, all, func(t *testing.T, i int) { conformance.RunMerge(t, merge.Mutants()[i].Variant) })
}
