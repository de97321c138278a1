package trace

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// maxLine bounds the memory that one line can take. The API server refuses
// objects of more than about 3 MB, etcd of more than 1.5 MB.
const maxLine = 32 << 20

// lines cuts a stream, gzip or plain, into lines.
type lines struct {
	name string
	in   *bufio.Reader
	gzip bool
	// err is what opening the stream gave; it belongs to the first line.
	err error
	// line and offset are those of the line that next will read.
	line   int
	offset int64
}

func newLines(r io.Reader, name string) *lines {
	l := &lines{name: name, line: 1, in: bufio.NewReaderSize(r, 64<<10)}
	if magic, err := l.in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		l.gzip = true
		z, err := gzip.NewReader(l.in)
		if err != nil {
			l.err = l.cause(err)
			return l
		}
		l.in = bufio.NewReaderSize(z, 64<<10)
	}
	return l
}

// rawLine is one line without its newline.
type rawLine struct {
	data   []byte
	line   int
	offset int64
}

// next returns the next line, in memory of its own; io.EOF after the last.
func (l *lines) next() (rawLine, error) {
	if l.err != nil {
		return rawLine{}, l.fail(l.err)
	}
	var data []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(data)+len(part) > maxLine {
			return rawLine{}, l.fail(corrupt("a line of more than %d bytes", maxLine))
		}
		data = append(data, part...)
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			switch {
			case len(data) == 0 && l.line == 1:
				return rawLine{}, l.fail(fmt.Errorf("%w: the file holds nothing", ErrEmpty))
			case len(data) == 0:
				return rawLine{}, io.EOF
			case !json.Valid(data):
				return rawLine{}, l.fail(truncated("the file ends in the middle of the line"))
			}
		default:
			return rawLine{}, l.fail(l.cause(err))
		}
		break
	}
	raw := rawLine{data: bytes.TrimSuffix(data, []byte("\n")), line: l.line, offset: l.offset}
	l.line++
	l.offset += int64(len(data))
	return raw, nil
}

// fail keeps the first error, so that every later call gives it again.
func (l *lines) fail(cause error) error {
	l.err = cause
	return &Error{Name: l.name, Line: l.line, Offset: l.offset, Err: cause}
}

// cause puts an error of the reader below into the words of the recording.
func (l *lines) cause(err error) error {
	var broken flate.CorruptInputError
	switch {
	case !l.gzip:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return truncated("unexpected end of gzip stream")
	case errors.Is(err, gzip.ErrChecksum):
		return corrupt("the gzip checksum does not match")
	case errors.Is(err, gzip.ErrHeader):
		return corrupt("the gzip header is invalid")
	case errors.As(err, &broken):
		return corrupt("the gzip data is invalid at compressed byte %d", int64(broken))
	default:
		return err
	}
}

// Reader streams the frames of a recording. It holds one line at a time, of at
// most 32 MiB. It is for one goroutine.
type Reader struct {
	lines *lines
	last  time.Duration
	err   error
}

// NewReader returns a reader of a recording, gzip or plain, which it tells by
// the first bytes. The name is for errors.
func NewReader(r io.Reader, name string) *Reader {
	return &Reader{lines: newLines(r, name)}
}

// Next returns the next frame, and io.EOF after the last one. Every other
// error is an [*Error]; it ends the stream, and each later call returns it
// again. What is checked:
//
//   - The stream is whole: the gzip checksum is right, no line is cut short.
//   - Each line is a JSON object with an offset, a known type and an object.
//   - The object has an apiVersion and a kind, and a name unless it comes with
//     a BOOKMARK or an ERROR.
//   - Offsets are not negative and never decrease.
//
// Keys of the line that are not known are ignored.
func (r *Reader) Next() (Frame, error) {
	if r.err != nil {
		return Frame{}, r.err
	}
	f, err := r.next()
	r.err = err
	return f, err
}

func (r *Reader) next() (Frame, error) {
	raw, err := r.lines.next()
	if err != nil {
		return Frame{}, err
	}
	f, head, err := parse(raw)
	if err == nil {
		err = head.check(f.Type)
	}
	if err == nil {
		err = inOrder(r.last, f.Offset)
	}
	if err != nil {
		return Frame{}, raw.fail(r.lines.name, err)
	}
	r.last = f.Offset
	return f, nil
}

func (l rawLine) fail(name string, cause error) error {
	return &Error{Name: name, Line: l.line, Offset: l.offset, Err: cause}
}

func inOrder(last, offset time.Duration) error {
	if offset < last {
		return corrupt("offsetNs %d is before the line before it, %d", offset, last)
	}
	return nil
}

// head is what every object says of itself.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

func (h head) check(t watch.EventType) error {
	switch {
	case h.Kind == "":
		return corrupt("the object has no kind")
	case h.APIVersion == "":
		return corrupt("the object has no apiVersion")
	case h.Metadata.Name == "" && t != watch.Bookmark && t != watch.Error:
		return corrupt("the object has no name")
	}
	return nil
}

// parse takes a line apart.
func parse(raw rawLine) (Frame, head, error) {
	fail := func(err error) (Frame, head, error) { return Frame{}, head{}, err }
	var line struct {
		OffsetNs *int64 `json:"offsetNs"`
		Event    *struct {
			Type   *string         `json:"type"`
			Object json.RawMessage `json:"object"`
		} `json:"event"`
	}
	if len(bytes.TrimSpace(raw.data)) == 0 {
		return fail(corrupt("the line is blank"))
	}
	if err := json.Unmarshal(raw.data, &line); err != nil {
		return fail(corrupt("not a frame in JSON: %s", jsonFault(err)))
	}
	switch {
	case line.OffsetNs == nil:
		return fail(corrupt("no offsetNs"))
	case *line.OffsetNs < 0:
		return fail(corrupt("offsetNs %d is negative", *line.OffsetNs))
	case line.Event == nil:
		return fail(corrupt("no event"))
	case line.Event.Type == nil:
		return fail(corrupt("the event has no type"))
	}
	f := Frame{
		Offset: time.Duration(*line.OffsetNs),
		Type:   watch.EventType(*line.Event.Type),
		Object: line.Event.Object,
		Line:   raw.line,
	}
	switch f.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return fail(corrupt("event type %q (allowed: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)", f.Type))
	}
	if len(f.Object) == 0 || bytes.Equal(f.Object, []byte("null")) {
		return fail(corrupt("the event has no object"))
	}
	var h head
	if err := json.Unmarshal(f.Object, &h); err != nil {
		return fail(corrupt("the object is no Kubernetes object: %s", jsonFault(err)))
	}
	return f, h, nil
}

// jsonFault says what is wrong with JSON in its own terms: the json package
// would print the Go type that it was to be read into.
func jsonFault(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	if wrong.Field == "" {
		return wrong.Value + " in place of an object"
	}
	return "field " + wrong.Field + " cannot be a " + wrong.Value
}
