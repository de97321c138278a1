// Package source is the entry of a storm into a pipeline: it lists and watches like an API
// server and releases the storm's events.
//
//  1. [Options.Prepare] checks the options.
//  2. The [Maker] returns a new source for each play. Its first call does the work that all
//     sources share: the apiserver source starts the server's process, which encodes every event.
//  3. A Reflector or informer lists and watches ListerWatcher. The initial list is
//     the state after the first Storm.Initial events.
//  4. Ready takes the schedule. Play releases the other events one by one at the pacer's times.
//  5. Close ends all watches.
//
// The two sources differ in the path from the event to the Reflector. In [Memory] it is a
// channel. In [APIServer] it is HTTP/1.1 on loopback and a decoder. The difference between their
// results is the cost of the wire on the client's side.
//
// Both follow the Kubernetes watch contract. A watch from resourceVersion n gets every event after
// n exactly once, in order. Any number of watches share one stream. With sendInitialEvents
// (client-go's WatchListClient) a watch starts with the whole state and an annotated bookmark.
//
// [StaticFile] and [StaticURL] are the kubelet's other two sources of pods.
package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// Source feeds one storm to a Reflector. ListerWatcher and Relists are safe for concurrent use.
type Source interface {
	// ListerWatcher returns the ListerWatcher for Reflectors. Any number of Reflectors can
	// share it.
	ListerWatcher() cache.ListerWatcher
	// Ready takes the schedule of p before it is started, so that Play begins at once. Without it,
	// Play takes the schedule.
	Ready(p *pace.Pacer) error
	// Play releases the next events after the initial list, up to event upto: event i, counted from
	// 0, at p's time i. p must be started. Play returns after the last release, or with ctx's error,
	// after which there is no other Play. A watch may still have to receive released events.
	//
	// If released is not nil, it is called for each event: with a zero time just before a watch can
	// see the event, or later, before Play returns, with the time of the release.
	//
	// A paced Play is an open loop: a slow watch never delays a release. Each implementation
	// documents its unpaced Play.
	Play(ctx context.Context, p *pace.Pacer, upto uint64, released func(seq uint64, at time.Time)) error
	// Relists returns the number of requests for the whole state after the first one: lists,
	// and watches with initial events. With one Reflector, a value above 0 means that it lost
	// its position.
	Relists() int
	// Disconnect ends all watches, like a network failure. Clients can resume from their last
	// version.
	Disconnect()
	// Close ends all watches and frees the source's resources. A second Close does nothing.
	// Call it after Play has returned.
	Close() error
}

// Names of sources.
const (
	MemoryName    = "memory"
	APIServerName = "apiserver"
)

var (
	ErrUnknownSource = errors.New("unknown source")  // the name of a source
	ErrNoFaults      = errors.New("no faults here")  // faults in a source without connections
	ErrInitialList   = errors.New("no initial list") // a way to list that client-go does not have
)

// Names returns the names of sources.
func Names() []string { return []string{MemoryName, APIServerName} }

// Maker returns a new source of one storm, for one play. ctx is that of a run: what its sources
// share, such as a process, is theirs until it ends.
type Maker func(ctx context.Context) (Source, error)

// Options are the options of a source.
type Options struct {
	Faults []fault.Spec // of the apiserver source; they start with Play
	Seed   int64        // decides the random choices of the faults
	Wire   Wire         // of the apiserver source
}

// Prepare does the work that all sources of that name share for a valid storm, or leaves it to the first
// call of the Maker. The error wraps [ErrUnknownSource] or [ErrNoFaults], or is that of [Wire.Complete].
// Faults are valid.
func (o Options) Prepare(name string, s *storm.Storm) (Maker, error) {
	switch name {
	case MemoryName:
		if len(o.Faults) > 0 {
			return nil, fmt.Errorf("%w: the memory source has no connection that could fail (allowed: %s)", ErrNoFaults, APIServerName)
		}
		return func(context.Context) (Source, error) { return NewMemory(s), nil }, nil
	case APIServerName:
		prepared, err := prepareAPIServer(s, o)
		if err != nil {
			return nil, fmt.Errorf("apiserver source: %w", err)
		}
		return func(ctx context.Context) (Source, error) {
			src, err := startAPIServer(ctx, s, prepared)
			if err != nil {
				return nil, fmt.Errorf("apiserver source: %w", err)
			}
			return src, nil
		}, nil
	default:
		return nil, fmt.Errorf("%w %q (allowed: %s)", ErrUnknownSource, name, strings.Join(Names(), ", "))
	}
}
