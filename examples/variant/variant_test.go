package main

import (
	"testing"

	"watchlab/impls/conformance/queuetest"
)

// TestConformance runs the conformance suite of the family queue.
func TestConformance(t *testing.T) { queuetest.RunQueue(t, counting) }
