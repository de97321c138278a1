//go:build mutants

package inflate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"testing/iotest"

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

// mutants are readers with a deliberate bug.
var mutants = []struct {
	conformance.Mutant
	open func(*gzip.Reader) io.Reader
}{
	{conformance.Mutant{Name: "one-member", Broken: "ends after the first member", Check: "recorded streams"}, func(r *gzip.Reader) io.Reader {
		r.Multistream(false)
		return r
	}},
	{conformance.Mutant{Name: "unchecked", Broken: "takes a wrong checksum", Check: "every bit flipped"}, func(r *gzip.Reader) io.Reader {
		return uncheckedReader{r}
	}},
	{conformance.Mutant{Name: "whole", Broken: "reads the whole body before it returns a byte", Check: "bounded memory"}, func(r *gzip.Reader) io.Reader {
		all, _ := io.ReadAll(r)
		return bytes.NewReader(all)
	}},
}

func TestMutants(t *testing.T) {
	var all []conformance.Mutant
	for _, m := range mutants {
		all = append(all, m.Mutant)
	}
	conformance.RunMutants(t, all, func(t *testing.T, i int) {
		runVariant(t, variant(all[i].Name, all[i].Broken, Decompressor{"gzip", func(body io.Reader) io.Reader {
			r, err := gzip.NewReader(body)
			if err != nil {
				return iotest.ErrReader(err)
			}
			return mutants[i].open(r)
		}}))
	})
}
