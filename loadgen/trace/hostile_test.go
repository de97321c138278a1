package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// frameOf is a frame of zstd that says it has size bytes, with n blocks of 128 KiB of one repeated byte.
func frameOf(size uint32, n int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)}
	for i := range n {
		head := uint32(128<<10)<<3 | 1<<1
		if i == n-1 {
			head |= 1
		}
		b = append(b, byte(head), byte(head>>8), byte(head>>16), '\n')
	}
	if n == 0 {
		b = append(b, 1, 0, 0)
	}
	return b
}

// TestHostile: what a recording says of its size allocates at most a window, and a bomb ends with an error.
func TestHostile(t *testing.T) {
	const mib = 1 << 20
	line := frame(1, "ADDED", pod("a", ""))
	zeros := func(w io.WriteCloser, line string, size int) {
		for n := 0; n < size; n += len(line) {
			if _, err := io.WriteString(w, line); err != nil {
				t.Fatal(err)
			}
		}
		noError(t, w.Close())
	}
	var long, many, packed bytes.Buffer
	zeros(gzip.NewWriter(&long), strings.Repeat("x", mib), 64*mib)
	zeros(gzip.NewWriter(&many), strings.Repeat(line, mib/len(line)), 8*mib)
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	zeros(z, strings.Repeat(line, mib/len(line)), 40*mib)
	for name, tc := range map[string]struct {
		data []byte
		most uint64
		want error
	}{
		"a frame that says it has 32 MiB": {frameOf(32*mib, 0), 40 * mib, ErrCorrupt},
		"a frame that says it has 4 GiB":  {frameOf(1<<32-1, 0), 4 * mib, ErrCorrupt},
		"a skippable frame of 4 GiB":      {[]byte("\x50\x2a\x4d\x18\xff\xff\xff\xff"), 16 * mib, nil},
		"32 MiB of blank lines":           {frameOf(32*mib, 256), 128 * mib, ErrCorrupt},
		"a line of 64 MiB":                {long.Bytes(), 256 * mib, ErrCorrupt},
		"40 MiB of equal lines":           {packed.Bytes(), 1 << 40, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := NewReader(bytes.NewReader(tc.data), "x")
			r.maxSmall = 16 * mib
			var err error
			for err == nil {
				_, err = r.Next()
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > tc.most {
				t.Errorf("%d bytes allocated for %d", n, len(tc.data))
			}
			if errors.Is(err, io.EOF) || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
	// Below the limit nothing is refused.
	if frames, err := readAll(NewReader(&many, "x")); err != nil || len(frames) == 0 {
		t.Errorf("%d frames, %v", len(frames), err)
	}
}
