package apiserver

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"testing"

	"watchlab/loadgen/trace"
)

// recorded yields the raw frames of a recording.
func recorded(t testing.TB, name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		f, err := trace.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		for r := trace.NewReader(f, name); ; {
			switch f, err := r.Next(); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				t.Fatal(err)
			case !yield(fmt.Appendf(nil, `{"type":%q,"object":%s}`, f.Type, f.Object)):
				return
			}
		}
	}
}
