// Package trace reads and writes recorded watch streams and converts them to storms.
//
// A recording is a sequence of frames in order of arrival: the events of a watch,
// with the object as the API server sent it and the time from the start of the
// recording. The types are ADDED, MODIFIED, DELETED, BOOKMARK and ERROR. A bookmark
// with the annotation k8s.io/initial-events-end ends the initial list of its
// resource. A [Break] between frames is a gap in the recording.
//
// # Formats
//
// [Reader] detects the format by its first bytes, in a file or a pipe:
//
//   - A trace, this package's own format, which is described below: *.wlt.
//
//   - Recorded JSON lines, one frame each, plain or compressed by gzip or zstd:
//
//     {"offsetNs":30438098,"event":{"type":"ADDED","object":{"kind":"Pod",…}}}
//
//     offsetNs is the time of arrival in nanoseconds; it never decreases. A
//     line may name its "resource", such as "apps/v1/deployments"; without it, all
//     objects have one kind. A line with a "break" instead of an "event" is a
//     [Break].
//
//   - The raw output of a watch: kubectl get --watch -o json
//     --output-watch-events, or curl …?watch=1. It is a sequence of JSON
//     documents, on one line each or pretty-printed, plain or compressed:
//
//     {"type":"ADDED","object":{"kind":"Pod",…}}
//
//     It has no times; all frames are at 0.
//
// # The trace format
//
// Version 1. A trace is a sequence of zstd frames, so zstd -d converts it to recorded
// JSON lines. The data frames are the blocks. Each is compressed by itself and has
// about a MiB of whole lines, each with its resource. Between them are skippable
// frames, which zstd skips:
//
//	header   block head, block   block head, block   …   index
//
// A skippable frame has these parts; all numbers are little-endian:
//
//	magic    4 bytes  0x184D2A57
//	size     4 bytes  of the rest
//	tag      4 bytes  WLTh (header), WLTb (block head), WLTi (index)
//	JSON     …        [Header], block head, index
//	length   4 bytes  of the JSON
//	CRC-32C  4 bytes  of tag, JSON and length
//
// The block head has the block's compressed size and CRC-32C, its first and last
// time, its resources and its number, so a block can be skipped, checked and read
// without any other. The index has the offset and the times of each block; its
// length is at its end, so a file can be read from there. A pipe is read without it.
//
// A trace is readable up to the last flushed block, also after a crash of the
// writer. Damage costs the block that it is in: the reader continues at the next
// head.
//
// # Use
//
//  1. [Writer] writes a trace, [LineWriter] the other formats.
//  2. [Reader] reads the frames of any format. [Mender] repairs the sequence of
//     events of a cut or damaged recording.
//  3. [Load] converts a recording's main resource to a [storm.Storm], [LoadSet] all
//     resources to a [storm.Set]: of a file, or of a built-in recording (see
//     [Names]).
//  4. [Stats] measures a recording.
//
// Every error of a recording is an [*Error], which names the place.
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

// Version is the version of the trace format that [Writer] writes. [Reader] reads it
// and earlier ones.
const Version = 1

// Extension is the extension of files in the trace format.
const Extension = ".wlt"

// Resource is a resource of a recording.
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

// Header describes a trace.
type Header struct {
	Format     int        `json:"format"`
	Tool       string     `json:"tool,omitempty"`
	Origin     string     `json:"origin,omitempty"`
	Started    time.Time  `json:"started,omitzero"`
	Anonymised bool       `json:"anonymised"`
	Resources  []Resource `json:"resources"`
}

// Frame is one event of a watch, or a break.
type Frame struct {
	Offset   time.Duration
	Type     watch.EventType
	Object   []byte
	Resource Resource
	Break    *Break
	Line     int
}

// Reasons for a [Break].
const (
	// Reconnected: the watch ended and resumed at the same version, without a gap.
	Reconnected = "reconnected"
	// Relisted: the watch could not resume (410 Gone), so everything was listed
	// again. The next frames of the resource are the differences to the state
	// before; several changes of an object in the gap are one frame.
	Relisted = "relisted"
	// Unreadable: a part of the file is damaged.
	Unreadable = "unreadable"
	// Ended: the watch ended with an error and was not resumed.
	Ended = "ended"
)

// Break is a gap in a recording: its length, its resource versions, and the
// differences of the list after it.
type Break struct {
	Reason   string `json:"reason"`
	Message  string `json:"message,omitempty"`
	DownNs   int64  `json:"downNs,omitempty"`
	From     string `json:"from,omitempty"`
	Until    string `json:"until,omitempty"`
	Added    int    `json:"added,omitempty"`
	Modified int    `json:"modified,omitempty"`
	Deleted  int    `json:"deleted,omitempty"`
}

var (
	// ErrTruncated is wrapped by the error for a recording that ends in the
	// middle.
	ErrTruncated = errors.New("truncated")
	// ErrCorrupt is wrapped by the error for a recording with invalid content.
	ErrCorrupt = errors.New("corrupt")
	// ErrEmpty is wrapped by the error for a recording without events.
	ErrEmpty = errors.New("empty")
	// ErrVersion is wrapped by the error for a trace of a later version of the
	// format.
	ErrVersion = errors.New("unknown version")
)

// Error is an error of a recording, with its place.
type Error struct {
	Name   string
	Block  int
	Line   int
	Offset int64
	Err    error
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

// printable keeps a message on one line, whatever is in the file or its name.
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
