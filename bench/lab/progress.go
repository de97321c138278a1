package lab

// Progress tells how far a run is.
type Progress struct {
	// Family and Title of the comparison that is played, and the cell's name as
	// benchmarks have it.
	Family, Title, Cell string
	// Round that is played, of Rounds; 0 is the warm-up.
	Round, Rounds int
	// Done of Total cells have been played, over all rounds. Cells that are
	// skipped since they became invalid count as played.
	Done, Total int
	// Finished is false before the cell is played and true afterwards; then
	// Verdict is the cell's so far. Skipped is true where an invalid cell was
	// passed over.
	Finished, Skipped bool
	Verdict           Verdict
}
