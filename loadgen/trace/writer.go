package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/watch"
)

// blockSize is the approximate size of a block's lines in bytes. Larger blocks compress better,
// but one damaged byte costs the whole block.
const blockSize = 1 << 20

// ErrFrame is wrapped by the error for an invalid frame.
var ErrFrame = errors.New("invalid frame")

// FrameWriter writes the frames of a recording in order.
type FrameWriter interface {
	// Write appends one frame. It retains no part of it.
	Write(Frame) error
	// Flush writes buffered frames to the underlying writer.
	Flush() error
	// Close flushes and completes the recording. It does not close the underlying writer.
	Close() error
}

// WriterOptions are the options of a [Writer].
type WriterOptions struct {
	// Best selects the best compression: about 10 % smaller, several times slower.
	Best bool
}

// Writer writes a trace. It is not safe for concurrent use.
//
// [Writer.Flush], or a full block, writes whole blocks to the underlying writer. They are
// readable even if the writer stops there.
type Writer struct {
	w     io.Writer
	enc   *zstd.Encoder
	block int // size in bytes
	// blocks is the number of written blocks; total counts their lines.
	blocks int
	total  trailer
	// lines of the present block
	lines []byte
	head  blockHead
	last  time.Duration
	// reused output buffer
	out []byte
	err error
}

// NewWriter writes the header, with its Format set, and returns a writer of the frames. The
// error is that of the underlying writer, or wraps [ErrFrame] if the header is too large.
func NewWriter(w io.Writer, h Header, opts WriterOptions) (*Writer, error) {
	level := zstd.SpeedDefault
	if opts.Best {
		level = zstd.SpeedBestCompression
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(true), zstd.WithWindowSize(8<<20))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	h.Format = Version
	if h.Resources == nil {
		h.Resources = []Resource{}
	}
	out := &Writer{w: w, enc: enc, block: blockSize}
	chunk, err := appendChunk(nil, tagHeader, h)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if len(chunk) > overhead+maxHead {
		return nil, fmt.Errorf("trace: %w: a header of %d bytes (at most %d)", ErrFrame, len(chunk), maxHead)
	}
	if _, err := w.Write(chunk); err != nil {
		return nil, err
	}
	return out, nil
}

// errClosed is the error of calls after Close.
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
	lines, err := appendLine(w.lines, f, true)
	switch {
	case err == nil && len(lines)-start > maxLine:
		err = fmt.Errorf("%w: a line of more than %d bytes", ErrFrame, maxLine)
	case err == nil && len(w.head.Resources) > maxResources && !slices.Contains(w.head.Resources, f.Resource):
		err = fmt.Errorf("%w: more than %d resources", ErrFrame, maxResources)
	}
	if err != nil {
		w.lines = lines[:start]
		return fmt.Errorf("trace: %w", err)
	}
	w.lines = lines
	w.head.Lines++
	w.last = f.Offset
	if f.Resource != (Resource{}) && !slices.Contains(w.head.Resources, f.Resource) {
		w.head.Resources = append(w.head.Resources, f.Resource)
	}
	if len(w.lines) >= w.block {
		return w.Flush()
	}
	return nil
}

// maxResources is the maximum number of resources in a block head.
const maxResources = 1 << 10

// Flush ends the block and makes all frames readable. It does nothing for an empty block.
// Small blocks compress badly.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.lines) == 0 {
		return w.err
	}
	data := w.enc.EncodeAll(w.lines, nil)
	w.head.Block = w.blocks + 1
	w.head.Line = w.total.Lines + 1
	w.head.Bytes = len(w.lines)
	w.head.Size = len(data)
	w.head.CRC = crc32.Checksum(data, castagnoli)
	out, err := appendChunk(w.out[:0], tagBlock, w.head)
	if err == nil {
		w.blocks++
		w.total.Lines += w.head.Lines
		w.total.Bytes += int64(w.head.Bytes)
		w.out = append(out, data...)
		// One Write call, so that a killed process rarely leaves a partial block.
		_, err = w.w.Write(w.out)
	}
	w.head = blockHead{Resources: w.head.Resources[:0]}
	w.lines = w.lines[:0]
	w.err = err
	return err
}

// Close flushes and writes the trailer. A second Close does nothing.
func (w *Writer) Close() error {
	if errors.Is(w.err, errClosed) {
		return nil
	}
	err := w.Flush()
	if err == nil {
		var chunk []byte
		if chunk, err = appendChunk(w.out[:0], tagTrailer, w.total); err == nil {
			_, err = w.w.Write(chunk)
		}
	}
	w.err = errClosed
	return errors.Join(err, w.enc.Close())
}

// LineWriter writes a recording as JSON lines: recorded lines with times and resources, or the
// raw output of a watch. It is not safe for concurrent use.
type LineWriter struct {
	w   io.Writer
	raw bool
	buf []byte
	err error
}

// NewLineWriter returns a writer of recorded JSON lines. With raw it writes the output of a
// watch, which has no breaks.
func NewLineWriter(w io.Writer, raw bool) *LineWriter { return &LineWriter{w: w, raw: raw} }

// Write appends a frame; see [Writer.Write].
func (w *LineWriter) Write(f Frame) error {
	if w.err != nil || w.raw && f.Break != nil {
		return w.err
	}
	start := len(w.buf)
	buf, err := appendLine(w.buf, f, !w.raw)
	if err != nil {
		w.buf = buf[:start]
		return fmt.Errorf("trace: %w", err)
	}
	if w.buf = buf; len(w.buf) >= 64<<10 {
		return w.Flush()
	}
	return nil
}

// Flush writes the buffered lines.
func (w *LineWriter) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	_, w.err = w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return w.err
}

// Close flushes.
func (w *LineWriter) Close() error { return w.Flush() }

// The parts of a line that [appendLine] writes and [parseBlockLine] reads.
const (
	lineOffset   = `{"offsetNs":`
	lineResource = `,"resource":`
	lineKind     = `,"kind":`
	lineEvent    = `,"event":{"type":"`
	lineBreak    = `,"break":`
	lineObject   = `","object":`
	lineEnd      = "}}"
	rawStart     = `{"type":"`
)

// appendLine appends the line of a frame: a recorded line, or the raw output of a watch. The
// error wraps [ErrFrame].
func appendLine(b []byte, f Frame, recorded bool) ([]byte, error) {
	if recorded {
		if f.Offset < 0 {
			return b, fmt.Errorf("%w: its time %v is negative", ErrFrame, f.Offset)
		}
		b = append(b, lineOffset...)
		b = strconv.AppendInt(b, int64(f.Offset), 10)
		if f.Resource != (Resource{}) {
			for _, s := range []string{f.Resource.Group, f.Resource.Version, f.Resource.Resource, f.Resource.Kind} {
				if !plain(s) {
					return b, fmt.Errorf("%w: resource %q of kind %q", ErrFrame, f.Resource, f.Resource.Kind)
				}
			}
			b = append(b, lineResource...)
			b = strconv.AppendQuote(b, f.Resource.String())
			if f.Break != nil || f.Type == watch.Error {
				// All other objects contain their kind.
				b = append(b, lineKind...)
				b = strconv.AppendQuote(b, f.Resource.Kind)
			}
		}
		if f.Break != nil {
			text, err := json.Marshal(f.Break)
			if err != nil {
				return b, fmt.Errorf("%w: %w", ErrFrame, err)
			}
			return append(append(append(b, lineBreak...), text...), "}\n"...), nil
		}
	}
	if !knownType(f.Type) {
		return b, fmt.Errorf("%w: event type %q (allowed: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)", ErrFrame, f.Type)
	}
	object := bytes.TrimSpace(f.Object)
	if len(object) == 0 || object[0] != '{' || !json.Valid(object) {
		return b, fmt.Errorf("%w: the object is no JSON object", ErrFrame)
	}
	if recorded {
		b = append(b, lineEvent...)
	} else {
		b = append(b, rawStart...)
	}
	b = append(b, f.Type...)
	b = append(b, lineObject...)
	if bytes.ContainsAny(object, "\r\n") {
		// Valid JSON has newlines between tokens only, so Compact can remove them.
		var compact bytes.Buffer
		if err := json.Compact(&compact, object); err != nil {
			return b, fmt.Errorf("%w: %w", ErrFrame, err)
		}
		object = compact.Bytes()
	}
	b = append(b, object...)
	if recorded {
		return append(b, lineEnd+"\n"...), nil
	}
	return append(b, "}\n"...), nil
}

func knownType(t watch.EventType) bool {
	switch t {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
		return true
	}
	return false
}

// plain reports whether s is valid in a resource: letters, digits, dashes, dots and
// underscores.
func plain(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_')
	}) < 0
}
