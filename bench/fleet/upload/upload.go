// Package upload transfers the results of the pods of a load Job to `watchlab cluster
// collect`.
//
//  1. [Encode] encodes a result as a [Bundle]: a line with a checksum, a header in JSON,
//     and the compressed result.
//  2. A [Sink] stores the bundle: ConfigMaps, log lines, a file, or an S3 object. A
//     [Target] names the sink in the plan.
//  3. The [Reader] of the same kind finds the bundles of a run. It checks the checksums
//     and reports truncated, changed or mixed data as [Damage].
//  4. [Collect] chooses one bundle for each pod and merges them ([lab.Merge]).
//
// Readers return only complete bundles. The checksum is the bundle's name, so a
// repeated upload has no effect. Sinks retry until the context ends.
//
// Limits for a bundle of n bytes:
//
//	requests                 largest bundle        lifetime
//
// ConfigMaps   ⌈n / 900 kB⌉ writes      the etcd quota        the namespace       log
// none                     [MaxLog]              the pod, log rotation       directory
// none                     the volume            the volume  S3           ⌈n / 16 MiB⌉,
// at least 1 the bucket's          the bucket's rules
package upload

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrTarget is wrapped by the error for an invalid target.
	ErrTarget = errors.New("invalid upload target")
	// ErrBundle is wrapped by the error for an incomplete or damaged bundle.
	ErrBundle = errors.New("damaged result")
	// ErrFormat is wrapped by the error for a bundle of another format. It wraps ErrBundle.
	ErrFormat = fmt.Errorf("%w: unknown format", ErrBundle)
	// ErrTooLarge is wrapped by the error for a bundle above the size limit of a sink.
	ErrTooLarge = errors.New("too large")
	// ErrRuns is wrapped by the error of a Reader that finds several runs but got no
	// name.
	ErrRuns = errors.New("several runs")
)

// Sink stores bundles. It is safe for concurrent use.
type Sink interface {
	// Upload returns nil when the bundle is stored completely. It retries temporary
	// errors until ctx ends.
	Upload(ctx context.Context, p Bundle) error
}

// Reader finds bundles.
type Reader interface {
	// Read calls take once for each complete bundle of the run, from one goroutine, in
	// no order. It returns the damaged ones. An empty name selects the only run;
	// several runs are an error that wraps [ErrRuns]. An error of take ends Read and is
	// returned.
	Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error)
}

// Damage describes an incomplete or damaged bundle.
type Damage struct {
	// Where is the name of the object or file.
	Where string
	// Of is the known part of the header. Its Index is -1 if nothing is known.
	Of Header
	// Why is the reason, in one line.
	Why string
	// id is that of the bundle; empty if unknown.
	id string
}

func (d Damage) String() string {
	if d.Of.Index < 0 {
		return fmt.Sprintf("%s: %s", d.Where, d.Why)
	}
	return fmt.Sprintf("%s: pod %d/%d: %s", d.Where, d.Of.Index, d.Of.Of, d.Why)
}

// unknown returns the header of unreadable data.
func unknown() Header { return Header{Index: -1} }

// runs selects the bundles of one run: the named one, or the only one.
type runs struct {
	asked string
	found []string
}

// wants reports whether to read a bundle of the run.
func (r *runs) wants(run string) bool {
	if r.asked != "" {
		return run == r.asked
	}
	if !slices.Contains(r.found, run) {
		r.found = append(r.found, run)
	}
	return true
}

// err returns an error that wraps [ErrRuns] if there are several runs and no name.
func (r *runs) err() error {
	if len(r.found) < 2 {
		return nil
	}
	slices.Sort(r.found)
	return fmt.Errorf("%w: %q", ErrRuns, r.found)
}

// unrepaired drops the damage of bundles that were found complete elsewhere.
func unrepaired(damaged []Damage, taken map[string]bool) []Damage {
	return slices.DeleteFunc(damaged, func(d Damage) bool { return taken[d.id] })
}
