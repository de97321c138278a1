package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/loadgen/storm"
)

var (
	leaseResource  = Resource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"}
	widgetResource = Resource{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget"}
)

func object(r Resource, name, rest string) []byte {
	version := r.Version
	if r.Group != "" {
		version = r.Group + "/" + version
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"ns","name":%q}%s}`, version, r.Kind, name, rest)
}

// several returns frames of three resources, with a break, as a trace has them.
func several() []Frame {
	var frames []Frame
	add := func(r Resource, t watch.EventType, name string) {
		frames = append(frames, Frame{Offset: time.Duration(10 * len(frames)), Type: t, Object: object(r, name, ""), Resource: r, Line: len(frames) + 2})
	}
	add(leaseResource, watch.Added, "l")
	add(podResource, watch.Added, "a")
	add(podResource, watch.Added, "b")
	add(widgetResource, watch.Added, "w")
	add(leaseResource, watch.Modified, "l")
	frames = append(frames, Frame{Offset: 50, Resource: podResource, Line: 7, Break: &Break{Reason: Relisted, From: "7", Until: "9", DownNs: 5, Deleted: 1}})
	add(podResource, watch.Deleted, "a")
	add(podResource, watch.Modified, "b")
	add(widgetResource, watch.Deleted, "w")
	return frames
}

// encodeFrames writes a trace with n frames per block.
func encodeFrames(t testing.TB, frames []Frame, n int, resources ...Resource) []byte {
	t.Helper()
	file, _ := encodeBlocks(t, frames, n, resources...)
	return file
}

// encodeBlocks returns the offsets of the ends of whole blocks, too, without that of the header.
func encodeBlocks(t testing.TB, frames []Frame, n int, resources ...Resource) (file []byte, ends []int) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Tool: "test", Origin: "made up", Started: time.Unix(1e9, 0).UTC(), Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		noError(t, w.Write(f))
		if (i+1)%n == 0 {
			noError(t, w.Flush())
			ends = append(ends, b.Len())
		}
	}
	noError(t, w.Close())
	return b.Bytes(), ends
}

func TestWriterReader(t *testing.T) {
	frames := several()
	file := encodeFrames(t, frames, 4, podResource)
	r := NewReader(iotest.HalfReader(bytes.NewReader(file)), "x")
	got := must(readAll(r))(t)
	if diff := cmp.Diff(frames, got); diff != "" {
		t.Error(diff)
	}
	want := Header{
		Format: 2, Tool: "test", Origin: "made up", Started: time.Unix(1e9, 0).UTC(),
		// The main resource is first, the others follow in order of appearance.
		Resources: []Resource{podResource, leaseResource, widgetResource},
	}
	if diff := cmp.Diff(want, r.Header()); diff != "" {
		t.Error(diff)
	}
	// Without this package: zstd converts the trace to JSON lines.
	dec := must(zstd.NewReader(bytes.NewReader(file), zstd.WithDecoderConcurrency(1)))(t)
	defer dec.Close()
	text, err := io.ReadAll(dec)
	if err != nil {
		t.Fatal(err)
	}
	if stored, size := r.Sizes(); stored != int64(len(file)) || size != int64(len(text)) {
		t.Errorf("%d bytes of %d, lines of %d of %d", stored, len(file), size, len(text))
	}
	lines := NewReader(bytes.NewReader(text), "x")
	if got, err = readAll(lines); err != nil || lines.Format() != TraceFormat {
		t.Fatalf("%s: %v", lines.Format(), err)
	}
	if diff := cmp.Diff(frames, got); diff != "" {
		t.Error(diff)
	}
}

// TestGoldenTrace: traces of version 2 stay readable.
func TestGoldenTrace(t *testing.T) {
	path := filepath.Join("testdata", "version2.jsonl.zst")
	if *update {
		noError(t, os.WriteFile(path, encodeFrames(t, several(), 4, podResource), 0o600))
	}
	file := must(os.ReadFile(path))(t)
	got := must(readAll(NewReader(bytes.NewReader(file), "x")))(t)
	if diff := cmp.Diff(several(), got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl.zst")
	write(t, path, string(encodeFrames(t, several(), 2, podResource)))
	set := must(LoadSet(path))(t)
	for _, s := range set.Storms {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for _, s := range set.Storms {
		got = append(got, fmt.Sprintf("%s %d events of %T", s.Resource.Resource, len(s.Events), s.Events[0].Object))
	}
	want := []string{"pods 4 events of *v1.Pod", "leases 2 events of *v1.Lease", "widgets 2 events of *unstructured.Unstructured"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	i := slices.IndexFunc(set.Storms, func(s *storm.Storm) bool { return s.Resource.Resource == "widgets" })
	if i < 0 || set.Storms[i].Events[1].Object.(*unstructured.Unstructured).GetResourceVersion() != "2" {
		t.Error("the widgets are not numbered")
	}
	s := must(Load(path))(t)
	if diff := cmp.Diff(set.Storms[0], s); diff != "" {
		t.Error(diff)
	}
}

// TestTraceCut cuts a trace after every byte: flushed blocks are readable.
func TestTraceCut(t *testing.T) {
	frames := several()
	file, ends := encodeBlocks(t, frames, 2)
	for cut := 1; cut < len(file); cut++ {
		got, err := readAll(NewReader(bytes.NewReader(file[:cut]), "x"))
		if !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if cut < 8 {
			continue // too short to detect the format
		}
		blocks, _ := slices.BinarySearch(ends, cut+1)
		if want := min(2*blocks, len(frames)); len(got) < want || !reflect.DeepEqual(frames[:len(got)], append([]Frame{}, got...)) {
			t.Fatalf("cut at %d: %d frames, want %d: %s", cut, len(got), want, cmp.Diff(frames[:len(got)], got))
		}
		tolerant := NewReader(bytes.NewReader(file[:cut]), "x")
		faults := 0
		tolerant.Tolerate(func(*Error) { faults++ })
		kept, err := readAll(tolerant)
		if err != nil || faults != 1 || len(kept) != len(got)+1 || kept[len(kept)-1].Break.Reason != Unreadable {
			t.Fatalf("cut at %d, tolerant: %d frames, %d faults, %v", cut, len(kept), faults, err)
		}
	}
}

// TestTraceDamaged flips, removes or inserts every byte: what is read before the damage is right.
func TestTraceDamaged(t *testing.T) {
	frames := several()
	file := encodeFrames(t, frames, 2)
	step := 1
	if testing.Short() {
		step = 7
	}
	for how, f := range map[string]func(i int) []byte{
		"flipped": func(i int) []byte {
			b := bytes.Clone(file)
			b[i] ^= 0x55
			return b
		},
		"taken out": func(i int) []byte { return append(bytes.Clone(file[:i]), file[i+1:]...) },
		"put in":    func(i int) []byte { return append(append(bytes.Clone(file[:i]), 'x'), file[i:]...) },
	} {
		// The first bytes identify the format, so they stay intact.
		for i := 12; i < len(file); i += step {
			got, err := readAll(NewReader(bytes.NewReader(f(i)), "x"))
			// Some bits of zstd's headers have no effect on the data. A block is checked at its end: its last frames may
			// be damaged before.
			sure := max(0, len(got)-2)
			if err == nil {
				sure = len(frames)
			}
			if sure > len(got) || !reflect.DeepEqual(frames[:sure], append([]Frame{}, got[:sure]...)) {
				t.Fatalf("byte %d of %d %s: %d frames: %v", i, len(file), how, len(got), err)
			}
		}
	}
}

// TestDamagePassed: the checksum of a large block comes after its lines, and a tolerant reader returns none that is broken.
func TestDamagePassed(t *testing.T) {
	file := must(recorded.ReadFile(folder + "/nodeloss.jsonl.zst"))(t)
	for _, at := range []int{63_823, 115_560, 235_511} {
		damaged := bytes.Clone(file)
		damaged[at] ^= 0x55
		r := NewReader(bytes.NewReader(damaged), "x")
		r.Tolerate(func(*Error) {})
		for g, err := r.Next(); err == nil; g, err = r.Next() {
			if g.Break == nil && !json.Valid(g.Object) {
				t.Fatalf("byte %d: line %d is %.200q", at, g.Line, g.Object)
			}
		}
	}
}

// TestVersion: a trace of a later version has another error than a damaged one.
func TestVersion(t *testing.T) {
	text := fmt.Sprintf(`{"header":{"format":%d}}`+"\n", Version+1)
	_, err := readAll(NewReader(strings.NewReader(text), "x"))
	var fault error
	tolerant := NewReader(strings.NewReader(text), "x")
	tolerant.Tolerate(func(e *Error) { fault = e })
	_, _ = readAll(tolerant)
	for _, err := range []error{err, fault} {
		want := "trace x: line 1 (byte 0): unknown version: the trace is of version 3, and this program reads up to 2"
		if !errors.Is(err, ErrVersion) || err.Error() != want {
			t.Error(err)
		}
	}
}

// TestFrames: a trace whose number of frames is wrong, or that something follows, is corrupt.
func TestFrames(t *testing.T) {
	file, ends := encodeBlocks(t, several(), 2)
	for want, file := range map[string][]byte{
		"7 of its 9 frames": slices.Concat(file[:ends[0]], file[ends[1]:]), "trace convert": slices.Concat(file, file),
	} {
		if _, err := readAll(NewReader(bytes.NewReader(file), "x")); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestWriterErrors(t *testing.T) {
	var b bytes.Buffer
	w := must(NewWriter(&b, Header{}))(t)
	good := several()[0]
	good.Offset = 5
	noError(t, w.Write(good))
	for name, change := range map[string]func(*Frame){
		"time before":      func(f *Frame) { f.Offset = 4 },
		"unknown type":     func(f *Frame) { f.Type = "PATCHED" },
		"no object":        func(f *Frame) { f.Object = nil },
		"not JSON":         func(f *Frame) { f.Object = []byte("{") },
		"an array":         func(f *Frame) { f.Object = []byte("[]") },
		"two objects":      func(f *Frame) { f.Object = []byte("{}{}") },
		"no resource":      func(f *Frame) { f.Resource = Resource{} },
		"strange resource": func(f *Frame) { f.Resource.Resource = `po"ds` },
	} {
		f := good
		change(&f)
		if err := w.Write(f); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Object = []byte("{\n \"a\": \"\\n\"\r\n}")
	if err := errors.Join(w.Write(good), w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if err := w.Write(good); err == nil {
		t.Error("Write after Close")
	}
	got, err := readAll(NewReader(&b, "x"))
	if err != nil || len(got) != 2 || string(got[1].Object) != `{"a":"\n"}` {
		t.Errorf("%d frames, %v", len(got), err)
	}
	broken := errors.New("disk full")
	if _, err := NewWriter(failingWriter{broken}, Header{}); !errors.Is(err, broken) {
		t.Errorf("NewWriter: %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// TestDocuments: raw watch output, without its damaged documents.
func TestDocuments(t *testing.T) {
	compact := `{"type":"ADDED","object":` + pod("a", "") + "}\n" + `{"object":` + pod("b", `,"spec":{"nodeName":"}\"{"}`) + `,"type":"MODIFIED"}` + "\n"
	between := func(s string) string { return strings.ReplaceAll(compact, "}\n{", s) }
	want := []string{"1 ADDED a", "2 MODIFIED b"}
	for name, tc := range map[string]struct {
		in     string
		want   []string
		faults []string
	}{
		"lines":       {compact, want, nil},
		"pretty":      {watched(t, frame(1, "ADDED", pod("a", ""))+frame(2, "MODIFIED", pod("b", ""))), []string{"1 ADDED a", "13 MODIFIED b"}, nil},
		"blank lines": {"\n" + strings.ReplaceAll(compact, "\n", "\r\n\n"), []string{"2 ADDED a", "4 MODIFIED b"}, nil},
		"garbage between": {
			between("}\nhello\n{"), []string{"1 ADDED a", "3 MODIFIED b"},
			[]string{"line 2 (byte 123): corrupt: not a watch's event in JSON: invalid character 'h' looking for beginning of value"},
		},
		"a brace lost":     {between("\n{"), want[1:], []string{"line 1 (byte 0): corrupt: the document does not end before line 2"}},
		"a brace too many": {between("}}\n{"), want[1:], []string{"line 1 (byte 0): corrupt: the document does not end before line 2"}},
		"cut":              {compact[:len(compact)-9], want[:1], []string{"line 2 (byte 123): truncated: the file ends in the middle of the document"}},
		"another type": {
			strings.ReplaceAll(compact, "MODIFIED", "PATCHED"), want[:1],
			[]string{`line 2 (byte 123): corrupt: event type "PATCHED" (allowed: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(strings.NewReader(tc.in), "x")
			var faults, got []string
			r.Tolerate(func(e *Error) { faults = append(faults, strings.TrimPrefix(e.Error(), "trace x: ")) })
			frames, err := readAll(r)
			if err != nil || r.Format() != WatchFormat {
				t.Fatalf("%s: %v", r.Format(), err)
			}
			for _, f := range frames {
				if f.Break == nil {
					key, _, err := f.Key()
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Type, strings.TrimPrefix(key, "ns/")))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.faults, faults); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLoadWatch: output of kubectl from a watch that starts in the middle.
func TestLoadWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	write(t, path, watched(t, frame(0, "MODIFIED", pod("a", ""))+frame(0, "ADDED", pod("a", ""))+frame(0, "DELETED", pod("b", ""))+frame(0, "DELETED", pod("a", ""))))
	s := must(Load(path))(t)
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range s.Events {
		got = append(got, string(e.Type)+" "+e.Key)
	}
	if diff := cmp.Diff([]string{"ADDED ns/a", "MODIFIED ns/a", "DELETED ns/a"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestTolerantLines: an unreadable line costs only that line.
func TestTolerantLines(t *testing.T) {
	lines := strings.SplitAfter(strings.TrimSuffix(good(), "\n"), "\n")
	lines[3] = "{broken}\n"
	lines[4] = strings.Repeat("x", maxLine+10) + "\n"
	r := NewReader(strings.NewReader(strings.Join(lines, "")), "x")
	var faults []string
	r.Tolerate(func(e *Error) { faults = append(faults, e.Error()) })
	frames := must(readAll(r))(t)
	var got []int
	for _, f := range frames {
		got = append(got, f.Line)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 0, 0, 6, 7}, got); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"trace x: line 4 (byte 466): corrupt: not a frame in JSON: invalid character 'b' looking for beginning of object key string",
		"trace x: line 5 (byte 475): corrupt: a line of more than 33554432 bytes",
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Error(diff)
	}
}

// TestRoundTrip: a reader returns all frames of a writer unchanged.
func TestRoundTrip(t *testing.T) {
	resources := []Resource{podResource, leaseResource, widgetResource}
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		w, err := NewWriter(&b, Header{})
		if err != nil {
			t.Fatal(err)
		}
		w.block = rapid.IntRange(1, 2000).Draw(t, "block")
		var want []Frame
		var at time.Duration
		for i := range rapid.IntRange(0, 40).Draw(t, "frames") {
			at += time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "gap"))
			f := Frame{Offset: at, Line: i + 2, Resource: rapid.SampledFrom(resources).Draw(t, "resource")}
			if rapid.IntRange(0, 5).Draw(t, "break") == 0 {
				f.Break = &Break{Reason: Reconnected, Message: rapid.String().Draw(t, "message")}
				if rapid.Bool().Draw(t, "all") {
					f.Resource = Resource{}
				}
			} else {
				f.Type = rapid.SampledFrom([]watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error}).Draw(t, "type")
				text := rapid.StringMatching(`[ -!#-\[\]-~é😀]*`).Draw(t, "text")
				f.Object = object(f.Resource, "x", `,"text":"`+text+`"`)
			}
			noError(t, w.Write(f))
			want = append(want, f)
			if rapid.IntRange(0, 9).Draw(t, "flush") == 0 {
				noError(t, w.Flush())
			}
		}
		noError(t, w.Close())
		got, err := readAll(NewReader(&b, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
