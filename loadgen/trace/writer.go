package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/watch"
)

// blockSize is the approximate size of a block's lines in bytes. Larger blocks compress better,
// but a killed writer loses the one that it had begun.
const blockSize = 1 << 20

// ErrFrame is wrapped by the error for an invalid frame.
var ErrFrame = errors.New("invalid frame")

// Writer writes a trace, or JSON lines. It is not safe for concurrent use.
//
// [Writer.Flush], or a full block, writes whole blocks to the underlying writer. They are
// readable even if the writer stops there.
type Writer struct {
	w      io.Writer
	enc    *zstd.Encoder // nil for JSON lines
	lines  []byte        // lines of the present block
	block  int           // approximate size of a block
	frames int
	last   time.Duration
	err    error
}

// encoder compresses whole blocks for all writers.
var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true), zstd.WithWindowSize(8<<20))
})

// NewWriter writes the header, with its Format set, and returns a writer of the frames. The
// error is that of the underlying writer.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	enc, err := encoder()
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	h.Format = Version
	if h.Resources == nil {
		h.Resources = []Resource{}
	}
	head, err := json.Marshal(headLine{&h})
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	out := &Writer{w: w, enc: enc, block: blockSize, lines: append(head, '\n')}
	return out, out.Flush()
}

// NewLineWriter returns a writer of recorded JSON lines, with times and resources.
func NewLineWriter(w io.Writer) *Writer { return &Writer{w: w, block: 64 << 10} }

var errClosed = errors.New("trace: the writer is closed")

// Write appends a frame, without its Line. The error wraps [ErrFrame] for an invalid frame: a
// decreasing time, an unknown type, an object that is not a JSON object, or no resource. Such
// a frame is not written, and the writer stays usable. An error of the underlying writer is
// permanent: every later call returns it.
func (w *Writer) Write(f Frame) error {
	if w.err != nil {
		return w.err
	}
	if f.Offset < w.last {
		return fmt.Errorf("trace: %w: its time %v is before its predecessor's %v", ErrFrame, f.Offset, w.last)
	}
	if f.Resource == (Resource{}) && f.Break == nil {
		return fmt.Errorf("trace: %w: no resource", ErrFrame)
	}
	start := len(w.lines)
	lines, err := appendLine(w.lines, f)
	if err == nil && len(lines)-start > maxLine {
		err = fmt.Errorf("%w: a line of more than %d bytes", ErrFrame, maxLine)
	}
	if err != nil {
		w.lines = lines[:start]
		return fmt.Errorf("trace: %w", err)
	}
	w.lines = lines
	w.frames++
	w.last = f.Offset
	if len(w.lines) >= w.block {
		return w.Flush()
	}
	return nil
}

// Flush ends the block and makes all frames readable. It does nothing for an empty block.
// Small blocks compress badly.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.lines) == 0 {
		return w.err
	}
	out := w.lines
	if w.enc != nil {
		out = w.enc.EncodeAll(w.lines, nil)
	}
	// One Write call, so that a killed process rarely leaves a partial block.
	_, w.err = w.w.Write(out)
	w.lines = w.lines[:0]
	return w.err
}

// Close flushes and writes the last line of a trace. A second Close does nothing.
func (w *Writer) Close() error {
	err := w.Flush()
	if w.enc != nil && w.err == nil {
		// A block of its own, so that a torn end costs no frames.
		w.lines = fmt.Appendf(w.lines, `{"end":%d}`+"\n", w.frames)
		err = w.Flush()
	}
	if errors.Is(err, errClosed) {
		return nil
	}
	w.err = errClosed
	return err
}

const headStart = `{"header":` // of a trace

// appendLine appends the line of a frame. The error wraps [ErrFrame].
func appendLine(b []byte, f Frame) ([]byte, error) {
	if f.Offset < 0 {
		return b, fmt.Errorf("%w: its time %v is negative", ErrFrame, f.Offset)
	}
	b = append(b, `{"offsetNs":`...)
	b = strconv.AppendInt(b, int64(f.Offset), 10)
	if f.Resource != (Resource{}) {
		if !f.Resource.plain() {
			return b, fmt.Errorf("%w: resource %q of kind %q", ErrFrame, f.Resource, f.Resource.Kind)
		}
		b = append(b, `,"resource":`...)
		b = strconv.AppendQuote(b, f.Resource.String())
		if f.Break != nil || f.Type == watch.Error {
			// All other objects contain their kind.
			b = append(b, `,"kind":`...)
			b = strconv.AppendQuote(b, f.Resource.Kind)
		}
	}
	if f.Break != nil {
		text, err := json.Marshal(f.Break)
		if err != nil {
			return b, fmt.Errorf("%w: %w", ErrFrame, err)
		}
		return fmt.Appendf(b, `,"break":%s}`+"\n", text), nil
	}
	if !knownType(f.Type) {
		return b, fmt.Errorf("%w: event type %q (allowed: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)", ErrFrame, f.Type)
	}
	object := bytes.TrimSpace(f.Object)
	if len(object) == 0 || object[0] != '{' || !json.Valid(object) {
		return b, fmt.Errorf("%w: the object is no JSON object", ErrFrame)
	}
	b = fmt.Appendf(b, `,"event":{"type":%q,"object":`, f.Type)
	if bytes.ContainsAny(object, "\r\n") {
		// Valid JSON has newlines between tokens only, so Compact can remove them.
		var compact bytes.Buffer
		if err := json.Compact(&compact, object); err != nil {
			return b, fmt.Errorf("%w: %w", ErrFrame, err)
		}
		object = compact.Bytes()
	}
	return append(append(b, object...), "}}\n"...), nil
}

func knownType(t watch.EventType) bool {
	return t == watch.Added || t == watch.Modified || t == watch.Deleted || t == watch.Bookmark || t == watch.Error
}

// plain reports whether the resource has letters, digits, dashes, dots and underscores only.
func (r Resource) plain() bool {
	const allowed = "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return strings.Trim(r.Group+r.Version+r.Resource+r.Kind, allowed) == ""
}
