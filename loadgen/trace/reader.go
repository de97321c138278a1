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

// Formats that a [Reader] reads.
const (
	// TraceFormat is this package's own.
	TraceFormat = "trace"
	// LinesFormat is recorded JSON lines.
	LinesFormat = "lines"
	// WatchFormat is what a watch says, without times.
	WatchFormat = "watch"
)

// Reader streams the frames of a recording. It holds one line at a time, of at
// most 32 MiB, or one block of about a MiB. It is for one goroutine.
type Reader struct {
	name   string
	format string
	packed *packed
	blocks *blocks
	cut    cutter
	last   time.Duration
	err    error

	onFault func(*Error)
	lost    *Error
	ended   bool

	seen  []Resource
	kinds map[schema.GroupVersionKind]Resource
}

// NewReader returns a reader of a recording, whose format it tells by the first
// bytes. The name is for errors.
func NewReader(r io.Reader, name string) *Reader {
	out := &Reader{name: name, kinds: map[schema.GroupVersionKind]Resource{}}
	t := tape{in: r}
	front, _ := t.peek(frontSize + tagSize)
	if tag, _, ok := chunkFront(front); ok && tag == tagHeader {
		out.format = TraceFormat
		out.blocks = newBlocks(t, name)
		out.cut = out.blocks
		out.seen = slices.Clone(out.blocks.head.Resources)
		return out
	}
	var rest io.Reader = bytes.NewReader(t.buf)
	if t.err == nil {
		rest = io.MultiReader(rest, r)
	} else if !errors.Is(t.err, io.EOF) {
		rest = io.MultiReader(rest, failing{t.err})
	}
	out.packed = unpack(bufio.NewReaderSize(rest, 64<<10))
	if isWatch(out.packed.in) {
		out.format = WatchFormat
		out.cut = newDocuments(out.packed, name)
		return out
	}
	out.format = LinesFormat
	out.cut = newLines(out.packed, name)
	return out
}

// failing is a reader that has failed already.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// isWatch reports whether the first thing in the first object is what a watch
// begins with.
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

// Format returns the format of the recording: one of those above.
func (r *Reader) Format() string { return r.format }

// Compression returns how a recording that is no trace is compressed: gzip,
// zstd, or nothing.
func (r *Reader) Compression() string {
	if r.packed == nil {
		return uncompressed
	}
	return r.packed.by
}

// Header returns what the recording says of itself, with the resources that
// were met so far. Of what is no trace that is all that it says.
func (r *Reader) Header() Header {
	var h Header
	if r.blocks != nil {
		h = r.blocks.head
	}
	h.Resources = slices.Clone(r.seen)
	return h
}

// Blocks returns how many blocks of a trace were read, how many bytes they take
// in the file and how many their lines have.
func (r *Reader) Blocks() (blocks int, stored, text int64) {
	if r.blocks == nil {
		return 0, 0, 0
	}
	return r.blocks.stored, r.blocks.packedBytes, r.blocks.textBytes
}

// Tolerate makes the reader tell f what it can't read, and go on with what
// comes after: the next line, document or block. Where something was lost, Next
// returns a [Break] that is [Unreadable]. It must be called before Next.
func (r *Reader) Tolerate(f func(*Error)) { r.onFault = f }

// SkipTo leaves out what is before a time: of a trace the blocks that are, found
// by the index where the recording can be sought and by their heads where it
// can't. Frames of the block in which the time lies, and all of what is no trace,
// are still returned. It must be called before Next.
func (r *Reader) SkipTo(from time.Duration) {
	if r.blocks != nil {
		r.blocks.seek(from)
	}
}

// Next returns the next frame, and io.EOF after the last one. Every other
// error is an [*Error]; it ends the stream, and each later call returns it
// again. What is checked:
//
//   - The stream is whole: checksums are right, nothing is cut short.
//   - Each line is a JSON object with an offset, a known type and an object.
//   - The object has an apiVersion and a kind, and a name unless it comes with
//     a BOOKMARK or an ERROR. (Of a trace, whose writer has seen to the JSON,
//     objects are not looked into.)
//   - Offsets are not negative and never decrease.
//
// Keys of the line that are not known are ignored.
func (r *Reader) Next() (Frame, error) {
	if r.err != nil {
		return Frame{}, r.err
	}
	for {
		if r.lost != nil {
			b := &Break{Reason: Unreadable, Message: place(r.lost)}
			r.lost = nil
			return Frame{Offset: r.last, Break: b}, nil //nolint:nilerr // The loss has been told, and is a frame.
		}
		if r.ended {
			r.err = io.EOF
			return Frame{}, r.err
		}
		f, fault, err := r.next()
		if err == nil {
			r.meet(f.Resource)
			return f, nil
		}
		if fault == nil || r.onFault == nil {
			r.err = err
			return Frame{}, err
		}
		r.onFault(fault)
		r.lost = fault
		if errors.Is(fault, ErrEmpty) {
			r.lost = nil
		}
	}
}

// place is the fault without the file's name, which an anonymised trace
// shouldn't have.
func place(e *Error) string {
	c := *e
	c.Name = "x"
	return strings.TrimPrefix(c.Error(), "trace x: ")
}

func (r *Reader) meet(res Resource) {
	if res != (Resource{}) && !slices.Contains(r.seen, res) && len(r.seen) < maxResources {
		r.seen = append(r.seen, res)
	}
}

// next returns the next frame; or io.EOF; or a fault, after which it can be
// called again.
func (r *Reader) next() (Frame, *Error, error) {
	raw, err := r.cut.next()
	if err != nil {
		var fault *Error
		if !errors.As(err, &fault) {
			return Frame{}, nil, err
		}
		if r.onFault != nil && !r.cut.resume() {
			r.ended = true
		}
		return Frame{}, fault, err
	}
	f, head, err := parse(raw)
	if err == nil && f.Break == nil && raw.form != blockForm {
		if err = head.check(f.Type); err == nil && f.Resource.Kind == "" {
			f.Resource = r.resource(f.Resource, head)
		}
	}
	if err == nil {
		err = inOrder(r.last, f.Offset)
	}
	if err != nil {
		r.cut.damaged(raw)
		fault := raw.fail(r.name, err)
		return Frame{}, fault, fault
	}
	r.last = f.Offset
	return f, nil, nil
}

// resource completes what a line says of its resource by its object: the kind,
// or all. An ERROR's object is a Status, which says nothing of it.
func (r *Reader) resource(named Resource, h head) Resource {
	kind := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
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
	if res, ok := r.kinds[kind]; ok {
		return res
	}
	res := ResourceOf(kind)
	r.kinds[kind] = res
	return res
}

// ResourceOf returns the resource of a kind, as far as it can be told from the
// kind's name; it is right for all of Kubernetes' own.
func ResourceOf(kind schema.GroupVersionKind) Resource {
	gvr, _ := meta.UnsafeGuessKindToResource(kind)
	return Resource{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Kind: kind.Kind}
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
	case h.Metadata.Name == "" && t != watch.Bookmark && t != watch.Error:
		return corrupt("the object has no name")
	}
	return nil
}

// endsInitial reports whether the object is that of the bookmark which ends the
// initial list.
func (h head) endsInitial() bool {
	return h.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// headOf reads what an object says of itself.
func headOf(object []byte) (head, error) {
	var h head
	if err := json.Unmarshal(object, &h); err != nil {
		return head{}, corrupt("the object is no Kubernetes object: %s", jsonFault(err))
	}
	return h, nil
}

// event is what a watch says.
type event struct {
	Type   *string         `json:"type"`
	Object json.RawMessage `json:"object"`
}

// parse takes a line apart. Of a line in blockForm there is no head.
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
	switch f.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
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

// parseBlockLine takes apart a line that [appendLine] wrote, without looking at
// the JSON of its object: ok is false where it looks otherwise.
func parseBlockLine(raw rawLine) (f Frame, ok bool) {
	rest, ok := bytes.CutPrefix(raw.data, []byte(lineOffset))
	if !ok {
		return f, false
	}
	i := bytes.IndexByte(rest, ',')
	if i <= 0 || i > 19 {
		return f, false
	}
	offset, err := strconv.ParseInt(string(rest[:i]), 10, 64)
	if err != nil || offset < 0 {
		return f, false
	}
	if rest, ok = bytes.CutPrefix(rest[i:], []byte(lineResource+`"`)); !ok {
		return f, false
	}
	if i = bytes.IndexByte(rest, '"'); i <= 0 {
		return f, false
	}
	resource, ok := inBlock(raw, string(rest[:i]))
	if !ok {
		return f, false
	}
	if rest, ok = bytes.CutPrefix(rest[i+1:], []byte(lineEvent)); !ok {
		return f, false
	}
	if i = bytes.IndexByte(rest, '"'); i <= 0 {
		return f, false
	}
	typ := watch.EventType(rest[:i])
	switch typ {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return f, false
	}
	if rest, ok = bytes.CutPrefix(rest[i:], []byte(lineObject)); !ok {
		return f, false
	}
	if rest, ok = bytes.CutSuffix(rest, []byte(lineEnd)); !ok || len(rest) < 2 || rest[0] != '{' {
		return f, false
	}
	return Frame{Offset: time.Duration(offset), Type: typ, Object: bytes.Clone(rest), Resource: resource, Line: raw.line}, true
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

// parseResource is the reverse of [Resource.String].
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
	return fmt.Sprintf("field %s cannot be a %s", wrong.Field, wrong.Value)
}
