package cell

// perfUnits are the processor's counters, by the unit of their figures. Every processor
// can count these four at once, so the kernel need not multiplex and estimate.
var perfUnits = [...]string{"cycles", "instructions", "cache-misses", "branch-misses"}

// userOnly is the prefix of a unit if the kernel does not allow counting kernel mode.
const userOnly = "user-"

// counterNotes returns the counters divided by n events: the processor's, then the
// system's.
func counterNotes(perf []Note, before, after rusage, n float64) []Note {
	var notes []Note
	for _, c := range perf {
		notes = append(notes, Note{Unit: c.Unit + "/op", Value: c.Value / n})
	}
	if before.ok && after.ok {
		notes = append(notes,
			Note{Unit: "context-switches/op", Value: float64(after.switches-before.switches) / n},
			Note{Unit: "page-faults/op", Value: float64(after.faults-before.faults) / n})
	}
	return notes
}
