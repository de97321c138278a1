package profile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// FuzzRead: a file is a profile that can be written, or the error wraps errFormat.
func FuzzRead(f *testing.F) {
	var heap bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&heap, 0); err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(&heap)
	if err != nil {
		f.Fatal(err)
	}
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(z); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	for _, s := range []string{"", "\x0a\x02\x08\x01", "heap profile: 1: 2 [3: 4] @ heap/1\n", "--- threads:\n", "\x1f\x8b"} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		path := filepath.Join(dir, "x.pprof")
		if err := os.WriteFile(path, pack(t, data), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := read(path)
		if err != nil {
			if !errors.Is(err, errFormat) {
				t.Fatal(err)
			}
			return
		}
		if err := writeFile(filepath.Join(dir, "y.pprof"), p); err != nil {
			t.Fatal(err)
		}
	})
}

// pack compresses what the fuzzer changes.
func pack(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBomb: gzip of more than 64 MiB, and gzip in gzip, are refused.
func TestBomb(t *testing.T) {
	t.Cleanup(runtime.GC) // or the peak of the heap in another test's profile is here
	bomb := pack(t, make([]byte, 80<<20))
	for name, data := range map[string][]byte{"bomb": bomb, "bomb in gzip": pack(t, bomb)} {
		path := filepath.Join(t.TempDir(), "x.pprof")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(path)
		runtime.ReadMemStats(&after)
		// io.ReadAll doubles its buffer.
		if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errFormat) || n > 400<<20 {
			t.Errorf("%s: %d bytes allocated for %d: %v", name, n, len(data), err)
		}
	}
}
