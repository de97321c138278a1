package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"watchlab/bench/lab"
	"watchlab/loadgen/source/cluster"
)

// minimal is the content of a bundle.
const minimal = `{"shard":{"index":0,"of":2,"outcome":{"format":%d,"name":"x","comparisons":[{"family":"queue","cells":[` +
	`{"name":"Queue","labels":[{"key":"impl","value":"a"}],"verdict":{"status":"valid"},"rounds":[{"round":1,"result":{"events":10,"elapsedNs":5,` +
	`"latency":[{"boundary":"a→b","count":0}]}}]}]}]}},"env":{},"histograms":["x"]}`

// FuzzContents: the contents of a bundle with the right checksum are a result that can be merged with another, or
// an error.
func FuzzContents(f *testing.F) {
	f.Add(fmt.Appendf(nil, minimal, lab.Format))
	f.Add([]byte(`{"shard":{"index":0,"of":2,"outcome":{"comparisons":[{"cells":[{},{}]},{}]}}}`))
	f.Add([]byte(`{"shard":{"outcome":{"comparisons":[{"cells":[{"rounds":[{"round":-1},{"round":-1}],"lag":{}}]}]}},"histograms":["",""]}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		var shares []*lab.Share
		for i := range 2 {
			p, err := encode(Header{Run: "x", Index: i, Of: 2}, text)
			if err != nil {
				t.Fatal(err)
			}
			if p, err = Decode(p.Data); err != nil {
				t.Fatal(err)
			}
			s, err := p.PodResult()
			if err != nil {
				if !errors.Is(err, ErrBundle) {
					t.Fatal(err)
				}
				return
			}
			s.Index = i
			for c := range s.Outcome.Comparisons {
				s.Outcome.Comparisons[c].Input = fmt.Sprint(i, c)
			}
			shares = append(shares, s)
		}
		o, err := lab.Merge([]lab.Attempt{{Index: 0}, {Index: 1}}, func(i int) (*lab.Share, error) { return shares[i], nil }, lab.MergeOptions{})
		if err == nil {
			err = errors.Join(o.WriteJSON(io.Discard), o.WriteBench(io.Discard))
		}
		_ = err
	})
}

// FuzzLog: frames of a log are bundles or damage. A checksum that is right is added to each line.
func FuzzLog(f *testing.F) {
	p, err := encode(Header{Run: "x", Of: 1}, []byte("{}"))
	if err != nil {
		f.Fatal(err)
	}
	var log bytes.Buffer
	if err := (Log{&log}).Upload(context.Background(), p); err != nil {
		f.Fatal(err)
	}
	f.Add(log.String())
	f.Add("2026-01-01T00:00:00Z pod " + log.String() + "\n" + frameMark + "x 0/1 0123456789abcdef 538/538 00000000 AAAA\n")
	f.Add(frameMark + "x 0/1 0123456789abcdef 1/2 %08x AAAA\n" + frameMark + "x 0/1 0123456789abcdef 2/3 %08x AAAA\n")
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		text = strings.ReplaceAll(text, "%08x", fmt.Sprintf("%08x", crc32.Checksum([]byte{0, 0, 0}, castagnoli)))
		logs := Logs{{Name: "log", Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}}
		taken := map[string]bool{}
		damage, err := logs.Read(t.Context(), "", func(b Bundle) error {
			if taken[b.ID()] {
				t.Fatalf("%s: twice", b.ID())
			}
			taken[b.ID()] = true
			return nil
		})
		if err != nil && !errors.Is(err, ErrRuns) {
			t.Fatal(err)
		}
		for _, d := range damage {
			_ = d.String()
		}
	})
}

// FuzzPart: a ConfigMap is a part of a bundle or not.
func FuzzPart(f *testing.F) {
	f.Add("0", "2", "1/3", "id")
	f.Add("-1", "x", "0/0", "")
	f.Add("1", "1", "9223372036854775807/9223372036854775807", "id")
	f.Fuzz(func(t *testing.T, index, of, parts, id string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		m := &corev1.ConfigMap{BinaryData: map[string][]byte{dataKey: {1}}}
		m.Labels = map[string]string{cluster.RunLabel: "x", PodLabel: index}
		m.Annotations = map[string]string{OfAnnotation: of, PartAnnotation: parts, BundleAnnotation: id}
		p, err := partOf(m)
		if err != nil {
			return
		}
		if err := newReceiver("", func(Bundle) error { return nil }).part(p, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzTarget: a target is one that it prints, or an error.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"configmap", "log", "dir=/results", "dir=", "log=x", "="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		target, err := ParseTarget(text)
		if err != nil {
			if !errors.Is(err, ErrTarget) {
				t.Fatal(err)
			}
			return
		}
		got := target.Kind
		if target.To != "" {
			got += "=" + target.To
		}
		if got != text {
			t.Fatalf("%q is %q", text, got)
		}
	})
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostile: a bundle or a log that promises more than it has does not allocate it.
func TestHostile(t *testing.T) {
	forged := func(size int64, text []byte) []byte {
		p, err := encode(Header{Run: "x", Of: 1}, text)
		if err != nil {
			t.Fatal(err)
		}
		header, contents, _ := bytes.Cut(p.Data[bytes.IndexByte(p.Data, '\n')+1:], []byte("\n"))
		header = bytes.Replace(header, fmt.Appendf(nil, `"size":%d`, len(text)), fmt.Appendf(nil, `"size":%d`, size), 1)
		body := append(append(header, '\n'), contents...)
		return append(fmt.Appendf(nil, "%s%d %s\n", magic, format, checksum(body)), body...)
	}
	bomb := make([]byte, 64<<20)
	for name, tc := range map[string]struct {
		data []byte
		most uint64
	}{
		"a size above the limit": {forged(maxContents+1, []byte("{}")), 1 << 20},
		"a size without data":    {forged(maxSmall, []byte("{}")), 1 << 20},
		"a bomb":                 {forged(int64(len(bomb)), bomb), 1 << 20},
		"a bomb, small by name":  {forged(10, bomb), 4 << 20},
		"a frame of zstd that says it has 16 MiB": {func() []byte {
			p, _ := encode(Header{Run: "x", Of: 1}, nil)
			header, _, _ := bytes.Cut(p.Data[bytes.IndexByte(p.Data, '\n')+1:], []byte("\n"))
			header = bytes.Replace(header, []byte(`"size":0`), []byte(`"size":16777216`), 1)
			// A single segment of 2^24 bytes, and an empty last block.
			body := append(append(header, '\n'), 0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 1, 1, 0, 0)
			return append(fmt.Appendf(nil, "%s%d %s\n", magic, format, checksum(body)), body...)
		}(), 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			n := allocated(func() {
				var p Bundle
				if p, err = Decode(tc.data); err == nil {
					_, err = p.PodResult()
				}
			})
			if !errors.Is(err, ErrBundle) || n > tc.most {
				t.Errorf("%d bytes allocated for %d: %v", n, len(tc.data), err)
			}
		})
	}
	t.Run("frames", func(t *testing.T) {
		var log strings.Builder
		sum := crc32.Checksum([]byte{0, 0, 0}, castagnoli)
		for i := range 10_000 {
			fmt.Fprintf(&log, "%sx 0/1 %016x 1/%d %08x AAAA\n", frameMark, i, MaxLog/framePart+1, sum)
		}
		logs := Logs{{Name: "log", Open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(log.String())), nil
		}}}
		n := allocated(func() {
			if damage, err := logs.Read(t.Context(), "", nil); err != nil || len(damage) != 10_000 {
				t.Errorf("%d damaged, %v", len(damage), err)
			}
		})
		if most := 40 * uint64(log.Len()); n > most {
			t.Errorf("%d bytes allocated for a log of %d (allowed: %d)", n, log.Len(), most)
		}
	})
}
