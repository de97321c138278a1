//go:build mutants

package inflate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"

	"watchlab/impls/conformance"
)

// uncheckedReader takes a wrong checksum for the end.
type uncheckedReader struct{ io.Reader }

func (r uncheckedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, gzip.ErrChecksum) {
		err = io.EOF
	}
	return n, err
}

// TestMutants: the suite detects a reader with a deliberate bug.
func TestMutants(t *testing.T) {
	mutants := []conformance.Mutant{
		{Name: "one-member", Broken: "ends after the first member", Check: "recorded streams"},
		{Name: "unchecked", Broken: "takes a wrong checksum", Check: "every bit flipped"},
		{Name: "whole", Broken: "reads the whole body before it returns a byte", Check: "bounded memory"},
	}
	readers := []func(io.Reader) (io.Reader, error){
		func(body io.Reader) (io.Reader, error) {
			r, err := gzip.NewReader(body)
			if err == nil {
				r.Multistream(false)
			}
			return r, err
		},
		func(body io.Reader) (io.Reader, error) {
			r, err := gzip.NewReader(body)
			return uncheckedReader{r}, err
		},
		func(body io.Reader) (io.Reader, error) {
			r, err := gzip.NewReader(body)
			if err != nil {
				return r, err
			}
			all, err := io.ReadAll(r)
			return bytes.NewReader(all), err
		},
	}
	conformance.RunMutants(t, mutants, func(t *testing.T, i int) {
		runVariant(t, variant(mutants[i].Name, mutants[i].Broken, Decompressor{"gzip", lazily(readers[i])}))
	})
}
