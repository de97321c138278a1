package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxLine limits one line in bytes. The API server rejects objects above about 3 MB, etcd
// above 1.5 MB.
const maxLine = 32 << 20

// maxWindow limits the memory of zstd; no level of it needs more.
const maxWindow = 128 << 20

type place struct {
	name   string
	line   int
	offset int64
}

func (p place) fail(cause error) *Error {
	return &Error{Name: p.name, Line: p.line, Offset: p.offset, Err: cause}
}

// rawLine is one line without its newline, or one JSON document of a watch.
type rawLine struct {
	place
	data []byte
}

// lines cuts a recording into lines, or into the documents of a watch.
type lines struct {
	file       *counter // compressed
	in         *bufio.Reader
	by         string // compression: gzip, zstd or none
	err        error  // error of opening the stream; reading the first line returns it
	watch      bool   // the documents of a watch
	pos        place  // position of the next line, in decompressed bytes
	skip, done bool   // the rest of an overlong line or document must be skipped
}

// newLines decompresses a recording and detects a watch.
func newLines(file *counter, name string) *lines {
	l := &lines{file: file, in: bufio.NewReaderSize(file, 64<<10), pos: place{name: name, line: 1}}
	var z io.Reader
	var err error
	switch magic, _ := l.in.Peek(4); {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		l.by = "gzip"
		z, err = gzip.NewReader(l.in)
	case string(magic) == "\x28\xb5\x2f\xfd", len(magic) == 4 && magic[0]>>4 == 5 && string(magic[1:]) == "\x2a\x4d\x18": // a frame, a skippable one
		l.by = "zstd"
		// One worker needs no goroutines, which would leak: a Reader has no Close.
		z, err = zstd.NewReader(l.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}
	if err != nil {
		l.err = l.cause(err)
		return l
	}
	if z != nil {
		l.in = bufio.NewReaderSize(z, 64<<10)
	}
	l.watch = isWatch(l.in)
	return l
}

func (l *lines) cause(err error) error {
	switch {
	case l.by == "" || l.file.err != nil:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return truncated("unexpected end of %s stream", l.by)
	}
	return fmt.Errorf("%w: the %s data is invalid: %w", ErrCorrupt, l.by, err)
}

// next returns the next line in newly allocated memory, and io.EOF after the last one. Any other
// error is an *Error; the next call then continues after the damage.
func (l *lines) next() (rawLine, error) {
	switch {
	case l.done:
		return rawLine{}, io.EOF
	case l.err != nil:
		return rawLine{}, l.last(l.pos, l.err)
	case l.watch:
		return l.document()
	}
	for l.skip {
		part, err := l.in.ReadSlice('\n')
		l.pos.offset += int64(len(part))
		l.skip = errors.Is(err, bufio.ErrBufferFull)
	}
	raw := rawLine{place: l.pos}
	data, err := l.read()
	switch {
	case errors.Is(err, io.EOF) && len(data) == 0 && l.pos.offset == 0:
		return rawLine{}, l.last(raw.place, fmt.Errorf("%w: the file is empty", ErrEmpty))
	case errors.Is(err, io.EOF) && len(data) == 0:
		return rawLine{}, io.EOF
	case errors.Is(err, io.EOF) && !json.Valid(data):
		return rawLine{}, l.last(raw.place, truncated("the file ends in the middle of the line"))
	case err != nil && !errors.Is(err, io.EOF):
		return rawLine{}, err
	}
	l.pass(data)
	raw.data = bytes.TrimSuffix(data, []byte("\n"))
	return raw, nil
}

// read returns the next line with its newline. At the end of the stream the error is io.EOF;
// any other error is an *Error.
func (l *lines) read() ([]byte, error) {
	var data []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(data)+len(part) > maxLine {
			fault := l.pos.fail(corrupt("a line of more than %d bytes", maxLine))
			l.pos.line++
			l.pos.offset += int64(len(data) + len(part))
			l.skip = err != nil
			return nil, fault
		}
		data = append(data, part...)
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return data, err
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, l.last(l.pos, l.cause(err))
		}
	}
}

func (l *lines) pass(data []byte) {
	l.pos.line += bytes.Count(data, []byte("\n"))
	l.pos.offset += int64(len(data))
}

// last returns an error after which nothing can be read.
func (l *lines) last(at place, cause error) *Error {
	l.done = true
	return at.fail(cause)
}

// document returns the next JSON document of a watch: a line, or the lines up to one that starts with a
// closing brace. A line that starts with an opening brace starts a document, so a damaged one costs no other.
func (l *lines) document() (rawLine, error) {
	var raw rawLine
	for {
		if next, _ := l.in.Peek(1); len(raw.data) > 0 && string(next) == "{" {
			return rawLine{}, raw.fail(corrupt("the document does not end before line %d", l.pos.line))
		}
		at := l.pos
		line, err := l.read()
		switch {
		case errors.Is(err, io.EOF) && len(line) > 0:
		case errors.Is(err, io.EOF) && len(raw.data) > 0:
			return rawLine{}, l.last(raw.place, truncated("the file ends in the middle of the document"))
		case err != nil:
			return rawLine{}, err
		}
		l.pass(line)
		text := bytes.TrimSpace(line)
		switch l.skip = l.skip && line[0] != '{'; {
		case l.skip || len(text) == 0:
			continue
		case len(raw.data) == 0:
			raw.place = at
		}
		if raw.data = append(raw.data, line...); len(raw.data) > maxLine {
			l.skip = true
			return rawLine{}, raw.fail(corrupt("a document of more than %d bytes", maxLine))
		}
		first := len(raw.data) == len(line)
		if first && line[0] != '{' || (first || line[0] == '}') && text[len(text)-1] == '}' && json.Valid(raw.data) {
			raw.data = bytes.TrimSpace(raw.data)
			return raw, nil // A line that starts with no brace is not a document.
		}
	}
}
