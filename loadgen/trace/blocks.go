package trace

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// tape is a stream with a peek of any length.
type tape struct {
	in  io.Reader
	buf []byte
	// at is the offset of buf[0] in the stream.
	at  int64
	err error
}

// readSize is the size of one read. Memory grows with the data read, not with a size field,
// which may be damaged.
const readSize = 1 << 20

// peek returns the next n bytes. If fewer are left, it returns those and the error. The bytes
// are valid until the next call.
func (t *tape) peek(n int) ([]byte, error) {
	for len(t.buf) < n && t.err == nil {
		want := max(min(n-len(t.buf), readSize), 64<<10)
		t.buf = slices.Grow(t.buf, want)
		var m int
		m, t.err = t.in.Read(t.buf[len(t.buf) : len(t.buf)+want])
		t.buf = t.buf[:len(t.buf)+m]
	}
	if len(t.buf) < n {
		return t.buf, t.err
	}
	return t.buf[:n], nil
}

func (t *tape) discard(n int) {
	t.at += int64(n)
	// Moving the rest to the front keeps the buffer from growing.
	t.buf = append(t.buf[:0], t.buf[n:]...)
}

// blocks cuts a trace into lines.
type blocks struct {
	name string
	tape tape
	head Header
	// block is the number of the current block, line that of the next line.
	block, line int
	// text is the rest of the current block, at the offset of its head.
	text      []byte
	start     int64
	resources []Resource
	// err is the error of the header; the first next returns it.
	err error
	// lost: the offset of the next chunk is unknown. done: nothing follows.
	lost, done bool
	// stored is the number of blocks read, packedBytes their compressed size, textBytes the
	// size of their lines.
	stored                 int
	packedBytes, textBytes int64
}

func newBlocks(t tape, name string) *blocks {
	b := &blocks{name: name, tape: t, line: 1}
	b.err = b.header()
	return b
}

// decoder decompresses whole blocks for all readers. It uses no goroutines.
var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock))
})

// at returns the position of the next chunk. The header counts as the first block.
func (b *blocks) at() place { return place{name: b.name, block: max(b.block, 1), offset: b.tape.at} }

// last returns an error of the current chunk after which nothing can be read.
func (b *blocks) last(cause error) error {
	b.done = true
	return b.at().fail(cause)
}

// lose returns an error of the current chunk after which the next one must be searched.
func (b *blocks) lose(format string, args ...any) error {
	b.lost = true
	return b.at().fail(corrupt(format, args...))
}

// header reads the header.
func (b *blocks) header() error {
	front, err := b.tape.peek(frontSize + tagSize)
	if err != nil {
		return b.short(err, "the header")
	}
	_, size, ok := chunkFront(front)
	if !ok {
		return b.lose("the header's size is wrong")
	}
	chunk, err := b.tape.peek(size)
	if err != nil {
		return b.short(err, "the header")
	}
	ok, err = chunkBody(chunk, &b.head)
	switch {
	case !ok:
		return b.lose("the header's checksum does not match")
	case err != nil:
		return b.lose("the header: %s", jsonFault(err))
	case b.head.Format > Version || b.head.Format < 1:
		return b.last(fmt.Errorf("%w: the trace is of version %d, and this program reads up to %d", ErrVersion, b.head.Format, Version))
	}
	b.tape.discard(size)
	return nil
}

// short returns the error for a stream that ends within a part.
func (b *blocks) short(err error, what string) error {
	if !errors.Is(err, io.EOF) {
		return b.last(err)
	}
	b.lost = true
	return b.at().fail(truncated("the file ends in %s", what))
}

func (b *blocks) next() (rawLine, error) {
	if err := b.err; err != nil {
		b.err = nil
		return rawLine{}, err
	}
	for len(b.text) == 0 {
		if b.done || b.lost && !b.search() {
			return rawLine{}, io.EOF
		}
		if err := b.open(); err != nil {
			return rawLine{}, err
		}
	}
	line, rest, _ := bytes.Cut(b.text, []byte("\n"))
	raw := rawLine{place: place{b.name, b.block, b.line, b.start}, data: line, form: blockForm, resources: b.resources}
	b.text = rest
	b.line++
	return raw, nil
}

// open reads the next chunk. After a block head it also reads the block.
func (b *blocks) open() error {
	front, err := b.tape.peek(frontSize + tagSize)
	if err != nil {
		if len(front) == 0 && errors.Is(err, io.EOF) {
			return b.last(truncated("the file ends without its trailer"))
		}
		b.block++
		return b.short(err, "a block's head")
	}
	tag, size, ok := chunkFront(front)
	switch {
	case ok && tag == tagTrailer:
		return b.end(size)
	case !ok || tag != tagBlock:
		b.block++
		return b.lose("there is no block")
	}
	b.block++
	chunk, err := b.tape.peek(size)
	if err != nil {
		return b.short(err, "a block's head")
	}
	var h blockHead
	switch ok, err := chunkBody(chunk, &h); {
	case !ok:
		return b.lose("the checksum of the block's head does not match")
	case err != nil:
		return b.lose("the block's head: %s", jsonFault(err))
	}
	if h.Size < 0 || h.Size > maxBlock || h.Bytes < 0 || h.Bytes > maxBlock || h.Line < 1 || h.Block < 1 || h.Lines < 1 {
		return b.lose("the block's head has invalid sizes")
	}
	b.block, b.line = h.Block, h.Line
	chunk, err = b.tape.peek(size + h.Size)
	if err != nil {
		return b.short(err, "the block")
	}
	data := chunk[size:]
	if crc32.Checksum(data, castagnoli) != h.CRC {
		return b.lose("the block's checksum does not match")
	}
	dec, err := decoder()
	if err != nil {
		return b.last(err)
	}
	text, err := dec.DecodeAll(data, make([]byte, 0, h.Bytes))
	if err != nil || len(text) != h.Bytes {
		return b.lose("the block's data is invalid")
	}
	b.text, b.resources, b.start = text, h.Resources, b.tape.at
	b.tape.discard(size + h.Size)
	b.stored++
	b.packedBytes += int64(size + h.Size)
	b.textBytes += int64(len(text))
	return nil
}

// end reads the trailer, which ends a trace.
func (b *blocks) end(size int) error {
	chunk, err := b.tape.peek(size)
	if err != nil {
		b.block++
		return b.short(err, "its trailer")
	}
	if ok, err := chunkBody(chunk, &trailer{}); !ok || err != nil {
		b.block++
		return b.last(corrupt("the trailer is damaged"))
	}
	b.tape.discard(size)
	more, err := b.tape.peek(frontSize + tagSize)
	if len(more) == 0 && errors.Is(err, io.EOF) {
		b.done = true
		return nil
	}
	b.block++
	if len(more) == 0 {
		return b.last(err)
	}
	// Traces can be concatenated.
	if tag, _, ok := chunkFront(more); ok && tag == tagHeader {
		return b.last(corrupt("another trace follows the trailer (trace merge merges two)"))
	}
	return b.last(corrupt("something follows the trailer"))
}

// search moves to the next chunk after a damaged one. It returns false if there is none.
func (b *blocks) search() bool {
	b.lost = false
	if first, _ := b.tape.peek(1); len(first) > 0 {
		b.tape.discard(1)
	}
	for {
		window, err := b.tape.peek(64 << 10)
		at, found := findChunk(window)
		b.tape.discard(at)
		if found || err != nil {
			b.done = !found
			return found
		}
	}
}
