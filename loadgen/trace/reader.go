package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Formats of a [Reader].
const (
	// TraceFormat is the trace format of this package.
	TraceFormat = "trace"
	// LinesFormat is recorded JSON lines.
	LinesFormat = "lines"
	// WatchFormat is the raw output of a watch, without times.
	WatchFormat = "watch"
)

// Reader reads the frames of a recording. It buffers one line of at most 32 MiB, or one block
// of about 1 MiB. It is not safe for concurrent use.
type Reader struct {
	name   string
	format string
	packed *packed // nil for a trace
	blocks *blocks // nil for other formats
	cut    cutter
	// at is the position of the last frame, last its time.
	at   place
	last time.Duration
	err  error
	// onFault is the function of [Reader.Tolerate]. lost is the skipped error that Next
	// returns as a Break.
	onFault func(*Error)
	lost    *Error
	// seen has the resources of the frames so far, in order.
	seen []Resource
}

// NewReader returns a reader of a recording. It detects the format from the first bytes.
// Errors contain name.
func NewReader(r io.Reader, name string) *Reader {
	t := tape{in: r}
	front, _ := t.peek(frontSize + tagSize)
	if tag, _, ok := chunkFront(front); ok && tag == tagHeader {
		b := newBlocks(t, name)
		return &Reader{name: name, format: TraceFormat, blocks: b, cut: b, seen: slices.Clone(b.head.Resources)}
	}
	if t.err != nil {
		r = failing{t.err}
	}
	p := unpack(bufio.NewReaderSize(io.MultiReader(bytes.NewReader(t.buf), r), 64<<10))
	if isWatch(p.in) {
		return &Reader{name: name, format: WatchFormat, packed: p, cut: newLines(p, name, watchForm)}
	}
	return &Reader{name: name, format: LinesFormat, packed: p, cut: newLines(p, name, recordedForm)}
}

// failing is a reader that always returns its error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// isWatch reports whether the first object starts with a field of a watch event.
func isWatch(in *bufio.Reader) bool {
	const look = 4 << 10
	for n := 64; ; n *= 2 {
		b, err := in.Peek(n)
		b = bytes.TrimLeft(b, " \t\r\n\x1e")
		if len(b) > 0 && b[0] != '{' {
			return false
		}
		if len(b) > 0 {
			b = bytes.TrimLeft(b[1:], " \t\r\n")
			for _, key := range []string{`"type"`, `"object"`} {
				if bytes.HasPrefix(b, []byte(key)) {
					return true
				}
			}
			if len(b) >= len(`"object"`) {
				return false
			}
		}
		if err != nil || n >= look {
			return false
		}
	}
}

// Format returns the format of the recording.
func (r *Reader) Format() string { return r.format }

// Compression returns the compression of a recording in a format other than a trace: gzip,
// zstd, or the empty string.
func (r *Reader) Compression() string {
	if r.packed == nil {
		return uncompressed
	}
	return r.packed.by
}

// Header returns the header, with the resources found so far. For formats other than traces it
// has only the resources.
func (r *Reader) Header() Header {
	var h Header
	if r.blocks != nil {
		h = r.blocks.head
	}
	h.Resources = slices.Clone(r.seen)
	return h
}

// Blocks returns the number of blocks read so far, their compressed bytes in the file, and the
// bytes of their lines.
func (r *Reader) Blocks() (blocks int, stored, text int64) {
	if r.blocks == nil {
		return 0, 0, 0
	}
	return r.blocks.stored, r.blocks.packedBytes, r.blocks.textBytes
}

// Tolerate makes the reader call f for an error and continue with the next line, document or
// block. Next returns a [Break] with the reason [Unreadable] for each loss. Call Tolerate
// before Next.
func (r *Reader) Tolerate(f func(*Error)) { r.onFault = f }

// Next returns the next frame, and io.EOF after the last one. Every other error is an
// [*Error]; all later calls return it again. Next checks that
//
//   - the stream is complete and checksums match,
//   - each line is a JSON object with an offset, a known type and an object,
//   - the object has an apiVersion and a kind, and a name unless it belongs to a
//     BOOKMARK or an ERROR (not checked in traces: their writer validates JSON),
//   - offsets are not negative and never decrease.
//
// It ignores unknown fields of the line.
func (r *Reader) Next() (Frame, error) {
	if r.err != nil {
		return Frame{}, r.err
	}
	if lost := r.lost; lost != nil {
		r.lost = nil
		return Frame{Offset: r.last, Break: &Break{Reason: Unreadable, Message: lost.message()}}, nil
	}
	f, err := r.next()
	var fault *Error
	switch {
	case err == nil:
		return f, nil
	case r.onFault == nil || !errors.As(err, &fault):
		r.err = err
		return Frame{}, err
	}
	r.onFault(fault)
	if !errors.Is(fault, ErrEmpty) {
		r.lost = fault
	}
	return r.Next()
}

// next returns the next frame, io.EOF or an *Error. After an *Error it can be called again.
func (r *Reader) next() (Frame, error) {
	raw, err := r.cut.next()
	if err != nil {
		return Frame{}, err
	}
	f, head, err := parse(raw)
	if err == nil && f.Break == nil && raw.form != blockForm {
		if err = head.check(f.Type); err == nil && f.Resource.Kind == "" {
			f.Resource = r.resource(f.Resource, head)
		}
	}
	if err == nil && f.Offset < r.last {
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
		UID             string            `json:"uid"`
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
	case h.Metadata.Name == "" && t != watch.Bookmark && t != watch.Error:
		return corrupt("the object has no name")
	}
	return nil
}

// endsInitial reports whether the object is from the bookmark that ends the initial list.
func (h head) endsInitial() bool {
	return h.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// headOf reads the head of an object.
func headOf(object []byte) (head, error) {
	var h head
	if err := json.Unmarshal(object, &h); err != nil {
		return head{}, corrupt("the object is no Kubernetes object: %s", jsonFault(err))
	}
	return h, nil
}

// event is an event of a watch.
type event struct {
	Type   *string         `json:"type"`
	Object json.RawMessage `json:"object"`
}

// parse parses a line. It returns no head for a line in blockForm.
func parse(raw rawLine) (Frame, head, error) {
	fail := func(err error) (Frame, head, error) { return Frame{}, head{}, err }
	if raw.form == blockForm {
		if f, ok := parseBlockLine(raw); ok {
			return f, head{}, nil
		}
	}
	var line struct {
		OffsetNs *int64 `json:"offsetNs"`
		Resource string `json:"resource"`
		Kind     string `json:"kind"`
		Event    *event `json:"event"`
		Break    *Break `json:"break"`
	}
	if len(bytes.TrimSpace(raw.data)) == 0 {
		return fail(corrupt("the line is blank"))
	}
	if raw.form == watchForm {
		var ev event
		if err := json.Unmarshal(raw.data, &ev); err != nil {
			return fail(corrupt("not a watch's event in JSON: %s", jsonFault(err)))
		}
		line.Event, line.OffsetNs = &ev, new(int64)
	} else if err := json.Unmarshal(raw.data, &line); err != nil {
		return fail(corrupt("not a frame in JSON: %s", jsonFault(err)))
	}
	switch {
	case line.OffsetNs == nil:
		return fail(corrupt("no offsetNs"))
	case *line.OffsetNs < 0:
		return fail(corrupt("offsetNs %d is negative", *line.OffsetNs))
	}
	f := Frame{Offset: time.Duration(*line.OffsetNs), Line: raw.line}
	if line.Resource != "" {
		var ok bool
		if f.Resource, ok = parseResource(line.Resource, line.Kind); !ok {
			return fail(corrupt("resource %q (want version/resource or group/version/resource)", line.Resource))
		}
	}
	if raw.form == blockForm {
		known, ok := inBlock(raw, line.Resource)
		if !ok {
			return fail(corrupt("resource %q is not in the block's head", line.Resource))
		}
		f.Resource = known
	}
	if line.Break != nil && line.Event == nil {
		f.Break = line.Break
		return f, head{}, nil
	}
	switch {
	case line.Event == nil:
		return fail(corrupt("no event"))
	case line.Event.Type == nil:
		return fail(corrupt("the event has no type"))
	}
	f.Type, f.Object = watch.EventType(*line.Event.Type), line.Event.Object
	if !knownType(f.Type) {
		return fail(corrupt("event type %q (allowed: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)", f.Type))
	}
	if len(f.Object) == 0 || bytes.Equal(f.Object, []byte("null")) {
		return fail(corrupt("the event has no object"))
	}
	if raw.form == blockForm {
		return f, head{}, nil
	}
	h, err := headOf(f.Object)
	if err != nil {
		return fail(err)
	}
	if raw.form == watchForm && bytes.IndexByte(f.Object, '\n') >= 0 {
		var compact bytes.Buffer
		if json.Compact(&compact, f.Object) == nil {
			f.Object = compact.Bytes()
		}
	}
	return f, h, nil
}

// parseBlockLine parses a line of [appendLine] without parsing the object's JSON. ok is false
// for any other line.
func parseBlockLine(raw rawLine) (f Frame, ok bool) {
	offset, rest, ok := between(raw.data, lineOffset, ',')
	if !ok {
		return f, false
	}
	n, err := strconv.ParseInt(string(offset), 10, 64)
	if err != nil || n < 0 {
		return f, false
	}
	name, rest, ok := between(rest, lineResource+`"`, '"')
	if !ok {
		return f, false
	}
	resource, ok := inBlock(raw, string(name))
	if !ok || len(rest) == 0 {
		return f, false
	}
	typ, rest, ok := between(rest[1:], lineEvent, '"')
	if !ok || !knownType(watch.EventType(typ)) {
		return f, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(lineObject)); !ok {
		return f, false
	}
	if rest, ok = bytes.CutSuffix(rest, []byte(lineEnd)); !ok || len(rest) < 2 || rest[0] != '{' {
		return f, false
	}
	return Frame{Offset: time.Duration(n), Type: watch.EventType(typ), Object: bytes.Clone(rest), Resource: resource, Line: raw.line}, true
}

// between returns the bytes of s between a prefix and the next end byte, and the rest from
// that byte on.
func between(s []byte, prefix string, end byte) (part, rest []byte, ok bool) {
	if s, ok = bytes.CutPrefix(s, []byte(prefix)); !ok {
		return nil, nil, false
	}
	i := bytes.IndexByte(s, end)
	if i <= 0 {
		return nil, nil, false
	}
	return s[:i], s[i:], true
}

// inBlock finds a resource of the block; a Break may have none.
func inBlock(raw rawLine, name string) (Resource, bool) {
	if name == "" {
		return Resource{}, true
	}
	for _, r := range raw.resources {
		if s, ok := strings.CutSuffix(name, r.Resource); ok && strings.HasSuffix(s, "/") && r.String() == name {
			return r, true
		}
	}
	return Resource{}, false
}

// parseResource parses the format of [Resource.String].
func parseResource(s, kind string) (Resource, bool) {
	parts := strings.Split(s, "/")
	r := Resource{Kind: kind}
	switch len(parts) {
	case 2:
		r.Version, r.Resource = parts[0], parts[1]
	case 3:
		r.Group, r.Version, r.Resource = parts[0], parts[1], parts[2]
	default:
		return Resource{}, false
	}
	for _, p := range append(parts, kind) {
		if !plain(p) {
			return Resource{}, false
		}
	}
	return r, r.Version != "" && r.Resource != ""
}

// jsonFault returns an error of package json without the Go type names.
func jsonFault(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	if wrong.Field == "" {
		return wrong.Value + " in place of an object"
	}
	return fmt.Sprintf("field %s cannot be a %s", wrong.Field, wrong.Value)
}
