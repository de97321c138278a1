// Package verdict judges a play of a storm to a controller. Each verdict has its definition in its file, names
// the events that show it, and prefers a miss to a false alarm.
package verdict

import (
	"time"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
)

// The names of the verdicts.
const (
	LostUpdates    = "lost updates"      // final state of what it owns is not what the rules say
	HotLoop        = "hot loop"          // writes without a cause
	Relists        = "thundering relist" // more lists than the faults explain
	StaleWrite     = "stale write"       // a write based on an old resourceVersion
	Leak           = "leak"              // memory, goroutines or files do not return
	NeverConverged = "never converged"   // still writing at the end
	Crashed        = "crashed"           // a process ended by itself
	Diverged       = "diverged"          // other objects than without faults
	ActedStale     = "acted on a stale cache"
	Wedged         = "wedged" // nothing more after a fault
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
	Why  string        `json:"why,omitempty"` // of [Explain]

	object record.ID // that Explain is to explain
}

// shown is the number of events that a verdict shows.
const shown = 8

func (v *Verdict) show(at time.Duration, text string) { v.showObject(at, record.ID{}, text) }

// showObject shows an event of an object that [Explain] explains.
func (v *Verdict) showObject(at time.Duration, o record.ID, text string) {
	if len(v.Evidence) < shown {
		v.Evidence = append(v.Evidence, Evidence{At: at, Text: text, object: o})
	}
}

// The limits of the verdicts. A correct controller of client-go stays far below them.
const (
	// maxUseless is the number of writes without a change to one object in a row, with no cause between them and
	// at most maxPause between two. maxRestless is the same for writes with a change: it changes back and forth.
	maxUseless, maxRestless = 10, 50
	maxPause                = 2 * time.Second
	// maxRelists is the number of initial states of one resource for each fault that hit its watches. A Reflector
	// retries a failed list, and after an answer that does not parse it lists again.
	maxRelists = 4
	// maxStale is the number of newer versions of an object that a write misses, each of which the client had
	// staleAfter to learn of. maxRepeats is the number of refused writes of an object with the same version.
	maxStale, maxRepeats = 10, 5
	staleAfter           = 5 * time.Second
	// moment is the time that an answer to what a client has just seen may be on its way.
	moment = time.Second
	// moreMemory (bytes) and moreCount (goroutines, open files) are what a process may have at the end, besides
	// twice as much as at the start.
	moreMemory, moreCount = 48 << 20, 100
)

// Judge returns all verdicts of a play. Reactions and violations are those of package rules.
func Judge(p *record.Play, reactions []rules.Reaction, violations []rules.Violation) []Verdict {
	return []Verdict{
		// A crash comes first: it explains what follows.
		crashed(p), lostUpdates(reactions, violations), hotLoop(p), relists(p), staleWrites(p), leak(p), neverConverged(p),
	}
}

func name(a *record.Access) string {
	text := a.Resource.GroupResource().String()
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	return text + " " + a.Key
}
