// Package verdict judges a play of a storm to a controller. Each verdict names the events that show it.
package verdict

import "time"

// The names of the verdicts.
const (
	LostUpdates    = "lost updates"      // final state of what it owns is not what the rules say
	HotLoop        = "hot loop"          // writes without a change
	Relists        = "thundering relist" // more lists than the faults explain
	StaleWrite     = "stale write"       // a write based on an old resourceVersion
	Leak           = "leak"              // memory, goroutines or files do not return
	NeverConverged = "never converged"   // still writing at the end
	Crashed        = "crashed"           // a process ended by itself
)

// Verdict is the judgement of one property of one play.
type Verdict struct {
	Name     string     `json:"name"`
	Failed   bool       `json:"failed"`
	Text     string     `json:"text"`               // one sentence with the figures
	Evidence []Evidence `json:"evidence,omitempty"` // the first few events that show a failure
}

// Evidence is an event of a play.
type Evidence struct {
	At   time.Duration `json:"at"` // since the start of the storm
	Text string        `json:"text"`
}
