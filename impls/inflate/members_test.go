package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// pack returns a body with a member for each text, flushed and closed as the API server does.
func pack(level int, texts ...[]byte) []byte {
	var b bytes.Buffer
	for _, text := range texts {
		w, _ := gzip.NewWriterLevel(&b, level)
		_, _ = w.Write(text)
		_ = w.Flush()
		_ = w.Close()
	}
	return b.Bytes()
}

func text(rng *rand.Rand, n int) []byte {
	words := strings.Fields("metadata name namespace labels app pod-template-hash ownerReferences uid 0123456789abcdef spec containers image resources limits cpu memory status conditions type Ready True lastTransitionTime 2026-11-27T00:00:00Z phase Running")
	var b []byte
	for len(b) < n {
		if rng.IntN(4) == 0 {
			b = fmt.Appendf(b, "%x", rng.Uint64())
		}
		b = append(append(b, words[rng.IntN(len(words))]...), `":"`[rng.IntN(3):]...)
		if rng.IntN(50) == 0 {
			b = append(b, bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(600))...)
		}
		if rng.IntN(50) == 0 {
			b = append(b, bytes.Repeat([]byte("abcdefghi")[:1+rng.IntN(9)], rng.IntN(60))...)
		}
	}
	return b[:n]
}

func same(t *testing.T, data []byte, src io.Reader) {
	t.Helper()
	want, wantErr := io.ReadAll(Variants()[0].NewReader(bytes.NewReader(data)))
	got, err := io.ReadAll(newMembers(src))
	if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%d bytes, %v; net/http has %d bytes, %v; equal up to %d", len(got), err, len(want), wantErr, prefix(got, want))
	}
	var corrupt flate.CorruptInputError
	if errors.As(wantErr, &corrupt) && !errors.As(err, &corrupt) {
		t.Fatalf("%T in place of %T", err, wantErr)
	}
}

func prefix(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestEqual(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for level := gzip.HuffmanOnly; level <= 9; level++ {
		for _, n := range []int{0, 1, 2, 100, 7_700, 70_000, 1_000_000} {
			data := pack(level, text(rng, n), text(rng, n/2), nil, text(rng, 30))
			same(t, data, bytes.NewReader(data))
			same(t, data, iotest.DataErrReader(bytes.NewReader(data)))
			if n < 10_000 {
				same(t, data, iotest.OneByteReader(bytes.NewReader(data)))
				same(t, data, iotest.HalfReader(bytes.NewReader(data)))
			}
		}
	}
}

func TestTruncatedAndFlipped(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, level := range []int{gzip.HuffmanOnly, gzip.NoCompression, 1, 6} {
		data := pack(level, text(rng, 900), text(rng, 50), text(rng, 2000))
		for i := range data {
			same(t, data[:i], bytes.NewReader(data[:i]))
			for bit := range 8 {
				damaged := bytes.Clone(data)
				damaged[i] ^= 1 << bit
				same(t, damaged, bytes.NewReader(damaged))
			}
		}
	}
}

func FuzzMembers(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, level := range []int{-2, 0, 1, 9} {
		f.Add(pack(level, text(rng, 300), text(rng, 20)))
	}
	f.Add([]byte("\x1f\x8b\x08\x1e\x00\x00\x00\x00\x00\x00\x02\x00abname\x00comment\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		same(t, data, bytes.NewReader(data))
		same(t, data, iotest.OneByteReader(bytes.NewReader(data)))
	})
}
