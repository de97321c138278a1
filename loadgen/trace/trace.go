// Package trace reads and writes recorded watch streams and makes storms of
// them.
//
// A recording is a sequence of frames in order of arrival: what a watch said,
// with the object as the API server sent it and the time from the start of the
// recording. The types are the watch's: ADDED, MODIFIED, DELETED, BOOKMARK and
// ERROR. A bookmark annotated k8s.io/initial-events-end ends the initial list of
// its resource. Between frames there may be a [Break], which says that something
// was missed there.
//
// # Formats
//
// [Reader] tells them by their first bytes, from a file or a pipe:
//
//   - A trace, which is this package's own format and described below: *.wlt.
//
//   - Recorded JSON lines, one a frame, plain or compressed by gzip or zstd:
//
//     {"offsetNs":30438098,"event":{"type":"ADDED","object":{"kind":"Pod",…}}}
//
//     offsetNs is the time of arrival in nanoseconds; it never decreases. A
//     line may name its "resource", such as "apps/v1/deployments"; where none
//     does, all are of one kind. A line with a "break" instead of an "event" is
//     a [Break].
//
//   - What a watch says, as it is: kubectl get --watch -o json
//     --output-watch-events, or curl …?watch=1. It is a sequence of JSON
//     documents, on one line each or pretty-printed, plain or compressed:
//
//     {"type":"ADDED","object":{"kind":"Pod",…}}
//
//     There are no times in it; all frames are at 0.
//
// # The trace format
//
// Version 1. A trace is a sequence of zstd frames, so that zstd -d turns it into
// recorded JSON lines. The data frames are the blocks: each is compressed by
// itself and holds about a MiB of whole lines, with the resource in each. Around
// them are skippable frames, which zstd skips:
//
//	header   block head, block   block head, block   …   index
//
// A skippable frame has, all numbers being little-endian:
//
//	magic    4 bytes  0x184D2A57
//	size     4 bytes  of what follows
//	tag      4 bytes  WLTh (header), WLTb (block head), WLTi (index)
//	JSON     …        [Header], block head, index
//	length   4 bytes  of the JSON
//	CRC-32C  4 bytes  of tag, JSON and length
//
// The block head has the block's compressed size and CRC-32C, its first and last
// time, its resources and its place in the order, so that a block can be
// skipped, checked and read without any other. The index has the place and the
// times of each block; its length stands at its end, so that a file can be read
// from there. A pipe is read without it.
//
// A trace is readable up to the last block that was flushed, whatever became of
// the writer. What is damaged costs the block that it is in: the reader goes on
// at the next head that it finds.
//
// # Use
//
// [Writer] writes a trace and [LineWriter] the other formats. [Load] makes a
// [storm.Storm] of a recording's main resource and [LoadSet] a [storm.Set] of
// all, from a file or from one of those that are built in (see [Names]).
// [Mender] mends what was cut or damaged. Whatever is wrong with
// a recording is an [*Error] that names the place.
package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Version of the trace format that [Writer] writes. [Reader] reads it and those
// before.
const Version = 1

// Extension of a file in the trace format.
const Extension = ".wlt"

// Resource is one of those that a recording holds.
type Resource struct {
	Group    string `json:"group,omitempty"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
}

// String returns the resource as in an API path: v1/pods, apps/v1/deployments.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Version + "/" + r.Resource
	}
	return r.Group + "/" + r.Version + "/" + r.Resource
}

// GVR returns the group, version and resource.
func (r Resource) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// GVK returns the group, version and kind.
func (r Resource) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// Header is what a trace says of itself.
type Header struct {
	Format int `json:"format"`

	Tool string `json:"tool,omitempty"`

	Origin string `json:"origin,omitempty"`

	Started time.Time `json:"started,omitzero"`

	Anonymised bool `json:"anonymised"`

	Resources []Resource `json:"resources"`
}

// Frame is what a watch said once.
type Frame struct {
	Offset time.Duration

	Type watch.EventType

	Object []byte

	Resource Resource

	Break *Break

	Line int
}

// Reasons for a [Break].
const (
	// Reconnected: the watch ended and was resumed where it ended; nothing was
	// missed.
	Reconnected = "reconnected"
	// Relisted: the watch could not be resumed (410 Gone) and everything was
	// listed again. The frames after it, of the same resource, are the
	// difference to what was known before; what changed more than once in
	// between was seen once.
	Relisted = "relisted"
	// Unreadable: a part of the file could not be read.
	Unreadable = "unreadable"
	// Ended: the watch ended with an error that nobody followed up.
	Ended = "ended"
)

// Break says that a recording was interrupted, and what was missed.
type Break struct {
	Reason string `json:"reason"`

	Message string `json:"message,omitempty"`

	DownNs int64 `json:"downNs,omitempty"`

	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"`

	Added    int `json:"added,omitempty"`
	Modified int `json:"modified,omitempty"`
	Deleted  int `json:"deleted,omitempty"`
}

var (
	// ErrTruncated is wrapped by the error for a recording that ends in the
	// middle.
	ErrTruncated = errors.New("truncated")
	// ErrCorrupt is wrapped by the error for a recording that says what none
	// can say.
	ErrCorrupt = errors.New("corrupt")
	// ErrEmpty is wrapped by the error for a recording with no events.
	ErrEmpty = errors.New("empty")
	// ErrVersion is wrapped by the error for a trace of a later version of the
	// format.
	ErrVersion = errors.New("unknown version")
)

// Error is what is wrong with a recording, and where.
type Error struct {
	Name string

	Block int

	Line int

	Offset int64

	Err error
}

// Error returns one line such as
//
//	trace x.jsonl.gz: line 17 (byte 48213): truncated: unexpected end of gzip stream
//	trace x.wlt: block 3 (byte 48213): corrupt: the checksum does not match
func (e *Error) Error() string {
	place := fmt.Sprintf("line %d", e.Line)
	switch {
	case e.Block > 0 && e.Line > 0:
		place = fmt.Sprintf("block %d, line %d", e.Block, e.Line)
	case e.Block > 0:
		place = fmt.Sprintf("block %d", e.Block)
	}
	return fmt.Sprintf("trace %s: %s (byte %d): %s", printable(e.Name), place, e.Offset, printable(e.Err.Error()))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// printable keeps a message on one line, whatever the file or its name holds.
func printable(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

func truncated(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTruncated, fmt.Sprintf(format, args...))
}
