package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var podResource = Resource{Version: "v1", Resource: "pods", Kind: "Pod"}

func frame(offset int, typ, object string) string {
	return fmt.Sprintf(`{"offsetNs":%d,"event":{"type":%q,"object":%s}}`, offset, typ, object) + "\n"
}

func pod(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":%q,"resourceVersion":"77"}%s}`, name, rest)
}

const initialEnd = `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}`

// good returns a recording of five events.
func good() string {
	return frame(10, "ADDED", pod("a", "")) +
		frame(20, "ADDED", pod("b", "")) +
		frame(30, "BOOKMARK", initialEnd) +
		frame(40, "MODIFIED", pod("a", `,"spec":{"nodeName":"n1","containers":null}`)) +
		frame(50, "BOOKMARK", `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12"}}`) +
		frame(50, "DELETED", pod("b", "")) +
		frame(60, "ADDED", pod("b", ""))
}

func zip(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	noError(t, z.Close())
	return b.String()
}

func pack(t testing.TB, s string) string {
	t.Helper()
	enc := must(zstd.NewWriter(nil))(t)
	return string(enc.EncodeAll([]byte(s), nil))
}

// traced converts recorded lines to a trace with two lines per block.
func traced(t testing.TB, s string) string {
	t.Helper()
	frames := must(readAll(NewReader(strings.NewReader(s), "x")))(t)
	return string(encodeFrames(t, frames, 2, podResource))
}

func write(t testing.TB, name, content string) {
	t.Helper()
	noError(t, os.WriteFile(name, []byte(content), 0o600))
}

func readAll(r *Reader) ([]Frame, error) {
	var frames []Frame
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func TestReader(t *testing.T) {
	for name, in := range map[string]string{
		"plain":         good(),
		"gzip":          zip(t, good()),
		"no newline":    strings.TrimSuffix(good(), "\n"),
		"CRLF":          strings.ReplaceAll(good(), "\n", "\r\n"),
		"zstd":          pack(t, good()),
		"trace":         traced(t, good()),
		"several gzips": zip(t, good()[:100]) + zip(t, good()[100:]),
		"long lines":    frame(1, "BOOKMARK", `{"apiVersion":"v1","kind":"Pod","x":"`+strings.Repeat("x", 1<<20)+`"}`) + good()[strings.Index(good(), "\n")+1:],
		"unknown keys":  strings.ReplaceAll(good(), `{"offsetNs"`, `{"from":"me","offsetNs"`),
	} {
		frames, err := readAll(NewReader(iotest.HalfReader(strings.NewReader(in)), "x"))
		if err != nil || len(frames) != 7 {
			t.Errorf("%s: %d frames, %v", name, len(frames), err)
			continue
		}
		want := Frame{Offset: 50, Type: watch.Deleted, Object: []byte(pod("b", "")), Resource: podResource, Line: 6}
		if name == "trace" {
			want.Line++ // after the header
		}
		if diff := cmp.Diff(want, frames[5]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReaderErrors(t *testing.T) {
	r := NewReader(strings.NewReader(frame(5, "ADDED", pod("a", ""))+"x\n"+frame(6, "ADDED", pod("b", ""))), "x")
	for i, bad := range []bool{false, true, false, true} {
		if _, err := r.Next(); (err != nil) != bad {
			t.Errorf("frame %d: %v", i, err)
		}
	}
	broken := errors.New("disk on fire")
	_, err := NewReader(iotest.ErrReader(broken), "x").Next()
	var e *Error
	if !errors.Is(err, broken) || !errors.As(err, &e) || e.Line != 1 {
		t.Errorf("got %v", err)
	}
}

// TestLoadBroken: each recording has one error. The golden file has the messages, which are
// part of the command's interface.
func TestLoadBroken(t *testing.T) {
	first := frame(10, "ADDED", pod("a", ""))
	line2 := func(l string) string { return first + l }
	z := zip(t, good())
	flip := func(s string, i int) string {
		b := []byte(s)
		b[(len(b)+i)%len(b)] ^= 0xff
		return string(b)
	}
	cases := []struct {
		name, content string
		is            error
	}{
		{"empty", "", ErrEmpty},
		{"empty-gzip", zip(t, ""), ErrEmpty},
		{"bookmarks-only", frame(1, "BOOKMARK", initialEnd), ErrEmpty},
		{"half-a-line", line2(`{"offsetNs":20,"event":{"type":"MOD`), ErrTruncated},
		{"half-a-line-gzip", zip(t, line2(`{"offsetNs":20,"event":{"type":"MOD`)), ErrTruncated},
		{"gzip-one-byte", z[:1], ErrTruncated},
		{"gzip-header-cut", z[:6], ErrTruncated},
		{"gzip-no-data", z[:10], ErrTruncated},
		{"gzip-cut-in-data", z[:len(z)/2], ErrTruncated},
		{"gzip-footer-cut", z[:len(z)-8], ErrTruncated},
		{"gzip-footer-half", z[:len(z)-3], ErrTruncated},
		{"gzip-checksum", flip(z, -8), ErrCorrupt},
		{"gzip-length", flip(z, -1), ErrCorrupt},
		{"gzip-method", flip(z, 2), ErrCorrupt},
		{"gzip-data", flip(z, 10), ErrCorrupt},
		{"gzip-trailing-garbage", z + "garbage and more of it", ErrCorrupt},
		{"not-json", line2("hello\n"), ErrCorrupt},
		{"not-json-control", line2("\x00\x01\n"), ErrCorrupt},
		{"blank-line", line2("\n"), ErrCorrupt},
		{"json-null", line2("null\n"), ErrCorrupt},
		{"json-array", line2("[1]\n"), ErrCorrupt},
		{"two-frames-on-a-line", line2(strings.TrimSpace(first) + first), ErrCorrupt},
		{"no-offset", line2(`{"event":{"type":"ADDED","object":{}}}` + "\n"), ErrCorrupt},
		{"negative-offset", line2(frame(-1, "ADDED", pod("b", ""))), ErrCorrupt},
		{"fraction-of-an-offset", line2(`{"offsetNs":1.5,"event":{"type":"ADDED","object":{}}}` + "\n"), ErrCorrupt},
		{"huge-offset", line2(`{"offsetNs":99999999999999999999,"event":{"type":"ADDED","object":{}}}` + "\n"), ErrCorrupt},
		{"decreasing-offset", line2(frame(9, "ADDED", pod("b", ""))), ErrCorrupt},
		{"no-event", line2(`{"offsetNs":20}` + "\n"), ErrCorrupt},
		{"no-type", line2(`{"offsetNs":20,"event":{"object":{}}}` + "\n"), ErrCorrupt},
		{"unknown-type", line2(frame(20, "PATCHED", pod("b", ""))), ErrCorrupt},
		{"no-object", line2(`{"offsetNs":20,"event":{"type":"ADDED"}}` + "\n"), ErrCorrupt},
		{"null-object", line2(frame(20, "ADDED", "null")), ErrCorrupt},
		{"string-object", line2(frame(20, "ADDED", `"x"`)), ErrCorrupt},
		{"no-kind", line2(frame(20, "ADDED", `{"apiVersion":"v1","metadata":{"name":"b"}}`)), ErrCorrupt},
		{"no-api-version", line2(frame(20, "ADDED", `{"kind":"Pod","metadata":{"name":"b"}}`)), ErrCorrupt},
		{"no-name", line2(frame(20, "ADDED", `{"apiVersion":"v1","kind":"Pod","metadata":{}}`)), ErrCorrupt},
		{"unknown-group", line2(frame(20, "ADDED", `{"apiVersion":"a/b/c","kind":"Pod","metadata":{"name":"b"}}`)), ErrCorrupt},
		{"list-kind", frame(20, "ADDED", `{"apiVersion":"v1","kind":"PodList","metadata":{"name":"b"}}`), ErrCorrupt},
		{"wrong-field-type", line2(frame(20, "ADDED", pod("b", `,"spec":{"containers":7}`))), ErrCorrupt},
		{"error-event", line2(frame(20, "ERROR", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (9)","reason":"Expired","code":410}`)), ErrCorrupt},
		{"added-twice", line2(frame(20, "ADDED", pod("a", ""))), ErrCorrupt},
		{"modified-unknown", line2(frame(20, "MODIFIED", pod("b", ""))), ErrCorrupt},
		{"deleted-unknown", line2(frame(20, "DELETED", pod("b", ""))), ErrCorrupt},
		{"initial-list-changed", first + frame(20, "MODIFIED", pod("a", "")) + frame(30, "BOOKMARK", initialEnd), ErrCorrupt},
		{"initial-list-ends-twice", first + frame(20, "BOOKMARK", initialEnd) + frame(30, "BOOKMARK", initialEnd), ErrCorrupt},
		// The first of several errors is returned, regardless of the order of workers.
		{"two-faults", strings.Repeat(frame(1, "BOOKMARK", `{"kind":"Pod","apiVersion":"v1"}`), 100) + "x\n" + strings.Repeat("y\n", 200), ErrCorrupt},
	}
	t.Chdir(t.TempDir())
	var got strings.Builder
	for _, tc := range cases {
		name := tc.name + ".jsonl"
		write(t, name, tc.content)
		_, err := Load(name)
		var e *Error
		switch {
		case err == nil:
			t.Errorf("%s: no error", tc.name)
			continue
		case !errors.Is(err, tc.is):
			t.Errorf("%s: %v is not %v", tc.name, err, tc.is)
		case !errors.As(err, &e) || e.Line < 1 || e.Name != name:
			t.Errorf("%s: %v names no line", tc.name, err)
		}
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%s: more than a line: %q", tc.name, err)
		}
		fmt.Fprintln(&got, err)
	}
	golden(t, "broken.txt", got.String())
}

// TestOpenErrors: errors before the first line.
func TestOpenErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	noError(t, os.Mkdir("folder", 0o700))
	var got strings.Builder
	for _, name := range []string{"nodelos", "no/such.jsonl.gz", "folder", "", "two\nlines", "nul\x00"} {
		_, err := Load(name)
		if err == nil {
			t.Errorf("Load(%q): no error", name)
			continue
		}
		fmt.Fprintln(&got, err)
	}
	if _, err := Load("nodelos"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	golden(t, "open.txt", got.String())
}

var testdata, _ = filepath.Abs("testdata")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(testdata, name)
	if *update {
		write(t, path, got)
	}
	want := must(os.ReadFile(path))(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (rewrite with -update): %s", name, diff)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl.gz")
	write(t, path, zip(t, good()))
	s := must(Load(path))(t)
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	e := s.Events[2]
	p, ok := e.Object.(*v1.Pod)
	if !ok {
		t.Fatalf("the object is a %T", e.Object)
	}
	got := []any{s.Name, s.Initial, s.Keys, len(s.Events), e.Type, e.Seq, e.At, e.Key, e.KeyIndex, p.ResourceVersion, p.Spec.NodeName, p.Kind, p.APIVersion}
	want := []any{path, 2, 2, 5, watch.Modified, uint64(3), 40 * time.Nanosecond, "ns/a", int32(0), "3", "n1", "Pod", "v1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestResourceOf: the resource of a built-in kind.
func TestResourceOf(t *testing.T) {
	for kind, want := range map[string]string{
		"v1 Pod": "v1/pods", "v1 Endpoints": "v1/endpoints", "apps/v1 ReplicaSet": "apps/v1/replicasets", "discovery.k8s.io/v1 EndpointSlice": "discovery.k8s.io/v1/endpointslices",
		"networking.k8s.io/v1 NetworkPolicy": "networking.k8s.io/v1/networkpolicies", "networking.k8s.io/v1 Ingress": "networking.k8s.io/v1/ingresses",
	} {
		version, name, _ := strings.Cut(kind, " ")
		if got := ResourceOf(schema.FromAPIVersionAndKind(version, name)); got.String() != want || got.Kind != name {
			t.Errorf("%s: %v of kind %s, want %s", kind, got, got.Kind, want)
		}
	}
}

// TestLoadKinds: lines without a resource have that of their object's kind, also of kinds that
// client-go does not know.
func TestLoadKinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	write(t, path, frame(10, "ADDED", pod("a", ""))+
		frame(20, "ADDED", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)+
		frame(30, "ADDED", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`))
	set := must(LoadSet(path))(t)
	for _, s := range set.Storms {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for _, s := range set.Storms {
		got = append(got, fmt.Sprintf("%s %s %T", s.Resource.Resource, s.Events[0].Key, s.Events[0].Object))
	}
	if diff := cmp.Diff([]string{"pods ns/a *v1.Pod", "nodes n *v1.Node", "widgets w *unstructured.Unstructured"}, got); diff != "" {
		t.Error(diff)
	}
}

// watched converts recorded lines to raw watch output, pretty-printed.
func watched(t testing.TB, s string) string {
	t.Helper()
	frames := must(readAll(NewReader(strings.NewReader(s), "x")))(t)
	var b strings.Builder
	for _, f := range frames {
		doc := map[string]any{"type": f.Type, "object": json.RawMessage(f.Object)}
		text := must(json.MarshalIndent(doc, "", "    "))(t)
		b.Write(text)
		b.WriteString("\n")
	}
	return b.String()
}

// FuzzReader: for any bytes, reading ends without a panic: with io.EOF, or with a one-line
// error that names the position. A tolerant reader returns at least as many frames and always
// reaches the end.
func FuzzReader(f *testing.F) {
	tr := traced(f, good())
	for _, s := range []string{
		good(), zip(f, good()), zip(f, good())[:200], good()[:len(good())/2], "", "\n", "\x1f\x8b", "null\n[]\n{}\n",
		frame(1, "ERROR", `{"kind":"Status","apiVersion":"v1"}`),
		frame(-1, "ADDED", pod("a", "")) + frame(1, "X", "{}"),
		pack(f, good()), pack(f, good())[:100], watched(f, good()), pack(f, watched(f, good())), watched(f, good())[:400],
		tr, tr[:len(tr)/2], tr[:len(tr)-3], tr[:300] + tr[301:], tr + tr, tr[:len(tr)/3] + "x" + tr[len(tr)/3:],
		`{"header":{"format":2}}` + "\n" + good(), `{"header":{"format":2}}` + "\n" + frame(1, "ADDED", pod("a", "")) + `{"end":1}`, `{"header":7}`,
		`{"type":"ADDED","object":{}}{"type":"ADDED"` + "\n{", "\x28\xb5\x2f\xfd", "\x57\x2a\x4d\x18\x04\x00\x00\x00WLTh",
		`{"offsetNs":1,"resource":"v1/pods","break":{"reason":"relisted"}}` + "\n" + frame(2, "ADDED", pod("a", "")),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		r := NewReader(bytes.NewReader(data), "fuzz")
		frames, err := readAll(r)
		var last time.Duration
		for i, fr := range frames {
			if fr.Offset < last || (len(fr.Object) == 0) == (fr.Break == nil) || r.Format() == LinesFormat && fr.Line != i+1 {
				t.Fatalf("frame %d: line %d at %v", i, fr.Line, fr.Offset)
			}
			last = fr.Offset
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("after %d frames: %q", len(frames), err)
			}
			if r.Format() == LinesFormat && e.Line != len(frames)+1 {
				t.Fatalf("after %d frames: %q", len(frames), err)
			}
		}
		faults := 0
		tolerant := NewReader(bytes.NewReader(data), "fuzz")
		tolerant.Tolerate(func(e *Error) {
			if faults++; strings.ContainsAny(e.Error(), "\n\r") {
				t.Fatalf("%q", e)
			}
		})
		more, tolerantErr := readAll(tolerant)
		if tolerantErr != nil || len(more) < len(frames) || (faults > 0) != (err != nil) {
			t.Fatalf("tolerant: %d frames and %d faults, %v; otherwise %d and %v", len(more), faults, tolerantErr, len(frames), err)
		}
		// A readable recording loads, or fails with the same error each time.
		path := filepath.Join(t.TempDir(), "x")
		write(t, path, string(data))
		s, loadErr := Load(path)
		if loadErr == nil {
			if err != nil {
				t.Fatalf("Load accepted input that Reader refused: %v", err)
			}
			noError(t, s.Validate())
		}
	})
}

// TestPipe: output of kubectl that starts within a watch and ends with an error.
func TestPipe(t *testing.T) {
	doc := func(typ, object string) string { return fmt.Sprintf("{\"type\":%q,\n \"object\":%s\n}\n", typ, object) }
	in := doc("MODIFIED", pod("web-1", "")) + doc("ADDED", pod("web-2", "")) + "{broken\n" + doc("DELETED", pod("web-3", "")) + doc("DELETED", pod("web-2", "")) +
		doc("ERROR", `{"kind":"Status","apiVersion":"v1","message":"too old","code":410}`)
	var out bytes.Buffer
	transform := func(f Frame) (Frame, error) {
		f.Object = bytes.ReplaceAll(f.Object, []byte("web"), []byte("xyz"))
		return f, nil
	}
	live := LiveInput(t.Context(), strings.NewReader(in))
	if err := Convert(t.Context(), NewLineWriter(&out), ConvertOptions{Transform: transform}, live); err != nil || len(live.Faults) != 1 {
		t.Errorf("%v, faults %q", err, live.Faults)
	}
	frames := must(readAll(NewReader(&out, "x")))(t)
	var got []string
	for _, f := range frames {
		if f.Break != nil {
			got = append(got, f.Break.Reason)
		} else if key, _, err := f.Key(); err == nil {
			got = append(got, fmt.Sprintf("%s %s", f.Type, key))
		}
	}
	want := []string{"ADDED ns/xyz-1", "ADDED ns/xyz-2", Unreadable, "DELETED ns/xyz-2", Ended}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzPipe: the raw output of a watch is a trace that reads whole, whatever it is.
func FuzzPipe(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":` + pod("a", "") + "}\n" + `{"type":"DELETED","object":` + pod("a", "") + "}", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`,
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`, "{}", "\x1e{\n", `{"type":null}`, "{\"object\":\n[[[[",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		var out bytes.Buffer
		w := must(NewWriter(&out, Header{}))(t)
		in := LiveInput(t.Context(), bytes.NewReader(data))
		err := Convert(t.Context(), w, ConvertOptions{}, in)
		if _, nothing := errors.AsType[*Error](err); nothing {
			return
		}
		noError(t, err)
		if _, err := readAll(NewReader(&out, "trace")); err != nil {
			t.Fatal(err)
		}
	})
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError ends the test with the error of a call.
func noError(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
