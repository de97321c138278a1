// Package upload transfers the results of the pods of a load Job to `watchlab cluster collect`.
//
//  1. [Encode] encodes a result as a [Bundle]: a line with a checksum, a header in JSON,
//     and the compressed result.
//  2. A [Sink] stores the bundle: [ConfigMaps], [Log] or [Dir]. A [Target]
//     names the sink in the plan.
//  3. The [Reader] of the same kind finds the bundles of a run. It checks the checksums
//     and reports truncated, changed or mixed data as [Damage].
//  4. [Collect] chooses one bundle for each pod and merges them ([lab.Merge]).
//
// Readers return only complete bundles. The checksum is the bundle's name, so a
// repeated upload has no effect. Sinks retry until the context ends.
//
// Limits for a bundle of n bytes:
//
//	             requests                    largest bundle   lifetime
//	ConfigMaps   ⌈n / 900 kB⌉ writes         the etcd quota   the namespace
//	log          none                        [MaxLog]         the pod, log rotation
//	directory    none                        the volume       the volume
package upload

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	ErrTarget = errors.New("invalid upload target") // wrapped by the error for an invalid target
	// ErrBundle is wrapped by the error for an incomplete or damaged bundle.
	ErrBundle = errors.New("damaged result")
	// ErrFormat is wrapped by the error for a bundle of another format. It wraps ErrBundle.
	ErrFormat = fmt.Errorf("%w: unknown format", ErrBundle)
	// ErrTooLarge is wrapped by the error for a bundle above the size limit of a sink.
	ErrTooLarge = errors.New("too large")
	// ErrRuns is wrapped by the error of a Reader that got no name and finds several runs.
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
	// Read calls take once for each complete bundle of the run, from one goroutine, in no order. It
	// returns the damaged ones. An empty name selects the only run; several runs are an error that
	// wraps [ErrRuns]. An error of take ends Read and is returned.
	Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error)
}

// The kinds of targets.
const (
	ConfigMapTarget = "configmap"
	LogTarget       = "log"
	DirTarget       = "dir"
)

// Target is the destination of results.
type Target struct {
	Kind string // one of the kinds of targets
	To   string // path; empty for configmap and log
}

// ParseTarget parses the text form: "configmap", "log" or "dir=PATH". The error wraps [ErrTarget].
func ParseTarget(text string) (Target, error) {
	kind, to, has := strings.Cut(text, "=")
	if !(kind == DirTarget && to != "" || !has && (kind == ConfigMapTarget || kind == LogTarget)) {
		return Target{}, fmt.Errorf("%w: %q (allowed: configmap, log, dir=PATH)", ErrTarget, text)
	}
	return Target{Kind: kind, To: to}, nil
}
