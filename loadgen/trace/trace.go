// Package trace reads recorded watch streams and makes storms of them.
//
// A recording is a file of JSON lines, gzip or plain, one line for each frame
// of a watch in order of arrival, with the object as the API server sent it:
//
//	{"offsetNs":30438098,"event":{"type":"ADDED","object":{"kind":"Pod",…}}}
//
// offsetNs is the time of arrival in nanoseconds from the start of the
// recording; it never decreases. The types are the watch's: ADDED, MODIFIED,
// DELETED, BOOKMARK and ERROR. A bookmark annotated
// k8s.io/initial-events-end ends the initial list.
//
// [Reader] streams the frames of a file and checks each; [Load] makes a
// [storm.Storm] of a whole recording, from a file or from one of those that are
// built in (see [Names]). Whatever is wrong with a recording is an [*Error]
// that names the line.
package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Frame is one line of a recording.
type Frame struct {
	// Offset is the time of arrival, from the start of the recording.
	Offset time.Duration
	// Type of the event.
	Type watch.EventType
	// Object as it was sent: raw JSON. It is the caller's.
	Object []byte
	// Line number in the file, from 1.
	Line int
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
)

// Error is what is wrong with a recording, and where.
type Error struct {
	// Name of the recording: its path, or its name where it is built in.
	Name string
	// Line is the number of the line that could not be read, from 1.
	Line int
	// Offset is where that line starts: the number of decompressed bytes
	// before it.
	Offset int64
	// Err is the cause. It wraps [ErrTruncated], [ErrCorrupt] or [ErrEmpty],
	// or is the error of the underlying reader.
	Err error
}

// Error returns one line such as
//
//	trace x.jsonl.gz: line 17 (byte 48213): truncated: unexpected end of gzip stream
func (e *Error) Error() string {
	return fmt.Sprintf("trace %s: line %d (byte %d): %s", printable(e.Name), e.Line, e.Offset, printable(e.Err.Error()))
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
