package decode

import (
	"bytes"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// jsonFramer cuts the body of a watch into frames, as client-go's framer of JSON does, and also the
// object out of a frame, so that it is not read again for that. A frame of a type and an object, in either
// order, becomes a byte, the index in eventNames, and the bytes of the object; jsonEvents reads it. Any
// other frame stays as it is.
type jsonFramer struct {
	runtime.Framer
	table *Table // counts panics
}

func (f jsonFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &jsonFrames{Closer: r, r: r, framer: f.Framer, table: f.table, buf: make([]byte, frameBuffer)}
}

// jsonFrames reads frames that end with a newline, as the API server writes them. Where it meets
// another frame, client-go's framer reads the rest of the body.
type jsonFrames struct {
	io.Closer
	r        io.Reader
	framer   runtime.Framer
	table    *Table
	exact    io.Reader // of the rest of the body, once it is used
	buf      []byte
	from, to int    // of the bytes that were read but are not handed on
	rest     []byte // of a frame that did not fit
	index    jsonIndex
}

const (
	maxCut  = 8 << 20 // bytes of a frame; client-go refuses those over 16 MiB
	maxCuts = 8       // attempts at a frame without a newline

	frameBuffer = 16 << 10  // bytes that a buffer begins with
	maxIdle     = 256 << 10 // bytes of a buffer that is kept after a large frame
)

func (f *jsonFrames) Read(b []byte) (n int, err error) {
	if f.exact == nil && len(f.rest) == 0 {
		if f.rest, err = f.frame(); err != nil {
			return 0, err
		}
		if f.rest == nil {
			unread := bytes.NewReader(bytes.Clone(f.buf[f.from:f.to]))
			f.buf, f.exact = nil, f.framer.NewFrameReader(io.NopCloser(io.MultiReader(unread, f.r)))
		}
	}
	if f.exact != nil {
		return f.exact.Read(b)
	}
	n = copy(b, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) > 0 {
		err = io.ErrShortBuffer
	}
	return n, err
}

// cut returns what jsonEvents reads of an indexed frame. Its byte takes the place of that before the object.
func (f *jsonFrames) cut(frame []byte) []byte {
	event, from, to := -1, 0, 0
	f.index.enter(0)
	if end := members(frame, 0, func(name []byte, i int) int {
		end := f.index.skip(i)
		switch {
		case string(name) == "object" && from == 0 && frame[i] == '{':
			from, to = i, end
		case string(name) == "type" && event < 0 && frame[i] == '"':
			event = slices.Index(eventNames, watch.EventType(frame[i+1:end-1]))
		default:
			return -1
		}
		return end
	}); end < 0 || event < 0 || from == 0 {
		return frame
	}
	frame[from-1] = byte(event)
	return frame[from-1 : to]
}

// frame returns the next frame, cut, which is valid until the next call, or nil if client-go's framer is
// to read it.
func (f *jsonFrames) frame() (frame []byte, err error) {
	defer func() {
		if f.table.recovered(recover()) {
			frame, err = nil, nil
		}
	}()
	for searched, cuts := 0, 0; ; {
		f.from = space(f.buf[:f.to], f.from)
		unread := f.buf[f.from:f.to]
		if n := len(unread); n > 0 {
			if unread[0] != '{' || n > maxCut || cuts == maxCuts {
				return nil, nil
			}
			line := bytes.IndexByte(unread[searched:], '\n')
			end := -1
			if line >= 0 {
				if end = f.index.index(unread[:searched+line], 0); end < 0 {
					return nil, nil
				}
			} else if unread[n-1] == '}' { // perhaps all of a frame, which client-go would not hold back
				end = f.index.index(unread, 0)
				cuts++
			}
			if end >= 0 {
				frame = f.cut(unread[:end])
				f.from += end
				return frame, nil
			}
			searched = n
		}
		if f.to == len(f.buf) || len(unread) == 0 {
			if f.from == 0 && f.to > 0 {
				f.buf = append(f.buf, make([]byte, len(f.buf))...)
			} else if len(f.buf) > maxIdle && len(unread) <= frameBuffer/2 { // a large frame has gone
				f.buf, f.index = make([]byte, frameBuffer), jsonIndex{}
			}
			f.from, f.to = 0, copy(f.buf, unread)
		}
		n, err := f.r.Read(f.buf[f.to:])
		if f.to += n; err == nil || n > 0 {
			continue
		}
		if f.r = (failed{err}); len(unread) > 0 {
			return nil, nil
		}
		return nil, err
	}
}

// failed is a reader that has failed.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// jsonEvents decodes the frames of jsonFramer. As in events, the object's bytes are those of the frame.
type jsonEvents struct{ runtime.Serializer }

func (e jsonEvents) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok && len(data) > 0 && int(data[0]) < len(eventNames) {
		*event = metav1.WatchEvent{Type: string(eventNames[data[0]]), Object: runtime.RawExtension{Raw: data[1:]}}
		return event, watchEventKind(), nil
	}
	return e.Serializer.Decode(data, defaults, into)
}
