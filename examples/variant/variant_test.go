package main

import (
	"testing"

	"watchlab/impls/conformance/clientgo"
)

// TestConformance runs the conformance suite of the family queue.
func TestConformance(t *testing.T) { clientgo.RunQueue(t, counting) }
