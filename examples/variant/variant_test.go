package main

import (
	"testing"

	"watchlab/impls/conformance/queuetest"
)

// TestConformance runs the checks that every variant of the family passes.
func TestConformance(t *testing.T) { queuetest.RunQueue(t, counting) }
