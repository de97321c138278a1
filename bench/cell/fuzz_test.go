package cell_test

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
)

// histogramOf encodes the uncompressed bytes of a histogram.
func histogramOf(t testing.TB, content []byte) string {
	t.Helper()
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint32(nil, 0x1c849314)
	head = binary.BigEndian.AppendUint32(head, uint32(z.Len()))
	return base64.StdEncoding.EncodeToString(append(head, z.Bytes()...))
}

// contentOf returns the uncompressed bytes of a histogram with a range, a precision and counters.
func contentOf(lowest, highest int64, digits int32, counts []byte) []byte {
	var b []byte
	for _, v := range []int32{0x1c849313, int32(len(counts)), 0, digits} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(lowest))
	b = binary.BigEndian.AppendUint64(b, uint64(highest))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(1))
	return append(b, counts...)
}

// FuzzHistogram: the content of a histogram is one, whose count MergeHistograms agrees with, or an error.
func FuzzHistogram(f *testing.F) {
	f.Add(contentOf(1, int64(time.Hour), 3, nil))
	f.Add(contentOf(1, int64(time.Hour), 3, []byte{2, 4, 1, 2}))
	f.Add(contentOf(1, int64(time.Hour), 3, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))
	f.Add(contentOf(1, math.MaxInt64, 5, nil))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		encoded := histogramOf(t, content)
		read, err := cell.DecodeQuantiles(encoded)
		if err != nil {
			return
		}
		merged, err := cell.MergeHistograms(read, read)
		if err != nil && !strings.Contains(err.Error(), "too many to count") || err == nil && merged.Count != 2*read.Count {
			t.Fatalf("%d values, of two %d: %v", read.Count, merged.Count, err)
		}
	})
}

// TestHistogramMemory: a histogram of another range and precision does not allocate its counters.
func TestHistogramMemory(t *testing.T) {
	encoded := histogramOf(t, contentOf(1, math.MaxInt64, 5, nil))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := cell.DecodeQuantiles(encoded)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 1<<20 {
		t.Errorf("%d bytes allocated for a histogram of %d: %v", n, len(encoded), err)
	}
}
