package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/loadgen/trace"
)

// TestConformance compares the readers of all variants with that of net/http.
func TestConformance(t *testing.T) {
	for _, v := range Variants() {
		if d, err := New(v.Name, Options{}); err != nil || d.NewReader == nil != (d.Encoding == "identity") {
			t.Errorf("%s: %+v, %v", v.Name, d, err)
		} else if d.NewReader != nil {
			runVariant(t, v)
		}
	}
	_, err := New("zlib", Options{})
	if want := `inflate: unknown variant "zlib" (have clientgo, members, none)`; !errors.Is(err, impls.ErrUnknownVariant) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func runVariant(t *testing.T, v Variant) {
	d, err := v.New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("impl="+v.Name, func(t *testing.T) { conformance.Run(t, d, checks) })
}

var checks = []conformance.Check[Decompressor]{
	{Name: "recorded streams", Run: func(t *testing.T, d Decompressor) {
		for _, protobuf := range []bool{false, true} {
			objs := recorded(t, protobuf, 100)
			for _, group := range []int{1, 10, len(objs)} { // objects of a member
				var texts [][]byte
				for some := range slices.Chunk(objs, group) {
					texts = append(texts, bytes.Join(some, nil))
				}
				got, err := io.ReadAll(d.NewReader(bytes.NewReader(pack(gzip.BestSpeed, texts...))))
				if err != nil || !bytes.Equal(got, bytes.Join(objs, nil)) {
					t.Errorf("protobuf %v, %d objects a member: %d other bytes, %v", protobuf, group, len(got), err)
				}
			}
		}
	}},
	{Name: "levels and sizes", Run: func(t *testing.T, d Decompressor) {
		rng := rand.New(rand.NewPCG(1, 2))
		for level := gzip.HuffmanOnly; level <= 9; level++ {
			for _, n := range []int{0, 1, 100, 7_700, 200_000} {
				data := pack(level, text(rng, n), text(rng, n/2), nil, text(rng, 30))
				same(t, d, data, bytes.NewReader(data))
				same(t, d, data, iotest.DataErrReader(bytes.NewReader(data)))
				if n < 10_000 {
					same(t, d, data, iotest.OneByteReader(bytes.NewReader(data)))
					same(t, d, data, iotest.HalfReader(bytes.NewReader(data)))
				}
			}
		}
	}},
	{Name: "cut at every byte", Run: func(t *testing.T, d Decompressor) {
		damage(func(data []byte, i int) {
			same(t, d, data, io.MultiReader(bytes.NewReader(data[:i]), bytes.NewReader(data[i:])))
		})
	}},
	{Name: "an event before its member ends", Run: func(t *testing.T, d Decompressor) {
		rng := rand.New(rand.NewPCG(1, 2))
		var body bytes.Buffer
		gz := gzip.NewWriter(&body)
		r := d.NewReader(&body)
		for _, n := range []int{1, 7_700, 100_000} {
			want := text(rng, n)
			_, _ = gz.Write(want)
			_ = gz.Flush() // body.Read returns io.EOF if more is read
			if got, err := io.ReadAll(io.LimitReader(r, int64(n))); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes of %d, %v", len(got), n, err)
			}
			_ = gz.Close()
			gz.Reset(&body)
		}
	}},
	{Name: "bounded memory", Run: func(t *testing.T, d Decompressor) {
		bomb := pack(9, make([]byte, 64<<20))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, err := io.Copy(io.Discard, d.NewReader(bytes.NewReader(bomb)))
		runtime.ReadMemStats(&after)
		if size := after.TotalAlloc - before.TotalAlloc; n != 64<<20 || err != nil || size > 1<<20 {
			t.Errorf("%d bytes of %d, %v, in %d bytes of memory", n, len(bomb), err, size)
		}
	}},
	{Name: "truncated at every byte", Run: func(t *testing.T, d Decompressor) {
		damage(func(data []byte, i int) { same(t, d, data[:i], bytes.NewReader(data[:i])) })
	}},
	{Name: "every bit flipped", Run: func(t *testing.T, d Decompressor) { // the checksums and sizes among them
		damage(func(data []byte, i int) {
			for bit := range 8 {
				damaged := bytes.Clone(data)
				damaged[i] ^= 1 << bit
				same(t, d, damaged, bytes.NewReader(damaged))
			}
		})
	}},
	{Name: "behind the last member", Run: func(t *testing.T, d Decompressor) {
		for _, trailing := range []string{"\x00", "\x1f", "\x1f\x8b", "no member", strings.Repeat("\x00", 512), "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x03\x09\x00abc"} {
			data := append(pack(6, []byte("an event")), trailing...)
			same(t, d, data, bytes.NewReader(data))
		}
	}},
}

// recorded returns the first objects of a recording.
func recorded(t *testing.T, protobuf bool, n int) (objs [][]byte) {
	in, err := trace.Open("recorded-rollout")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	for r := trace.NewReader(in, "recorded-rollout"); len(objs) < n; {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		obj := f.Object
		if protobuf {
			var pod v1.Pod
			err1 := json.Unmarshal(f.Object, &pod)
			b, err2 := pod.Marshal()
			if obj = b; errors.Join(err1, err2) != nil {
				t.Fatal(err1, err2)
			}
		}
		objs = append(objs, obj)
	}
	return objs
}

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

// damage calls f with each place of bodies of three members.
func damage(f func(data []byte, i int)) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, level := range []int{gzip.HuffmanOnly, gzip.NoCompression, 1, 6} {
		data := pack(level, text(rng, 400), text(rng, 50), text(rng, 700))
		for i := range data {
			f(data, i)
		}
	}
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

// same fails unless the bytes and the error are those of net/http for the data, which src has.
func same(t *testing.T, d Decompressor, data []byte, src io.Reader) {
	t.Helper()
	exact, _ := New(Default, Options{})
	want, wantErr := io.ReadAll(exact.NewReader(bytes.NewReader(data)))
	got, err := io.ReadAll(d.NewReader(src))
	if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%d bytes, %v; net/http has %d bytes, %v", len(got), err, len(want), wantErr)
	}
	var corrupt flate.CorruptInputError
	if errors.As(wantErr, &corrupt) && !errors.As(err, &corrupt) {
		t.Fatalf("%T in place of %T", err, wantErr)
	}
}

func FuzzMembers(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, level := range []int{-2, 0, 1, 9} {
		f.Add(pack(level, text(rng, 300), text(rng, 20)))
	}
	f.Add([]byte("\x1f\x8b\x08\x1e\x00\x00\x00\x00\x00\x00\x02\x00abname\x00comment\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	d, _ := New("members", Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		same(t, d, data, bytes.NewReader(data))
		same(t, d, data, iotest.OneByteReader(bytes.NewReader(data)))
	})
}
