// Package rules says what a controller should do: which write answers which event, and which state it
// leaves in the end.
package rules

import (
	"time"

	"watchlab/bench/controller/record"
)

// Reaction is an event that asks for an answer, with the answer.
type Reaction struct {
	Rule    string         // name of the rule
	Event   *record.Change // event that matched
	Answer  *record.Access // first write that answers it; nil if there is none
	Latency time.Duration  // from the event's intended time to the answer's arrival; 0 without an answer
	Phase   string         // of the storm at the event's intended time
}

// Violation is an object whose final state is not what a rule says.
type Violation struct {
	Rule   string
	Object string // resource and key, as in deployments.apps default/web
	Text   string // what is wrong, as in "3 pods, want 5"
	// Last is the last change of the object, or of what it should own; nil if there was none.
	Last *record.Change
}
