package trace

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxBlock limits a decompressed block: one block and the longest line. maxWindow limits the
// memory of the decompression of a stream; no zstd level needs more.
const (
	maxBlock  = maxLine + 4<<20
	maxWindow = 128 << 20
)

var dataFrame = []byte{0x28, 0xb5, 0x2f, 0xfd} // start of a zstd frame with data

// isZstd reports whether a file starts with a frame of zstd, or with a skippable one.
func isZstd(magic []byte) bool {
	return bytes.HasPrefix(magic, dataFrame) || len(magic) == 4 && magic[0]>>4 == 5 && string(magic[1:]) == "\x2a\x4d\x18"
}

// decoder decompresses whole blocks for all readers. It uses no goroutines.
var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock))
})

// damage is an unreadable block at an offset of the file.
type damage struct {
	error
	offset int64
}

// blocks decompresses a sequence of zstd frames, the blocks of a trace, one by one. Damage costs
// one block: Read returns a [damage] until resume, and then the next block.
type blocks struct {
	in    io.Reader
	buf   []byte // next bytes of in, from offset at on; inErr is the error after them
	at    int64
	inErr error
	text  []byte // rest of the present block, which starts at offset start
	start int64
	// stream decompresses a file whose first frame is larger than a block. Damage costs its rest.
	stream io.Reader
	err    error
}

func (b *blocks) Read(p []byte) (int, error) {
	for len(b.text) == 0 && b.stream == nil && b.err == nil {
		b.err = b.next()
	}
	if b.stream != nil {
		return b.stream.Read(p)
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

func (b *blocks) next() error {
	if b.fill(1); len(b.buf) == 0 {
		return b.inErr
	}
	dec, err := decoder()
	if err != nil {
		return err
	}
	size, err := b.frameSize()
	if err == nil {
		b.text, err = dec.DecodeAll(b.buf[:size], nil)
	}
	switch {
	case err == nil:
		b.start = b.at
		b.discard(size)
		return nil
	case b.inErr != nil && !errors.Is(b.inErr, io.EOF):
		return b.inErr
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) && b.at == 0:
		// One worker needs no goroutines, which would leak: a Reader has no Close.
		b.stream, err = zstd.NewReader(io.MultiReader(bytes.NewReader(b.buf), b.in),
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		return err
	case !errors.Is(err, ErrTruncated):
		err = corrupt("the block is invalid: %v", err)
	}
	b.text = nil
	return damage{err, b.at}
}

// frameSize reads the next frame into buf and returns its size.
func (b *blocks) frameSize() (int, error) {
	short := truncated("the file ends in a block")
	b.fill(zstd.HeaderMaxSize)
	var h zstd.Header
	switch err := h.Decode(b.buf); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return 0, short
	case err != nil:
		return 0, err
	}
	size := h.HeaderSize + int(h.SkippableSize)
	for last := h.Skippable; !last && size <= maxBlock; {
		if !b.fill(size + 3) {
			return 0, short
		}
		// A block of zstd: the last one or not, its type, and its size.
		head := uint32(b.buf[size]) | uint32(b.buf[size+1])<<8 | uint32(b.buf[size+2])<<16
		n := int(head >> 3)
		if head>>1&3 == 1 {
			n = 1 // one repeated byte
		}
		last = head&1 == 1
		size += 3 + n
	}
	if h.HasCheckSum {
		size += 4
	}
	switch {
	case size > maxBlock:
		return 0, zstd.ErrDecoderSizeExceeded
	case h.FrameContentSize>>15 > uint64(size):
		// A zstd block has at least 4 bytes, and at most 128 KiB of data.
		return 0, errors.New("its size is wrong")
	case !b.fill(size):
		return 0, short
	}
	return size, nil
}

// resume continues after a [damage] at the next frame.
func (b *blocks) resume() {
	b.err = nil
	b.discard(1)
	for more := true; ; {
		at := bytes.Index(b.buf, dataFrame)
		if at < 0 && more {
			b.discard(max(len(b.buf)-len(dataFrame)+1, 0))
			more = b.fill(readSize)
			continue
		}
		if at < 0 {
			at = len(b.buf)
		}
		b.discard(at)
		return
	}
}

// readSize is the size of one read. Memory grows with the data read, not with a size field,
// which may be damaged.
const readSize = 1 << 20

// fill reads until buf has n bytes. It returns false if fewer are left.
func (b *blocks) fill(n int) bool {
	for len(b.buf) < n && b.inErr == nil {
		want := max(min(n-len(b.buf), readSize), 64<<10)
		b.buf = slices.Grow(b.buf, want)
		var m int
		m, b.inErr = b.in.Read(b.buf[len(b.buf) : len(b.buf)+want])
		b.buf = b.buf[:len(b.buf)+m]
	}
	return len(b.buf) >= n
}

// discard removes n bytes of buf. Moving the rest to the front keeps buf from growing.
func (b *blocks) discard(n int) {
	b.at += int64(n)
	b.buf = append(b.buf[:0], b.buf[n:]...)
}
