package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Formats of a [Reader].
const (
	TraceFormat = "trace" // trace format of this package
	LinesFormat = "lines" // recorded JSON lines
	WatchFormat = "watch" // raw output of a watch, without times
)

// Reader reads the frames of a recording. It buffers one line of at most 32 MiB. It is not safe for concurrent use.
type Reader struct {
	lines   *lines
	file    counter
	head    *Header       // nil for formats other than traces
	pending error         // error of head, which the first Next returns
	ended   bool          // no end of a trace must follow
	frames  int           // number of frames, from the end of a trace
	at      place         // position of the last frame
	last    time.Duration // its time
	onFault func(*Error)  // set by [Reader.Tolerate]
	seen    []Resource    // resources of the frames so far, in order

	maxSmall int64 // less in a test
}

// counter counts the bytes of a file and keeps its error.
type counter struct {
	io.Reader
	n   int64
	err error // nil at the end
}

func (c *counter) Read(p []byte) (n int, err error) {
	n, err = c.Reader.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// maxRatio limits the compression of a recording above maxSmall bytes. That of a storm is about 50:1.
const (
	maxRatio = 1000
	maxSmall = 256 << 20
)

// NewReader returns a reader of a recording. It detects the format from the first bytes.
// Errors contain name.
func NewReader(in io.Reader, name string) *Reader {
	r := &Reader{file: counter{Reader: in}, ended: true, maxSmall: maxSmall}
	r.lines = newLines(&r.file, name)
	if start, _ := r.lines.in.Peek(len(headStart)); string(start) == headStart {
		r.head, r.ended = &Header{}, false
		r.pending = r.header()
	}
	return r
}

func (r *Reader) header() error {
	raw, err := r.lines.next()
	if err != nil {
		return err
	}
	line := headLine{Header: r.head}
	if err := json.Unmarshal(raw.data, &line); err != nil {
		return raw.fail(corrupt("the header: %s", jsonFault(err)))
	}
	if r.head.Format < 1 || r.head.Format > Version {
		r.ended = true
		return r.lines.last(raw.place, fmt.Errorf("%w: the trace is of version %d, and this program reads up to %d", ErrVersion, r.head.Format, Version))
	}
	r.seen = slices.Clone(r.head.Resources)
	return nil
}

// isWatch reports whether the first object starts with a field of a watch event. It reads no
// more than necessary, because a pipe may have no more yet.
func isWatch(in *bufio.Reader) bool {
	for n := 64; ; n *= 2 {
		b, err := in.Peek(n)
		dec := json.NewDecoder(bytes.NewReader(b))
		open, _ := dec.Token()
		key, fault := dec.Token()
		switch {
		case fault == nil:
			return open == json.Delim('{') && (key == "type" || key == "object")
		case err != nil || n >= 4<<10 || open != nil && open != json.Delim('{'):
			return false
		}
	}
}

// Format returns the format of the recording.
func (r *Reader) Format() string {
	switch {
	case r.lines.watch:
		return WatchFormat
	case r.head != nil:
		return TraceFormat
	}
	return LinesFormat
}

// Compression returns the compression of the recording: gzip, zstd, or the empty string.
func (r *Reader) Compression() string { return r.lines.by }

// Header returns the header, with the resources found so far. For formats other than traces it
// has only the resources.
func (r *Reader) Header() Header {
	var h Header
	if r.head != nil {
		h = *r.head
	}
	h.Resources = slices.Clone(r.seen)
	return h
}

// Sizes returns the number of bytes read from the file so far, and the size of their lines.
func (r *Reader) Sizes() (file, lines int64) { return r.file.n, r.lines.pos.offset }

// Tolerate makes the reader call f for an error and continue with the next line or document; the
// rest of a damaged compression is lost. Next returns a [Break] with the reason [Unreadable] for each loss. Call Tolerate before Next.
func (r *Reader) Tolerate(f func(*Error)) { r.onFault = f }

// Next returns the next frame, and io.EOF after the last one. Every other error is an
// [*Error]; the next call continues after what cannot be read. Next checks that
//
//   - the stream is complete and checksums match,
//   - each line is a JSON object with an offset, a known type and an object,
//   - the object has an apiVersion and a kind, and a name unless it belongs to a
//     BOOKMARK or an ERROR (not checked in traces: their writer validates JSON),
//   - offsets are not negative and never decrease.
//
// It ignores unknown fields of the line.
func (r *Reader) Next() (Frame, error) {
	for {
		f, err := r.next()
		fault, bad := errors.AsType[*Error](err)
		if !bad {
			return f, err
		}
		r.ended = true // The end may be among the losses.
		if r.onFault == nil {
			return f, err
		}
		if r.onFault(fault); !errors.Is(fault, ErrEmpty) {
			return Frame{Offset: r.last, Break: &Break{Reason: Unreadable, Message: fault.message()}}, nil
		}
	}
}

func (r *Reader) next() (Frame, error) {
	if err := r.pending; err != nil {
		r.pending = nil
		return Frame{}, err
	}
	raw, err := r.lines.next()
	switch {
	case errors.Is(err, io.EOF) && !r.ended:
		return Frame{}, r.lines.last(r.lines.pos, truncated("the file ends without its last line"))
	case err != nil:
		return Frame{}, err
	}
	if file, lines := r.Sizes(); lines > r.maxSmall && lines/maxRatio > file {
		return Frame{}, r.lines.last(raw.place, corrupt("it decompresses to more than %d times its size", maxRatio))
	}
	f, err := r.parse(raw)
	switch {
	case errors.Is(err, io.EOF):
		return Frame{}, r.finish(raw)
	case err == nil && f.Offset < r.last:
		err = corrupt("offsetNs %d is before the line before it, %d", f.Offset, r.last)
	}
	if err != nil {
		return Frame{}, raw.fail(err)
	}
	r.at, r.last = raw.place, f.Offset
	if f.Resource != (Resource{}) && !slices.Contains(r.seen, f.Resource) && len(r.seen) < maxResources {
		r.seen = append(r.seen, f.Resource)
	}
	return f, nil
}

const maxResources = 1 << 10 // limits the resources that a reader remembers

// finish checks that a trace is complete, and that nothing follows its last line.
func (r *Reader) finish(end rawLine) error {
	if frames := end.line - 2; !r.ended && frames != r.frames {
		return r.lines.last(end.place, corrupt("the trace has %d of its %d frames", frames, r.frames))
	}
	r.ended = true
	more, err := r.lines.next()
	if err == nil {
		err = r.lines.last(more.place, corrupt("something follows the end of the trace (trace convert merges two)"))
	}
	return err
}

// resource returns the resource of a line. A line without a resource gets the one of its
// object's kind. A Status, the object of an ERROR, has no resource.
func (r *Reader) resource(named Resource, h head) Resource {
	if h.Kind == "Status" && h.APIVersion == "v1" {
		for _, res := range r.seen {
			if named == (Resource{}) || res.GVR() == named.GVR() {
				return res
			}
		}
	}
	if named != (Resource{}) {
		named.Kind = h.Kind
		return named
	}
	return ResourceOf(schema.FromAPIVersionAndKind(h.APIVersion, h.Kind))
}

// ResourceOf derives the resource from the name of a kind. It is correct for all built-in
// kinds of Kubernetes.
func ResourceOf(kind schema.GroupVersionKind) Resource {
	gvr, _ := meta.UnsafeGuessKindToResource(kind)
	return Resource{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Kind: kind.Kind}
}

// head has the fields that identify an object.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

func (h head) check(t watch.EventType) error {
	switch {
	case h.Kind == "":
		return corrupt("the object has no kind")
	case h.APIVersion == "":
		return corrupt("the object has no apiVersion")
	case schema.FromAPIVersionAndKind(h.APIVersion, h.Kind).Version == "":
		return corrupt("the object's apiVersion %q is invalid", h.APIVersion)
	case !ResourceOf(schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)).plain():
		return corrupt("the object's apiVersion %q and kind %q are no names", h.APIVersion, h.Kind)
	case h.Metadata.Name == "" && t != watch.Bookmark && t != watch.Error:
		return corrupt("the object has no name")
	}
	return nil
}

// endsInitial reports whether the object is from the bookmark that ends the initial list.
func (h head) endsInitial() bool {
	return h.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

func headOf(object []byte) (head, error) {
	var h head
	if err := json.Unmarshal(object, &h); err != nil {
		return head{}, corrupt("the object is no Kubernetes object: %s", jsonFault(err))
	}
	return h, nil
}

type event struct {
	Type   *string         `json:"type"`
	Object json.RawMessage `json:"object"`
}

type headLine struct {
	Header *Header `json:"header"`
}

// parse parses a line. It returns io.EOF for the last line of a trace.
func (r *Reader) parse(raw rawLine) (Frame, error) {
	var line struct {
		OffsetNs *int64 `json:"offsetNs"`
		Resource string `json:"resource"`
		Kind     string `json:"kind"`
		Event    *event `json:"event"`
		Break    *Break `json:"break"`
		End      *int   `json:"end"`
	}
	fail := func(format string, args ...any) (Frame, error) { return Frame{}, corrupt(format, args...) }
	if len(bytes.TrimSpace(raw.data)) == 0 {
		return fail("the line is blank")
	}
	if r.lines.watch {
		var ev event
		if err := json.Unmarshal(raw.data, &ev); err != nil {
			return fail("not a watch's event in JSON: %s", jsonFault(err))
		}
		line.Event, line.OffsetNs = &ev, new(int64)
	} else if err := json.Unmarshal(raw.data, &line); err != nil {
		return fail("not a frame in JSON: %s", jsonFault(err))
	}
	switch {
	case line.End != nil:
		r.frames = *line.End
		return Frame{}, io.EOF
	case line.OffsetNs == nil:
		return fail("no offsetNs")
	case *line.OffsetNs < 0:
		return fail("offsetNs %d is negative", *line.OffsetNs)
	}
	f := Frame{Offset: time.Duration(*line.OffsetNs), Line: raw.line}
	if line.Resource != "" {
		var ok bool
		if f.Resource, ok = parseResource(line.Resource, line.Kind); !ok {
			return fail("resource %q (want version/resource or group/version/resource)", line.Resource)
		}
	}
	if line.Break != nil && line.Event == nil {
		f.Break = line.Break
		return f, nil
	}
	switch {
	case line.Event == nil:
		return fail("no event")
	case line.Event.Type == nil:
		return fail("the event has no type")
	}
	f.Type, f.Object = watch.EventType(*line.Event.Type), line.Event.Object
	if !knownType(f.Type) {
		return fail("event type %q (allowed: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)", f.Type)
	}
	if len(f.Object) == 0 || bytes.Equal(f.Object, []byte("null")) {
		return fail("the event has no object")
	}
	// The writer of a trace has checked the object. The checksum of a block comes at its end, so a tolerant reader checks
	// what stands before damage.
	if r.head != nil && r.onFault == nil && f.Resource != (Resource{}) {
		if i := slices.IndexFunc(r.seen, func(of Resource) bool { return of.GVR() == f.Resource.GVR() }); i >= 0 {
			f.Resource = r.seen[i]
			return f, nil
		}
	}
	h, err := headOf(f.Object)
	if err == nil {
		err = h.check(f.Type)
	}
	if err != nil {
		return Frame{}, err
	}
	if f.Resource.Kind == "" {
		f.Resource = r.resource(f.Resource, h)
	}
	if r.lines.watch && bytes.IndexByte(f.Object, '\n') >= 0 {
		var compact bytes.Buffer
		if json.Compact(&compact, f.Object) == nil {
			f.Object = compact.Bytes()
		}
	}
	return f, nil
}

// parseResource parses the format of [Resource.String].
func parseResource(s, kind string) (Resource, bool) {
	parts := strings.Split(s, "/")
	if len(parts) == 2 {
		parts = slices.Insert(parts, 0, "")
	}
	if len(parts) != 3 {
		return Resource{}, false
	}
	r := Resource{Group: parts[0], Version: parts[1], Resource: parts[2], Kind: kind}
	return r, r.plain() && r.Version != "" && r.Resource != ""
}

// jsonFault returns an error of package json without the Go type names.
func jsonFault(err error) string {
	switch wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); {
	case !ok:
		return err.Error()
	case wrong.Field == "":
		return wrong.Value + " in place of an object"
	default:
		return fmt.Sprintf("field %s cannot be a %s", wrong.Field, wrong.Value)
	}
}
