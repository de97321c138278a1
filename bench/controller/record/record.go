// Package record holds what is observed of a controller from outside during one play of a storm.
//
//  1. [Recorder] wraps the handler of an API server, simulated or a proxy of a real one, and adds an
//     [Access] for each request of a controller.
//  2. The server reports each event of its log as a [Change].
//  3. The rest of a [Play] (watch lag, processes, scraped metrics) is sampled.
//
// All times count from the start of the storm and are negative before it. Packages rules and verdict
// judge a Play; they ask no server.
package record

import (
	"cmp"
	"iter"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/storm"
)

// The sources of a [Change] that are no clients. No client has such a name.
const (
	ByStorm     = "storm"     // a released event of the storm
	ByWorkload  = "workload"  // a user's request; see package workload
	ByLifecycle = "lifecycle" // the stand-in for scheduler, kubelet and garbage collector
	ByManifest  = "manifest"  // an object that existed before the storm
)

// Play is what was observed of one play.
type Play struct {
	Program string        `json:"program"` // label of the program, as in new or old
	Seed    int64         `json:"seed"`
	Faults  []fault.Spec  `json:"faults,omitempty"` // plan of the play
	Beside  []string      `json:"beside,omitempty"` // names of programs that are not judged
	Phases  []storm.Phase `json:"phases,omitempty"`
	Over    time.Duration `json:"over"` // end of storm, workload and faults
	// Quiet is the time of the last change by a controller or the lifecycle that was followed by the
	// quiet time; nil if they were still writing at End.
	Quiet *time.Duration `json:"quiet,omitempty"`
	End   time.Duration  `json:"end"` // of the observation, before the programs are stopped

	Injections []fault.Injection `json:"injections,omitempty"`
	Accesses   []Access          `json:"-"` // in order of their end
	Changes    []Change          `json:"-"` // in order of the log of each resource, initial objects first
	Lags       []Lag             `json:"-"`
	Samples    []Sample          `json:"-"`
	Scrapes    []Scrape          `json:"-"`
	Exits      []Exit            `json:"exits,omitempty"`
}

// Each visits the items of a list in place: they are large.
func Each[T any](list []T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

// Arrivals are the accesses in order of their arrival.
func (p *Play) Arrivals() []Access {
	return slices.SortedStableFunc(slices.Values(p.Accesses), func(a, b Access) int { return cmp.Compare(a.At, b.At) })
}

// Clients are the names of the replicas that have sent requests.
func (p *Play) Clients() map[string]bool {
	clients := map[string]bool{}
	for a := range Each(p.Accesses) {
		clients[a.Client] = true
	}
	return clients
}

// Access is one request of a controller.
type Access struct {
	At          time.Duration // arrival
	Took        time.Duration // until the end of the answer; of a watch, its length
	Client      string        // name of the replica
	Verb        string        // as in RBAC, and apply for server-side apply
	Resource    schema.GroupVersionResource
	Subresource string
	Key         string // namespace/name as in the API, namespace/ of a list in one, empty for all
	Selector    string // of labels and fields, of a list or watch
	Encoding    string // that a list or watch asks for first: protobuf, cbor, json
	Metadata    bool   // it asks for the metadata alone
	Code        int    // HTTP status
	In, Out     int64  // bytes of the bodies
	// Based is the resourceVersion that a write names in its body or preconditions, and 0 if it names none.
	Based uint64
	// Version is the resourceVersion of the answered object, 0 if there is none.
	Version uint64
	// Unchanged: the write succeeded and changed nothing: the version was known before the request.
	Unchanged bool
	DryRun    bool
	Continues bool // a further page of a list
	Any       bool // a list of any version, which may be an old one
	State     bool // a list's first page, or a watch with the initial events: a relist after the first
	Lock      bool // of an object other than a lease that leaders lock
}

// changes reports whether the access is a write, dry runs included.
func (a *Access) changes() bool { return a.Verb != "get" && a.Verb != "list" && a.Verb != "watch" }

// Writes reports whether the access is a write, dry runs excluded.
func (a *Access) Writes() bool { return !a.DryRun && a.changes() }

// Conflict reports whether the write was refused because its object had changed. A create of what exists is no such write.
func (a *Access) Conflict() bool { return a.Code == http.StatusConflict && a.Verb != "create" }

// ID names an object. Versions of an API share it.
type ID struct {
	Resource schema.GroupResource
	Key      string // namespace/name
}

func (i ID) String() string { return i.Resource.String() + " " + i.Key }

// ID returns the name of the object.
func (a *Access) ID() ID { return ID{a.Resource.GroupResource(), a.Key} }

// ID returns the name of the object.
func (c *Change) ID() ID { return ID{c.Resource.GroupResource(), c.Key} }

// ByUser reports whether a user or the storm made the change.
func (c *Change) ByUser() bool { return c.By == ByWorkload || c.By == ByStorm }

// Background reports whether the object is written all the time, also by a program that is done: a lock or an event.
func (a *Access) Background() bool { return a.Lock || background(a.Resource.Resource) }

func background(resource string) bool { return resource == "leases" || resource == "events" }

// Change is one event that became visible to watches.
type Change struct {
	At       time.Duration // when it became visible
	Intended time.Duration // when it was due; At for the controllers' changes
	By       string        // name of the client, or one of the constants above
	Type     watch.EventType
	Resource schema.GroupVersionResource // in the stored version
	Key      string                      // namespace/name
	Version  uint64
	Lock     bool // as that of an Access
	// Object is the object after the change and Before the one before it, nil for ADDED. For DELETED,
	// Object is the last state. They are shared and must not be changed.
	Object, Before runtime.Object
}

// Background is that of [Access].
func (c *Change) Background() bool { return c.Lock || background(c.Resource.Resource) }

// Lag is how far one open watch was behind at a time.
type Lag struct {
	At time.Duration
	apiserver.Lag
}

// Sample is the state of a program's process at a time.
type Sample struct {
	At         time.Duration
	Client     string        // name of the replica
	CPU        time.Duration // used since its start
	RSS        int64         // resident bytes
	Memory     int64         // those that are of no file: the kernel cannot drop them
	Peak       int64         // the largest Memory since the start, or since the peak was reset
	Files      int           // open file descriptors
	Goroutines int           // scraped; 0 if unknown
}

// Scrape is one scrape of a program's metrics: those of controller-runtime, client-go's workqueues and
// the Go runtime.
type Scrape struct {
	At     time.Duration
	Client string
	Values map[string]float64 // by metric, each the sum of its series
}

// Exit is an end of a program's process.
type Exit struct {
	At      time.Duration
	Client  string
	Planned bool   // by a crash of the plan or the end of the play
	Status  string // as in "exit status 1" or "signal: killed"
}
