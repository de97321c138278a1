// Package delivery brings what the shards of a run have measured to the one who
// merges it.
//
// The way of a result:
//
//  1. [Encode] makes a [Parcel] of it: a line that says what follows and holds its
//     checksum, a header in JSON, and the whole result, compressed.
//  2. A [Sink] takes the parcel: ConfigMaps, lines in the log, a file in a folder, or
//     an object in an S3-compatible store. [Way] is how its name is written.
//  3. The [Reader] of the same kind finds the parcels of a run again. What is cut,
//     changed, or mixed with other output is found by checksums, and named as
//     [Damage]; the others are not affected.
//  4. [Choose] says which parcels count where a shard was tried several times, and
//     [Parcel.Shard] unpacks them, for lab.Merge.
//
// A parcel is there whole or not at all: a reader never returns a part of one. It is
// named by its checksum, so that delivering it twice is the same as once. Sinks try
// again what may be passing; how long is up to the context.
//
// What each can do, for a parcel of n bytes:
//
//	             requests                 most                  it is gone
//	ConfigMaps   ⌈n / 900 kB⌉ writes      the etcd quota        with the namespace
//	log          none                     [MaxLog]              with the pod, or a rotated log
//	folder       none                     the volume            never
//	S3           ⌈n / 16 MiB⌉, 1 at least the bucket's          by the bucket's rules
package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrWay is wrapped by the errors for what is no way to deliver.
	ErrWay = errors.New("no way to deliver")
	// ErrParcel is wrapped by the errors for what is no whole parcel.
	ErrParcel = errors.New("not a whole result")
	// ErrFormat is wrapped by the errors for a parcel of another version of this
	// package, and wraps ErrParcel.
	ErrFormat = fmt.Errorf("%w: another format", ErrParcel)
	// ErrTooLarge is wrapped by the errors for a parcel that a sink can't take, whatever
	// the time.
	ErrTooLarge = errors.New("too large")
	// ErrRuns is wrapped by the errors of a Reader that found several runs, and was not
	// told which one is meant.
	ErrRuns = errors.New("several runs")
)

// Sink takes parcels. It may be used by several goroutines.
type Sink interface {
	Deliver(ctx context.Context, p Parcel) error
}

// Reader finds parcels.
type Reader interface {
	Read(ctx context.Context, run string, take func(Parcel) error) ([]Damage, error)
}

// Damage is what is there of a parcel that isn't there whole.
type Damage struct {
	Where string

	Of Header

	Why string

	id string
}

func (d Damage) String() string {
	if d.Of.Index < 0 {
		return fmt.Sprintf("%s: %s", d.Where, d.Why)
	}
	return fmt.Sprintf("%s: shard %d/%d: %s", d.Where, d.Of.Index, d.Of.Of, d.Why)
}

// unknown is the header of what isn't known.
func unknown() Header { return Header{Index: -1} }

// runs keeps to one run: the one that was asked for, or the only one.
type runs struct {
	asked string
	found []string
}

// wants reports whether a parcel of that run is to be read.
func (r *runs) wants(run string) bool {
	if r.asked != "" {
		return run == r.asked
	}
	if !slices.Contains(r.found, run) {
		r.found = append(r.found, run)
	}
	return true
}

// err is not nil where there are several, and none was asked for.
func (r *runs) err() error {
	if len(r.found) < 2 {
		return nil
	}
	slices.Sort(r.found)
	return fmt.Errorf("%w: %q", ErrRuns, r.found)
}

// unrepaired are the damages of parcels that were not found whole elsewhere.
func unrepaired(damaged []Damage, taken map[string]bool) []Damage {
	return slices.DeleteFunc(damaged, func(d Damage) bool { return taken[d.id] })
}
