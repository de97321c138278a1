// Package source is where a storm enters a pipeline: it lists and watches like an
// API server and releases the storm's events.
//
//  1. [Options.Prepare] does once what all sources of a storm need: the apiserver source
//     encodes every event.
//  2. The [Maker] returns a fresh source for each play.
//  3. A Reflector or informer lists and watches ListerWatcher. The initial list is
//     the state after the first Storm.Initial events.
//  4. Play releases the other events one by one at the pacer's times.
//  5. Close ends all watches.
//
// The two sources differ in the way from the event to the Reflector: in [Memory] it
// is one channel, in [APIServer] JSON over HTTP/1.1 on loopback and client-go's
// decoder. The difference of their figures is the cost of the wire.
//
// Both follow the Kubernetes watch contract: a watch from resourceVersion n gets
// every event after n, once, in order; any number of watches share one stream; with
// sendInitialEvents (client-go's WatchListClient) a watch starts with the whole
// state and an annotated bookmark.
//
// [StaticFile] and [StaticURL] are the kubelet's other two sources of pods.
package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// Source feeds one storm to a Reflector. ListerWatcher and Relists may be called at
// any time from any goroutine; Play once, from one goroutine.
type Source interface {
	// Name is "memory" or "apiserver".
	Name() string
	ListerWatcher() cache.ListerWatcher
	// Play calls released, which may be nil, before it releases an event.
	Play(ctx context.Context, p *pace.Pacer, released func(seq uint64)) error
	// Relists counts the requests of the whole state after the first.
	Relists() int
	Close() error
}

// The names of sources.
const (
	MemoryName    = "memory"
	APIServerName = "apiserver"
)

// ErrUnknownSource is wrapped by the error for a name that is not a source.
var ErrUnknownSource = errors.New("unknown source")

// Names returns the names of sources.
func Names() []string { return []string{MemoryName, APIServerName} }

// Maker returns a fresh source of one storm, for one play.
type Maker func() (Source, error)

// ErrNoFaults is wrapped by the error for faults of a source without a connection.
var ErrNoFaults = errors.New("no faults here")

// Options are the faults of a source and their seed.
type Options struct {
	// Faults that the apiserver source's server has, from the beginning of Play
	// on.
	Faults []fault.Spec
	Seed   int64
}

// Prepare does once what all sources of that name need for a storm. The error is the
// storm's, or wraps [ErrUnknownSource] and lists the names, or wraps [ErrNoFaults]
// or [fault.ErrSpec].
func (o Options) Prepare(name string, s *storm.Storm) (Maker, error) {
	switch name {
	case MemoryName:
		if len(o.Faults) > 0 {
			return nil, fmt.Errorf("%w: the memory source has no connection that could fail (allowed: %s)", ErrNoFaults, APIServerName)
		}
		return func() (Source, error) { return NewMemory(s), nil }, nil
	case APIServerName:
		// Encoding takes a while, so it comes after this check.
		if _, err := fault.New(o.Faults, o.Seed, nil); err != nil {
			return nil, err
		}
		prepared, err := prepareAPIServer(s)
		if err != nil {
			return nil, err
		}
		return func() (Source, error) {
			src, err := startAPIServer(s, prepared, o)
			if err != nil {
				return nil, err
			}
			return src, nil
		}, nil
	default:
		return nil, fmt.Errorf("%w %q (allowed: %s)", ErrUnknownSource, name, strings.Join(Names(), ", "))
	}
}
