package apiserver

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded yields the raw frames of a recording.
func recorded(t testing.TB, name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		f, err := os.Open(filepath.Join("..", "trace", "recorded", strings.TrimPrefix(name, "recorded-")+".jsonl.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var line struct{ Event json.RawMessage }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if !yield(line.Event) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
}
