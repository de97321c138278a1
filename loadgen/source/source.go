// Package source is where a storm enters a pipeline: it gives a Reflector
// something to list and watch, and releases the storm's events to it.
//
//  1. New (or NewMemory, NewAPIServer) takes the storm and prepares all that
//     is not to be measured; the apiserver source encodes every event here.
//  2. A Reflector or informer is given ListerWatcher. What it lists first is
//     the initial list: the state after the first Storm.Initial events.
//  3. Play releases the rest, one by one, at the pacer's times.
//  4. Close ends what still watches.
//
// The two sources differ in what lies between the event and the Reflector:
// with [Memory] one channel, with [APIServer] JSON over HTTP/1.1 on loopback
// and client-go's own decoder. The difference of their figures is what the
// wire costs.
//
// Both follow the Kubernetes watch contract: a watch from resourceVersion n
// gets every event after n, once, in order; any number of watches share one
// stream; sendInitialEvents (client-go's WatchListClient) starts a watch with
// the whole state and marks its end with an annotated bookmark.
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

// Source feeds one storm to a Reflector. ListerWatcher and Relists may be
// called at any time from any goroutine; Play once, from one goroutine.
type Source interface {
	Name() string

	ListerWatcher() cache.ListerWatcher

	Play(ctx context.Context, p *pace.Pacer, released func(seq uint64)) error

	Relists() int

	Close() error
}

// The names that New takes.
const (
	MemoryName    = "memory"
	APIServerName = "apiserver"
)

// ErrUnknownSource is wrapped by the error for a name that is not a source.
var ErrUnknownSource = errors.New("unknown source")

// Names returns what New takes.
func Names() []string { return []string{MemoryName, APIServerName} }

// Maker makes fresh sources of one storm, each to be used for one play.
type Maker func() (Source, error)

// ErrNoFaults is wrapped by the error for faults of a source that has none.
var ErrNoFaults = errors.New("no faults here")

// Options change how sources work. The zero value is a good default.
type Options struct {
	Faults []fault.Spec

	Seed int64
}

// Prepare is [Options.Prepare] without options.
func Prepare(name string, s *storm.Storm) (Maker, error) { return Options{}.Prepare(name, s) }

// Prepare does, once, what all sources of that name need for a storm: the
// apiserver source's events are encoded. The error says which names there are
// and wraps [ErrUnknownSource], wraps [ErrNoFaults] or [fault.ErrSpec], or is
// the storm's.
func (o Options) Prepare(name string, s *storm.Storm) (Maker, error) {
	switch name {
	case MemoryName:
		if len(o.Faults) > 0 {
			return nil, fmt.Errorf("%w: the memory source has no connection that could fail (allowed: %s)", ErrNoFaults, APIServerName)
		}
		return func() (Source, error) { return NewMemory(s), nil }, nil
	case APIServerName:
		// Before anything is encoded.
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

// New builds the named source for a storm; see [Prepare].
func New(name string, s *storm.Storm) (Source, error) {
	maker, err := Prepare(name, s)
	if err != nil {
		return nil, err
	}
	return maker()
}
