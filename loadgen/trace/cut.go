package trace

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxLine limits one line in bytes. The API server rejects objects above about 3 MB, etcd
// above 1.5 MB.
const maxLine = 32 << 20

// form is the form of a line.
type form int

const (
	// recordedForm: {"offsetNs":…,"event":…}
	recordedForm form = iota
	// watchForm: {"type":…,"object":…}
	watchForm
	// blockForm is recordedForm as [appendLine] writes it, in a block with a checksum.
	blockForm
)

// rawLine is one line without its newline, or one JSON document of a watch.
type rawLine struct {
	data   []byte
	form   form
	line   int
	offset int64
	// number of the line's block, from 1; 0 for formats other than traces
	block int
	// resources of the block head
	resources []Resource
}

func (l rawLine) fail(name string, cause error) *Error {
	return &Error{Name: name, Block: l.block, Line: l.line, Offset: l.offset, Err: cause}
}

// cutter cuts a recording into lines.
type cutter interface {
	// next returns the next line in newly allocated memory, and io.EOF after the last one. Any
	// other error is an *Error and repeats until resume is called.
	next() (rawLine, error)
	// resume moves to the next readable line after an error of next. It returns false if there
	// is none.
	resume() bool
	// damaged moves back into a line that could not be parsed. next then looks for another
	// line in it.
	damaged(rawLine)
}

// Compressions of the formats other than traces.
const (
	uncompressed = ""
	gzipped      = "gzip"
	zstdPacked   = "zstd"
)

// packed is a stream, decompressed if necessary.
type packed struct {
	in *bufio.Reader
	by string
	// err is the error of opening the stream; reading the first line returns it.
	err   error
	close func()
	below *noted
}

func unpack(in *bufio.Reader) *packed {
	p := &packed{close: func() {}, below: &noted{Reader: in}}
	p.in = in
	magic, _ := in.Peek(4)
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		p.by = gzipped
		z, err := gzip.NewReader(in)
		if err != nil {
			p.err = p.cause(err)
			return p
		}
		p.in = bufio.NewReaderSize(z, 64<<10)
	case isZstd(magic):
		p.by = zstdPacked
		// One worker decompresses without goroutines. A Reader has no Close, so goroutines
		// would leak.
		z, err := zstd.NewReader(p.below, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			p.err = p.cause(err)
			return p
		}
		p.close = z.Close
		p.in = bufio.NewReaderSize(z, 64<<10)
	}
	return p
}

// maxWindow limits the memory of decompression. No zstd level needs more.
const maxWindow = 128 << 20

// isZstd reports whether a stream starts with a zstd frame.
func isZstd(magic []byte) bool {
	if len(magic) < 4 {
		return false
	}
	m := binary.LittleEndian.Uint32(magic)
	return m == zstdMagic || m&^0xf == skippableBase
}

// cause translates an error of a decompressor.
func (p *packed) cause(err error) error {
	var broken flate.CorruptInputError
	switch {
	case p.by == uncompressed:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return truncated("unexpected end of %s stream", p.by)
	case errors.Is(err, gzip.ErrChecksum):
		return corrupt("the gzip checksum does not match")
	case errors.Is(err, gzip.ErrHeader):
		return corrupt("the gzip header is invalid")
	case errors.As(err, &broken):
		return corrupt("the gzip data is invalid at compressed byte %d", int64(broken))
	case errors.Is(err, zstd.ErrCRCMismatch):
		return corrupt("the zstd checksum does not match")
	case p.by == zstdPacked && p.below.err == nil:
		return corrupt("the zstd data is invalid: %v", err)
	default:
		return err
	}
}

// noted is a reader that keeps its error. It distinguishes a read error from an error of the
// decompressor.
type noted struct {
	io.Reader
	err error
}

func (n *noted) Read(b []byte) (int, error) {
	m, err := n.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return m, err
}

// lines cuts a stream into lines.
type lines struct {
	*packed
	name string
	err  error
	// Position of the next line.
	line   int
	offset int64
	// long: the rest of an overlong line must be skipped. more: lines follow an error.
	long, more bool
}

func newLines(p *packed, name string) *lines {
	return &lines{packed: p, name: name, err: p.err, line: 1}
}

func (l *lines) next() (rawLine, error) {
	if l.err != nil {
		return rawLine{}, l.fail(l.err)
	}
	var data []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(data)+len(part) > maxLine {
			l.more, l.long = true, err != nil
			skipped := len(data) + len(part)
			fault := l.fail(corrupt("a line of more than %d bytes", maxLine))
			l.skip(skipped)
			return rawLine{}, fault
		}
		data = append(data, part...)
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			switch {
			case len(data) == 0 && l.line == 1:
				return rawLine{}, l.fail(fmt.Errorf("%w: the file is empty", ErrEmpty))
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
	raw := rawLine{data: bytes.TrimSuffix(data, []byte("\n")), form: recordedForm, line: l.line, offset: l.offset}
	l.skip(len(data))
	return raw, nil
}

// skip moves past a line of n bytes.
func (l *lines) skip(n int) {
	l.line++
	l.offset += int64(n)
}

// fail stores the error for all later calls.
func (l *lines) fail(cause error) *Error {
	l.err = cause
	return &Error{Name: l.name, Line: l.line, Offset: l.offset, Err: cause}
}

func (l *lines) resume() bool {
	if !l.more {
		return false
	}
	l.err, l.more = nil, false
	for l.long {
		part, err := l.in.ReadSlice('\n')
		l.offset += int64(len(part))
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			l.long = false
		}
	}
	return true
}

func (l *lines) damaged(rawLine) {}

// documents cuts a stream into JSON documents in any layout.
type documents struct {
	*packed
	name string
	err  error
	// Position of the next byte.
	line   int
	offset int64
	// again has bytes that are read a second time.
	again []byte
	// rest is the damaged document, in which resume looks for another one; restLine and
	// restOffset are its position.
	rest       []byte
	restLine   int
	restOffset int64
	some       bool
}

func newDocuments(p *packed, name string) *documents {
	return &documents{packed: p, name: name, err: p.err, line: 1}
}

func (d *documents) byte() (byte, error) {
	if len(d.again) > 0 {
		c := d.again[0]
		d.again = d.again[1:]
		return c, nil
	}
	return d.in.ReadByte()
}

func (d *documents) next() (rawLine, error) {
	if d.err != nil {
		return rawLine{}, d.fail(d.line, d.offset, d.err)
	}
	raw := rawLine{form: watchForm}
	depth, quoted, escaped := 0, false, false
	for {
		c, err := d.byte()
		if err != nil {
			return rawLine{}, d.ended(raw, err)
		}
		d.offset++
		if c == '\n' {
			d.line++
		}
		if len(raw.data) == 0 {
			switch c {
			case ' ', '\t', '\r', '\n', 0x1e: // JSON text sequences start with 0x1e.
				continue
			}
			raw.line, raw.offset = d.line, d.offset-1
		}
		d.some = true
		if len(raw.data) == maxLine {
			d.keep(raw)
			return rawLine{}, d.fail(raw.line, raw.offset, corrupt("a document of more than %d bytes", maxLine))
		}
		raw.data = append(raw.data, c)
		switch {
		case escaped:
			escaped = false
		case quoted:
			quoted, escaped = c != '"', c == '\\'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case depth == 0 && c == '\n':
			// Not a document: skip to the end of the line.
			raw.data = raw.data[:len(raw.data)-1]
			return raw, nil
		}
		if depth <= 0 && (c == '}' || c == ']') {
			return raw, nil
		}
	}
}

// ended returns the error for a stream that ends within a document.
func (d *documents) ended(raw rawLine, err error) error {
	switch whole := errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF); {
	case !whole:
		d.keep(raw)
		line, offset := raw.line, raw.offset
		if len(raw.data) == 0 {
			line, offset = d.line, d.offset
		}
		return d.fail(line, offset, d.cause(err))
	case len(raw.data) > 0:
		d.keep(raw)
		return d.fail(raw.line, raw.offset, truncated("the file ends in the middle of the document"))
	case !d.some:
		return d.fail(d.line, d.offset, fmt.Errorf("%w: the file is empty", ErrEmpty))
	}
	return io.EOF
}

func (d *documents) fail(line int, offset int64, cause error) *Error {
	d.err = cause
	return &Error{Name: d.name, Line: line, Offset: offset, Err: cause}
}

func (d *documents) keep(raw rawLine) {
	d.rest, d.restLine, d.restOffset = raw.data, raw.line, raw.offset
}

// resume searches the damaged document for a line that starts with a brace: only a document
// starts with one.
func (d *documents) resume() bool {
	i := bytes.Index(d.rest, []byte("\n{"))
	if i < 0 {
		d.rest = nil
		return false
	}
	before := d.rest[:i+1]
	d.again = append(bytes.Clone(d.rest[i+1:]), d.again...)
	d.line = d.restLine + bytes.Count(before, []byte("\n"))
	d.offset = d.restOffset + int64(len(before))
	d.rest, d.err = nil, nil
	return true
}

func (d *documents) damaged(raw rawLine) {
	line, offset := d.line, d.offset
	d.keep(raw)
	if !d.resume() {
		d.line, d.offset = line, offset
	}
}
