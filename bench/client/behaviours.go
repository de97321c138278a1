package client

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Behaviour is something that API servers, and what is between them and a client, do.
type Behaviour struct {
	Name string
	Does string // after "the server"

	faults    string        // as [fault.ParseAll] reads them; times count from the first view
	early     bool          // the faults begin before the program does
	objects   int           // before the program starts
	size      int           // of each object's data, in bytes
	bookmarks time.Duration // their interval; 0 for that of a real server
	gzip      bool          // answers are compressed as by kube-apiserver 1.37
	unknown   bool          // objects have fields that no client knows
	cut       time.Duration // time after which connections vanish without FIN or RST; 0 for never
}

// Behaviours returns all behaviours. Without a fault there is one that each client passes.
func Behaviours() []Behaviour {
	all := []Behaviour{
		{Name: Plain, Does: "lists and watches"},
		{Name: "empty", Does: "has no object at first", objects: -1},
		{Name: "gzip", Does: "compresses lists, and watches with one gzip member a flush, as since 1.37", gzip: true},
		{Name: "large", Does: "has objects of 1 MB", objects: 4, size: 1_000_000},
		{Name: "unknown-fields", Does: "is newer: objects have fields that the client does not know", unknown: true},
		{Name: "bookmarks", Does: "sends many bookmarks, some of them twice", bookmarks: 100 * time.Millisecond, faults: "duplicate-bookmark:every=1s,count=3"},
		{Name: "no-watchlist", Does: "answers 422 to sendInitialEvents, as without WatchList", early: true, faults: "no-watchlist:resource=configmaps,duration=1h"},
		{Name: "gone-event", Does: "has compacted its history: an ERROR event 410", faults: "relist:at=2s"},
		{Name: "gone-status", Does: "answers 410 to watches for 3 s", faults: "gone:at=2s,duration=3s"},
		{Name: "error-event", Does: "ends the watch with an ERROR event 500", faults: "error-event:at=2s"},
		{Name: "internal-error", Does: "answers 500 to all requests for 5 s", faults: "internal-error:at=2s,duration=5s"},
		{Name: "throttle", Does: "answers 429 with Retry-After to all requests for 5 s", faults: "throttle:at=2s,duration=5s"},
		{Name: "close", Does: "ends the watch without a word, as at its timeout", faults: "close:at=1s,every=1s,count=3"},
		{Name: "disconnect", Does: "ends the connection between two events", faults: "disconnect:at=1s,every=1s,count=3"},
		{Name: "half-frame", Does: "ends the connection within an event", faults: "half-frame:at=1s,every=1s,count=3"},
		{Name: "reset", Does: "resets the connection", faults: "reset:at=1s,every=1s,count=3"},
		{Name: "vanish", Does: "vanishes: no FIN, no RST, and nothing more, as behind a NAT that forgot the connection", cut: 2 * time.Second},
		{Name: "malformed", Does: "sends what is no JSON", faults: "malformed:at=2s"},
		{Name: "slow", Does: "sends 13 kB/s in pieces of 64 bytes for 10 s", faults: "drip:at=1s,duration=10s"},
		{Name: "silence", Does: "sends nothing for 30 s, and then all", faults: "stall:at=2s,duration=30s"},
		{Name: "skip", Does: "holds events back for 3 s and answers 410 then: what was deleted is missing from the list", faults: "skip:resource=configmaps,at=1s,duration=3s"},
		{Name: "old-view", Does: "is a second one that lags 6 s behind: the list is older than what the client has", faults: "old-view:resource=configmaps,at=1s,duration=8s; gone:at=3s,duration=1ms"},
		{Name: "duplicate", Does: "sends events twice", faults: "duplicate:resource=configmaps,at=1s,every=1s,count=3"},
	}
	for i := range all {
		b := &all[i]
		if b.objects == 0 {
			b.objects = 40
		}
		if b.objects = max(b.objects, 0); b.size == 0 {
			b.size = 4 << 10 // The list is above 128 kB, so that gzip compresses it.
		}
	}
	return all
}

// Plain is the behaviour that all others build on.
const Plain = "plain"

// Names returns the names of all behaviours.
func Names() (names []string) {
	for _, b := range Behaviours() {
		names = append(names, b.Name)
	}
	return names
}

// Named returns the behaviours of some names, all for none. Plain is among them.
func Named(names []string) ([]Behaviour, error) {
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fmt.Errorf("%q is no behaviour (allowed: %s)", n, strings.Join(Names(), ", "))
		}
	}
	return slices.DeleteFunc(Behaviours(), func(b Behaviour) bool {
		return len(names) > 0 && b.Name != Plain && !slices.Contains(names, b.Name)
	}), nil
}
