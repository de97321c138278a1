package cell

// perfUnits are the processor's counters, by the unit of a figure over events in.
// Four fit into every processor's counters at once, so that none is an estimate.
var perfUnits = [...]string{"cycles", "instructions", "cache-misses", "branch-misses"}

// userOnly is put before a unit where the kernel's own share isn't let to be
// counted.
const userOnly = "user-"

// counterNotes are the counters' figures over n events: the processor's, then the
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
