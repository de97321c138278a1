// Package trace reads and writes recorded watch streams and converts them to storms.
//
// A recording is a sequence of frames in order of arrival. A frame has an event of a watch and
// its time from the start of the recording. The object is as the API server sent it. The types
// are ADDED, MODIFIED, DELETED, BOOKMARK and ERROR. A bookmark with the annotation
// k8s.io/initial-events-end ends the initial list of its resource. A [Break] between frames is
// a gap in the recording.
//
// # Formats
//
// [Reader] detects the format by its first bytes, in a file or a pipe:
//
//   - A trace (*.wlt), this package's own format; see below.
//
//   - Recorded JSON lines, one frame each, plain or compressed by gzip or zstd:
//
//     {"offsetNs":30438098,"event":{"type":"ADDED","object":{"kind":"Pod",…}}}
//
//     offsetNs is the time of arrival in nanoseconds; it never decreases. A
//     line may name its "resource", such as "apps/v1/deployments"; without it, the
//     kind of the object decides. A line with a "break" instead of an "event" is a
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
// Version 2. A trace is a sequence of zstd frames with checksums, so zstd -d converts it to
// JSON lines. The first line is the [Header], the last one has the number of frames and marks
// a complete trace; the lines between are recorded JSON lines:
//
//	{"header":{"format":2,"anonymised":true,"resources":[…]}}
//	{"offsetNs":30438098,"resource":"v1/pods","event":{"type":"ADDED","object":{…}}}
//	{"end":1}
//
// Each zstd frame is a block of whole lines, about 1 MiB before compression. A trace is
// readable up to the last flushed block, even after a crash of the writer. Damage costs one
// block: the reader continues at the next one.
//
// # Use
//
//  1. [NewWriter] writes a trace, [NewLineWriter] the other formats.
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

// Version is the version of the trace format.
const Version = 2

// Resource is a resource of a recording.
type Resource struct {
	// Group is the API group; empty for the core group.
	Group string `json:"group,omitempty"`
	// Version is the API version.
	Version string `json:"version"`
	// Resource is the plural name, such as pods.
	Resource string `json:"resource"`
	// Kind is the kind of the objects.
	Kind string `json:"kind"`
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
	// Format is the version of the format.
	Format int `json:"format"`
	// Tool is the program that wrote the trace, with its version.
	Tool string `json:"tool,omitempty"`
	// Origin is free text: the cluster or file that the frames come from.
	Origin string `json:"origin,omitempty"`
	// Started is the start of the recording; zero if unknown.
	Started time.Time `json:"started,omitzero"`
	// Anonymised reports whether names and values were replaced.
	Anonymised bool `json:"anonymised"`
	// Resources are the resources that the writer knew at the start, the main one first.
	// [Reader.Header] appends the resources that it has found since.
	Resources []Resource `json:"resources"`
}

// Frame is one event of a watch, or a break.
type Frame struct {
	// Offset is the time of arrival, from the start of the recording.
	Offset time.Duration
	// Type is the type of the event; empty for a Break.
	Type watch.EventType
	// Object is the raw JSON as received. The caller owns it. It is nil for a Break.
	Object []byte
	// Resource is the resource of the watch; zero for a Break of all resources.
	Resource Resource
	// Break is set for a gap in the recording, else nil.
	Break *Break
	// Line is the line number in the file, from 1, without the lines of lost blocks. It is 0 for
	// a Break that the reader added.
	Line int
}

// Reasons for a [Break].
const (
	// Reconnected: the watch ended and resumed at the same version. No event is missing.
	Reconnected = "reconnected"
	// Relisted: the watch could not resume (410 Gone), so the recorder listed again. The next
	// frames of the resource are the differences from the state before the gap. Several
	// changes of an object in the gap become one frame.
	Relisted = "relisted"
	// Unreadable: a part of the file is damaged.
	Unreadable = "unreadable"
	// Ended: the watch ended with an error and did not resume.
	Ended = "ended"
)

// Break is a gap in a recording.
type Break struct {
	// Reason is one of the constants above.
	Reason string `json:"reason"`
	// Message has details.
	Message string `json:"message,omitempty"`
	// DownNs is the length of the gap in ns.
	DownNs int64 `json:"downNs,omitempty"`
	// From is the last resource version before the gap, Until the first one after it.
	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"`
	// Added, Modified and Deleted count the frames of the differences after a relist. Versions
	// within the gap are not counted.
	Added    int `json:"added,omitempty"`
	Modified int `json:"modified,omitempty"`
	Deleted  int `json:"deleted,omitempty"`
}

var (
	// ErrTruncated is wrapped by the error for a recording with a missing end.
	ErrTruncated = errors.New("truncated")
	// ErrCorrupt is wrapped by the error for a recording with invalid content.
	ErrCorrupt = errors.New("corrupt")
	// ErrEmpty is wrapped by the error for a recording without events.
	ErrEmpty = errors.New("empty")
	// ErrVersion is wrapped by the error for a trace of a later format version.
	ErrVersion = errors.New("unknown version")
)

// Error is the error of a recording, with its position.
type Error struct {
	// Name is the path of the recording, or the name of a built-in one.
	Name string
	// Line is the number of the unreadable line, from 1. A block has the number of its first.
	Line int
	// Offset is the start of the line's block in a file of zstd frames, and otherwise the
	// number of decompressed bytes before the line.
	Offset int64
	// Err is the cause. It wraps [ErrTruncated], [ErrCorrupt], [ErrEmpty] or [ErrVersion], or
	// is the error of the underlying reader.
	Err error
}

// Error returns one line such as
//
//	trace x.jsonl.gz: line 17 (byte 48213): truncated: unexpected end of gzip stream
//	trace x.wlt: line 3 (byte 48213): corrupt: the block is invalid: …
func (e *Error) Error() string { return fmt.Sprintf("trace %s: %s", printable(e.Name), e.message()) }

// message is the error without the file's name, which an anonymised trace must not contain.
func (e *Error) message() string {
	return fmt.Sprintf("line %d (byte %d): %s", e.Line, e.Offset, printable(e.Err.Error()))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// printable keeps a message on one line, whatever the file or its name contains.
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
