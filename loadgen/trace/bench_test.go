package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

// BenchmarkFormats writes and reads a recorded stream of pods in each format. ratio is the
// size of the lines divided by the size of the file.
func BenchmarkFormats(b *testing.B) {
	f, err := Open("recorded-nodeloss")
	if err != nil {
		b.Fatal(err)
	}
	frames, err := readAll(NewReader(f, "nodeloss"))
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
	var lines bytes.Buffer
	encode := map[string]func(w io.Writer) error{
		"lines": func(w io.Writer) error { return writeAll(NewLineWriter(w, false), frames) },
		"gzip": func(w io.Writer) error {
			z := gzip.NewWriter(w)
			return errors.Join(writeAll(NewLineWriter(z, false), frames), z.Close())
		},
		"trace": func(w io.Writer) error {
			tw, err := NewWriter(w, Header{})
			if err != nil {
				return err
			}
			return writeAll(tw, frames)
		},
	}
	if err := encode["lines"](&lines); err != nil {
		b.Fatal(err)
	}
	for _, format := range []string{"lines", "gzip", "trace"} {
		b.Run("op=write/format="+format, func(b *testing.B) {
			var out bytes.Buffer
			b.SetBytes(int64(lines.Len()))
			for b.Loop() {
				out.Reset()
				if err := encode[format](&out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*len(frames))/b.Elapsed().Seconds(), "frames/s")
			b.ReportMetric(float64(lines.Len())/float64(out.Len()), "ratio")
		})
		b.Run("op=read/format="+format, func(b *testing.B) {
			var out bytes.Buffer
			if err := encode[format](&out); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(lines.Len()))
			for b.Loop() {
				if _, err := readAll(NewReader(bytes.NewReader(out.Bytes()), "x")); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*len(frames))/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

func writeAll(w *Writer, frames []Frame) error {
	for _, f := range frames {
		if err := w.Write(f); err != nil {
			return err
		}
	}
	return w.Close()
}
