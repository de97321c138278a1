// Package trace reads and writes recorded watch streams and converts them to storms.
//
// A recording is a sequence of frames in order of arrival. A frame has an event of a watch and
// its time from the start of the recording. The object is that of the API server. The types
// are ADDED, MODIFIED, DELETED, BOOKMARK and ERROR. A bookmark with the annotation
// k8s.io/initial-events-end ends the initial list of its resource. A [Break] between frames is
// a gap in the recording.
//
// # Formats
//
// [Reader] detects the format by its first bytes, in a file or a pipe:
//
//   - A trace (*.jsonl.zst), this package's own format; see below.
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
// Version 2. A trace is a sequence of zstd frames with checksums, so zstdcat converts it to
// JSON lines. The first line is the [Header], the last one has the number of frames and marks
// a complete trace; the lines between are recorded JSON lines:
//
//	{"header":{"format":2,"anonymised":true,"resources":[…]}}
//	{"offsetNs":30438098,"resource":"v1/pods","event":{"type":"ADDED","object":{…}}}
//	{"end":1}
//
// Each zstd frame is a block of whole lines, about 1 MiB before compression. A trace is
// readable up to the last flushed block, even after a crash of the writer, and up to damage.
//
// # Use
//
//  1. [NewWriter] writes a trace, [NewLineWriter] JSON lines.
//  2. [Reader] reads the frames of any format. [Mender] repairs the sequence of
//     events of a cut or damaged recording.
//  3. [Load] converts a recording's main resource to a [storm.Storm], [LoadSet] all
//     resources to a [storm.Set]: of a file, or of a built-in recording (see
//     [Names]).
//  4. [Convert] cuts, merges and repairs recordings, [Inspect] measures one.
//
// Every error of a recording is an [*Error], which names the place.
package trace

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Version is the version of the trace format.
const Version = 2

// Resource is a resource of a recording.
type Resource struct {
	Group    string `json:"group,omitempty"` // API group; empty for the core group
	Version  string `json:"version"`         // API version
	Resource string `json:"resource"`        // plural name, such as pods
	Kind     string `json:"kind"`            // kind of the objects
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
	Format     int       `json:"format"`           // version of the format
	Tool       string    `json:"tool,omitempty"`   // program that wrote the trace, with its version
	Origin     string    `json:"origin,omitempty"` // cluster or file that the frames come from
	Started    time.Time `json:"started,omitzero"` // start of the recording; zero if unknown
	Anonymised bool      `json:"anonymised"`       // names and values were replaced
	// Resources has the writer's, the main one first, and what [Reader.Header] has found since.
	Resources []Resource `json:"resources"`
}

// Frame is one event of a watch, or a break.
type Frame struct {
	Offset   time.Duration   // time of arrival, from the start of the recording
	Type     watch.EventType // type of the event; empty for a Break
	Object   []byte          // JSON, owned by the caller; nil for a Break
	Resource Resource        // resource of the watch; zero for a Break of all resources
	Break    *Break          // set for a gap in the recording, else nil
	Line     int             // in the file, from 1; 0 for the reader's own Break
}

// Reasons for a [Break].
const (
	Reconnected = "reconnected" // the watch ended and resumed at the same version; no event is missing
	// Relisted: the watch could not resume (410 Gone), so the recorder listed again. The next
	// frames are the differences from the state before the gap, one per object.
	Relisted   = "relisted"
	Unreadable = "unreadable" // a part of the file is damaged
	Ended      = "ended"      // the watch ended with an error and did not resume
)

// Break is a gap in a recording.
type Break struct {
	Reason  string `json:"reason"`            // one of the constants above
	Message string `json:"message,omitempty"` // details
	DownNs  int64  `json:"downNs,omitempty"`  // length of the gap in ns
	From    string `json:"from,omitempty"`    // last resource version before the gap
	Until   string `json:"until,omitempty"`   // first one after it
	// Added, Modified and Deleted count the differences after a relist, not the versions between.
	Added    int `json:"added,omitempty"`
	Modified int `json:"modified,omitempty"`
	Deleted  int `json:"deleted,omitempty"`
}

var (
	ErrTruncated = errors.New("truncated")       // wrapped for a recording with a missing end
	ErrCorrupt   = errors.New("corrupt")         // wrapped for a recording with invalid content
	ErrEmpty     = errors.New("empty")           // wrapped for a recording without events
	ErrVersion   = errors.New("unknown version") // wrapped for a trace of a later version
)

// Error is the error of a recording, with its position.
type Error struct {
	Name   string // path of the recording, or the name of a built-in one
	Line   int    // number of the unreadable line, from 1
	Offset int64  // decompressed bytes before the line
	Err    error  // wraps [ErrTruncated], [ErrCorrupt], [ErrEmpty] or [ErrVersion], or is the reader's
}

// Error returns one line such as
//
//	trace x.jsonl.gz: line 17 (byte 48213): truncated: unexpected end of gzip stream
//	trace x.jsonl.zst: line 3 (byte 48213): corrupt: the zstd data is invalid: …
func (e *Error) Error() string {
	return fmt.Sprintf("trace %s: %s", storm.Printable(e.Name), e.message())
}

// message is the error without the file's name, which an anonymised trace must not contain.
func (e *Error) message() string {
	return fmt.Sprintf("line %d (byte %d): %s", e.Line, e.Offset, storm.Printable(e.Err.Error()))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

func truncated(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTruncated, fmt.Sprintf(format, args...))
}
