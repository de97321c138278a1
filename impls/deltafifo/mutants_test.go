//go:build mutants

package deltafifo_test

import (
	"strings"
	"testing"

	"watchlab/impls/conformance"
	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/deltafifo"
)

func TestMutants(t *testing.T) {
	var all []conformance.Mutant
	for _, m := range deltafifo.Mutants() {
		// The setup's name: delivery, known, capacity, handover, path.
		// Those of a throttled setup have "throttle" before the path.
		given := strings.Split(m.In, "/")
		in := append(given, ".", ".", ".", ".")[:max(5, len(given))]
		for i, part := range in {
			if part == "." {
				part = ".*"
			}
			in[i] = "=" + part + "$"
		}
		all = append(all, conformance.Mutant{Name: m.Name, Broken: m.Broken, Check: m.Check, In: strings.Join(in, "/")})
	}
	conformance.RunMutants(t, all, func(t *testing.T, i int) {
		clientgo.RunDeltaFIFO(t, deltafifo.Mutants()[i].Variant)
	})
}
