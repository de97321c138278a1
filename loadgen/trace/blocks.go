package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

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

// drop is like discard, but n may exceed the bytes of the last peek.
func (t *tape) drop(n int) error {
	if len(t.buf) >= n {
		t.discard(n)
		return nil
	}
	rest := int64(n - len(t.buf))
	t.discard(len(t.buf))
	if t.err != nil {
		return t.err
	}
	m, err := io.CopyN(io.Discard, t.in, rest)
	t.at += m
	if err != nil {
		t.err = err
	}
	return err
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
	at        int64
	resources []Resource
	// open skips blocks that end before skip.
	skip time.Duration
	// err repeats until resume.
	err error
	// lost: the offset of the next chunk is unknown. done: the index was read. torn: the
	// missing end was reported.
	lost, done, torn bool
	// stored is the number of blocks read, packedBytes their compressed size, textBytes the
	// size of their lines.
	stored                 int
	packedBytes, textBytes int64
}

func newBlocks(t tape, name string) *blocks {
	b := &blocks{name: name, tape: t, line: 1}
	if err := b.header(); err != nil {
		b.err = err
	}
	return b
}

// decoder decompresses whole blocks for all readers. It uses no goroutines.
var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock))
})

// fail returns an error of the current chunk. The header counts as the first block.
func (b *blocks) fail(cause error) *Error {
	return &Error{Name: b.name, Block: max(b.block, 1), Offset: b.tape.at, Err: cause}
}

// lose is like fail, but the offset of the next chunk is unknown.
func (b *blocks) lose(format string, args ...any) *Error {
	b.lost = true
	return b.fail(corrupt(format, args...))
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
		return b.fail(fmt.Errorf("%w: the trace is of version %d, and this program reads up to %d", ErrVersion, b.head.Format, Version))
	}
	b.tape.discard(size)
	return nil
}

// short returns the error for a stream that ends within a part.
func (b *blocks) short(err error, what string) error {
	if !errors.Is(err, io.EOF) {
		return b.fail(err)
	}
	b.torn, b.lost = true, true
	return b.fail(truncated("the file ends in %s", what))
}

func (b *blocks) next() (rawLine, error) {
	for {
		if b.err != nil {
			return rawLine{}, b.err
		}
		if len(b.text) > 0 {
			return b.take(), nil
		}
		if b.done {
			return rawLine{}, io.EOF
		}
		if err := b.open(); err != nil {
			if !errors.Is(err, io.EOF) {
				b.err = err
			}
			return rawLine{}, err
		}
	}
}

// take returns the next line and removes it from text.
func (b *blocks) take() rawLine {
	line, rest, _ := bytes.Cut(b.text, []byte("\n"))
	b.text = rest
	raw := rawLine{data: line, form: blockForm, line: b.line, offset: b.at, block: b.block, resources: b.resources}
	b.line++
	return raw
}

// open reads the next chunk. After a block head it also reads the block.
func (b *blocks) open() error {
	front, err := b.tape.peek(frontSize + tagSize)
	if err != nil {
		if len(front) == 0 && errors.Is(err, io.EOF) {
			if b.torn {
				return io.EOF
			}
			b.torn = true
			return b.fail(truncated("the file ends without its index"))
		}
		b.block++
		return b.short(err, "a block's head")
	}
	tag, size, ok := chunkFront(front)
	switch {
	case ok && tag == tagIndex:
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
	if h.Last < b.skip {
		if err := b.tape.drop(size + h.Size); err != nil {
			return b.short(err, "the block")
		}
		b.line += h.Lines
		return nil
	}
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
		return b.fail(err)
	}
	text, err := dec.DecodeAll(data, make([]byte, 0, h.Bytes))
	if err != nil || len(text) != h.Bytes {
		return b.lose("the block's data is invalid")
	}
	b.text, b.resources, b.at = text, h.Resources, b.tape.at
	b.tape.discard(size + h.Size)
	b.stored++
	b.packedBytes += int64(size + h.Size)
	b.textBytes += int64(len(text))
	return nil
}

// end reads the index, which ends a trace.
func (b *blocks) end(size int) error {
	chunk, err := b.tape.peek(size)
	if err != nil {
		b.block++
		return b.short(err, "its index")
	}
	var x index
	if ok, err := chunkBody(chunk, &x); !ok || err != nil {
		// All blocks were read, so the index is not needed.
		b.done = true
		b.block++
		return b.fail(corrupt("the index is damaged"))
	}
	b.tape.discard(size)
	b.done = true
	if more, err := b.tape.peek(1); len(more) > 0 || !errors.Is(err, io.EOF) {
		b.block++
		if len(more) == 0 {
			return b.fail(err)
		}
		// More traces may follow: files can be concatenated.
		if front, _ := b.tape.peek(frontSize + tagSize); len(front) == frontSize+tagSize {
			if tag, _, ok := chunkFront(front); ok && tag == tagHeader {
				return b.fail(corrupt("another trace follows the index (trace merge merges two)"))
			}
		}
		return b.fail(corrupt("something follows the index"))
	}
	return io.EOF
}

// resume searches the stream for the next chunk.
func (b *blocks) resume() bool {
	b.err = nil
	if b.head.Format > Version {
		return false
	}
	if !b.lost {
		return !b.done && !b.torn
	}
	b.lost = false
	step := 1
	for {
		window, err := b.tape.peek(step + 64<<10)
		if len(window) <= step {
			b.tape.discard(len(window))
			return false
		}
		at, found := findChunk(window[step:])
		if found {
			b.tape.discard(step + at)
			b.torn = false
			return true
		}
		if err != nil {
			b.tape.discard(len(window))
			return false
		}
		b.tape.discard(step + at)
		step = 0
		if at == 0 {
			// The window was full but too short for its only candidate.
			step = 1
		}
	}
}

func (b *blocks) damaged(rawLine) {}

// seek moves to the first block that may have a line at or after from. It uses the index of a
// seekable stream. In other streams, open skips blocks without decompressing them.
func (b *blocks) seek(from time.Duration) {
	b.skip = from
	s, ok := b.tape.in.(io.ReadSeeker)
	if !ok || b.err != nil || b.block > 0 || b.tape.err != nil && !errors.Is(b.tape.err, io.EOF) {
		return
	}
	size, err := s.Seek(0, io.SeekEnd)
	if err == nil {
		var x index
		if x, err = readIndex(s, size); err == nil {
			i := sort.Search(len(x.Blocks), func(i int) bool { return x.Blocks[i].Last >= from })
			if i < len(x.Blocks) && x.Blocks[i].At > b.tape.at {
				if _, err = s.Seek(x.Blocks[i].At, io.SeekStart); err == nil {
					b.tape = tape{in: b.tape.in, at: x.Blocks[i].At}
					b.block = i
					return
				}
			}
		}
	}
	// Restore the position of the stream.
	if _, err := s.Seek(b.tape.at+int64(len(b.tape.buf)), io.SeekStart); err != nil {
		b.tape.err = err
	}
}

// errNoIndex is the error for a trace without a readable index.
var errNoIndex = errors.New("no index")

// readIndex reads the index from the end of a trace of the given size.
func readIndex(s io.ReadSeeker, size int64) (index, error) {
	var tail [tailSize]byte
	if size < overhead {
		return index{}, errNoIndex
	}
	if err := readAt(s, size-tailSize, tail[:]); err != nil {
		return index{}, err
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if length > maxIndex || length+overhead > size {
		return index{}, errNoIndex
	}
	chunk := make([]byte, length+overhead)
	if err := readAt(s, size-int64(len(chunk)), chunk); err != nil {
		return index{}, err
	}
	tag, n, ok := chunkFront(chunk)
	if !ok || tag != tagIndex || n != len(chunk) {
		return index{}, errNoIndex
	}
	var x index
	if ok, err := chunkBody(chunk, &x); !ok || err != nil {
		return index{}, errNoIndex
	}
	return x, nil
}

func readAt(s io.ReadSeeker, at int64, b []byte) error {
	if _, err := s.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(s, b)
	return err
}
