package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// TestHostileJSON decodes JSON that no API server sends, beyond what TestEveryPart replaces.
func TestHostileJSON(t *testing.T) {
	text := must(os.ReadFile("testdata/hostile.yaml"))(t)
	documents := map[string]string{
		"bad UTF-8": `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web",` + "\"namespace\":\"\xff\xfe\",\"labels\":{\"\xff\":\"\xed\xa0\x80\"}}}",
	}
	if err := yaml.Unmarshal(text, &documents); err != nil {
		t.Fatal(err)
	}
	for what, data := range documents {
		for _, o := range walked[1:] {
			t.Run(title(o)+"/"+what, func(t *testing.T) { hostile(t, o, []byte(data)) })
		}
	}
}

// TestDeepJSON nests objects up to and over the limits of the walk and of client-go.
func TestDeepJSON(t *testing.T) {
	for _, o := range walked[1:] {
		d, exact := decoder(t, "shared", o), exactly(t, o)
		for _, n := range []int{maxNesting - 3, maxNesting - 2, maxNesting - 1, maxNesting, 1000, 9997, 9998, 9999, 10_000, 20_000} {
			for _, kind := range []string{"Pod", "Odd"} {
				for _, of := range []string{`{"a":%s}`, `[%s]`} {
					before, after, _ := strings.Cut(of, "%s")
					value := strings.Repeat(before, n) + `1` + strings.Repeat(after, n)
					same(t, d, exact, []byte(`{"kind":"`+kind+`","apiVersion":"v1","spec":{"a":`+value+`}}`), n)
				}
			}
		}
	}
}

// TestInto decodes into what is given.
func TestInto(t *testing.T) {
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"a":"b"},"managedFields":[{"manager":"a"}]}}`
	list := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + pod + `,{"metadata":{"name":"b"}}]}`
	odd := `{"apiVersion":"example.com/v1","kind":"Odd","metadata":{"name":"a"}}`
	odds := `{"apiVersion":"example.com/v1","items":[` + odd + `],"kind":"OddList","metadata":{"remainingItemCount":7}}`
	for _, o := range walked[1:] {
		d, exact := decoder(t, "shared", o), exactly(t, o)
		for _, data := range []string{pod, list, odd, odds, list + "}", odds + " ,", odds + " \n", `{"kind":"Status","apiVersion":"v1","code":410}`, `{"kind":"Pod","apiVersion":"v1","spec":5}`} {
			for _, into := range []func() runtime.Object{
				func() runtime.Object { return nil },
				func() runtime.Object { return &v1.Pod{} },
				func() runtime.Object {
					return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kept", Labels: map[string]string{"kept": "1"}}}
				},
				func() runtime.Object { return &v1.PodList{} },
				func() runtime.Object { return &v1.Node{} },
				func() runtime.Object { return &metav1.Status{} },
				func() runtime.Object { return &metav1.PartialObjectMetadata{} },
				func() runtime.Object { return &unstructured.Unstructured{} },
				func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{"a": "b"}} },
				func() runtime.Object { return &unstructured.UnstructuredList{} },
				func() runtime.Object { return &unstructured.UnstructuredList{Object: map[string]any{"a": "b"}} },
				func() runtime.Object { return &runtime.Unknown{} },
				func() runtime.Object { return &List{} },
			} {
				for range 2 {
					sameInto(t, d, exact, []byte(data), into, title(o))
				}
			}
		}
	}
}

// TestFrames reads bodies of watches that are cut, damaged or written in another way than the API
// server's.
func TestFrames(t *testing.T) {
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}`
	frame := `{"type":"ADDED","object":` + pod + `}`
	objectFirst := `{"object":` + pod + `,"type":"DELETED"}`
	large := `{"type":"MODIFIED","object":` + strings.Replace(pod, "web", strings.Repeat("w", 40_000), 1) + `}`
	bodies := map[string]string{
		"nothing":           ``,
		"lines":             frame + "\n" + large + "\n" + frame + "\n",
		"no newlines":       frame + frame + large + frame,
		"no last newline":   frame + "\n" + large,
		"other newlines":    "\n\r\n" + frame + "\r\n\n" + frame + " \n",
		"indented":          strings.ReplaceAll(frame, ",", ",\n  ") + "\n" + frame + "\n",
		"two on a line":     frame + " " + frame + "\n" + frame,
		"object first":      objectFirst + "\n" + frame + "\n" + objectFirst,
		"spaces":            strings.NewReplacer(":", "\t: ", ",", " ,\r", "{", "{ ", "}", " }").Replace(frame+"\n"+objectFirst) + "\n" + frame,
		"object twice":      `{"type":"ADDED","object":{},"object":` + pod + `}` + "\n" + frame,
		"type twice":        `{"type":"ADDED","object":` + pod + `,"type":"DELETED"}` + "\n",
		"more fields":       `{"type":"ADDED","object":` + pod + `,"nope":1}` + "\n" + frame,
		"kind of the frame": `{"type":"ADDED","object":` + pod + `,"kind":1}` + "\n",
		"unknown type":      `{"type":"NOPE","object":` + pod + `}` + "\n" + frame,
		"no type":           `{"object":` + pod + `}` + "\n",
		"object null":       `{"type":"ADDED","object":null}` + "\n" + frame,
		"object of a list":  `{"type":"ADDED","object":[` + pod + `]}` + "\n" + frame,
		"malformed object":  `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","spec":5}}` + "\n" + frame,
		"malformed":         frame + "\n" + `{"type":"ADDED","object":{"kind":"Pod" "a"}}` + "\n" + frame,
		"unbalanced":        frame + "\n" + `{"type":"ADDED","object":` + pod + "\n" + frame + "\n",
		"cut":               frame + "\n" + large[:300],
		"cut in a string":   frame + "\n" + `{"type":"ADD`,
		"no JSON":           "404 page not found\n",
		"a number":          "5\n" + frame,
		"a byte of ours":    "\x01" + pod + "\n",
		"error":             `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":410}}` + "\n",
		"bookmark":          `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5"}}}` + "\n",
		"brackets":          frame + "\n" + strings.Replace(frame, "web", "}}}", 1) + strings.Repeat(strings.Replace(frame, "web", "}\\n}", 1), 3) + "\n",
		"too large":         frame + "\n" + `{"type":"ADDED","object":"` + strings.Repeat("a", 17<<20) + `"}` + "\n" + frame + "\n",
		"large":             `{"type":"ADDED","object":"` + strings.Repeat("a", 9<<20) + `"}` + "\n" + frame + "\n",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		bodies[fmt.Sprint("mutated ", i)] = string(mutate(r, []byte(frame+"\n"+objectFirst+"\n"+frame+"\n")))
	}
	failure := errors.New("failure")
	for what, body := range bodies {
		for _, o := range walked[1:] {
			d, exact := decoder(t, "shared", o), exactly(t, o)
			for how, reader := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r },
				"bytes": iotest.OneByteReader,
				"data and error": func(r io.Reader) io.Reader {
					return iotest.DataErrReader(io.MultiReader(r, iotest.ErrReader(failure)))
				},
			} {
				if len(body) > 1<<20 && (how != "whole" || o.Unstructured || !*long) {
					continue
				}
				watched := func(d Decoder) watch.Decoder { return d.Watch(io.NopCloser(reader(strings.NewReader(body)))) }
				sameWatch(t, watched(d), watched(exact), title(o)+"/"+what+"/"+how)
			}
		}
	}
}

// TestCut: the object is cut out of a frame that has a type and an object alone, however they are written.
func TestCut(t *testing.T) {
	for frame, cut := range map[string]bool{
		`{"type":"BOOKMARK","object":{"kind":"Pod"}}`: true, `{"object":{"kind":"Pod"},"type":"BOOKMARK"}`: true,
		"{ \"object\" :\t{\"kind\":\"Pod\"} , \"type\" : \"BOOKMARK\"\r}": true, `{"\u006fbject":{"kind":"Pod"},"type":"BOOKMARK"}`: true,
		`{"object":{},"object":{"kind":"Pod"},"type":"BOOKMARK"}`: false, `{"object":{"kind":"Pod"},"type":"NOPE"}`: false,
		`{"object":{"kind":"Pod"}}`: false, `{"type":"BOOKMARK"}`: false, `{"object":{"kind":"Pod"},"type":"BOOKMARK","nope":1}`: false, `{}`: false,
	} {
		want := frame
		if cut {
			want = "\x03" + `{"kind":"Pod"}`
		}
		b := make([]byte, 100)
		frames := jsonFramer{info(JSON).StreamSerializer.Framer, NewTable(0)}.NewFrameReader(io.NopCloser(strings.NewReader(frame + "\n")))
		if n, err := frames.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("%s: read %q, %v", frame, b[:n], err)
		}
	}
}

// TestPrompt: an event is decoded when all of it was sent, also if no newline follows.
func TestPrompt(t *testing.T) {
	r, w := io.Pipe()
	d := decoder(t, "shared", Options{Encoding: JSON}).Watch(r)
	for i, end := range []string{"\n", "", "", "\n", "\r\n"} {
		go func() {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%d"}}}%s`, i, end)
		}()
		if _, obj, err := d.Decode(); err != nil || obj.(*v1.Pod).Name != fmt.Sprint("web-", i) {
			t.Fatalf("event %d: %v, %v", i, obj, err)
		}
	}
	d.Close()
}

// FuzzJSON compares shared with client-go for any bytes, of an object and of a watch.
func FuzzJSON(f *testing.F) {
	for i, gvk := range kinds() {
		if i%8 != 0 {
			continue
		}
		f.Add(bytes.TrimSpace(encode(f, JSON, filled(f, gvk, 1))))
	}
	for _, o := range walked[1:] {
		for _, name := range []string{"recorded-nodeloss", "recorded-nodeloss-nodes"} {
			objs, _ := recordedObjects(f, o.Encoding, name, 1)
			for _, data := range objs {
				f.Add(data)
				f.Add(fmt.Appendf(nil, `{"type":"ADDED","object":%s}`, data))
				f.Add(fmt.Appendf(nil, "{ \"object\" : %s ,\t\"type\":\"DELETED\" }\r\n", data))
			}
		}
	}
	var compared [][3]Decoder
	for _, o := range walked[1:] {
		exact, d := exactly(f, o), decoder(f, "shared", o)
		o.Table = badHash(NewTable(64 << 10))
		compared = append(compared, [3]Decoder{exact, d, decoder(f, "shared", o)})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		for _, c := range compared {
			for range 2 {
				same(t, c[1], c[0], data, "good hash")
				same(t, c[2], c[0], data, "bad hash")
			}
			sameWatch(t, c[1].Watch(io.NopCloser(bytes.NewReader(data))), c[0].Watch(io.NopCloser(bytes.NewReader(data))), "a watch")
		}
	})
}

// sameWatch fails unless both watches give the same events and errors, also after an error.
func sameWatch(t *testing.T, got, want watch.Decoder, what any) {
	t.Helper()
	defer got.Close()
	defer want.Close()
	for i, errs := 0, 0; errs < 4; i++ {
		wantType, wantObj, wantErr := want.Decode()
		gotType, gotObj, gotErr := got.Decode()
		if gotType != wantType || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(gotObj, wantObj) {
			t.Fatalf("%v: event %d: %v %v %v, client-go has %v %v %v", what, i, gotType, gotObj, gotErr, wantType, wantObj, wantErr)
		}
		if wantErr != nil {
			errs++
		}
	}
}
