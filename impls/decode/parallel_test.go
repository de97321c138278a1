package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var encodings = []Encoding{JSON, Protobuf, CBOR}

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

// TestParallelWatch compares parallel watches with those of the inner decoder, for bodies that are
// whole, cut, damaged, hostile, or end with an error.
func TestParallelWatch(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rounds := 200
	if !*long {
		rounds = 10
	}
	for _, e := range encodings {
		t.Run(string(e), func(t *testing.T) {
			objs, types := recordedObjects(t, e, "recorded-nodeloss", 6)
			inner := decoder(t, "clientgo-"+string(e)+"-transform", Options{})
			d := decoder(t, "parallel", Options{Encoding: e, Workers: 3})
			compare := func(what any, body func() io.Reader) {
				t.Helper()
				sameWatch(t, d.Watch(io.NopCloser(body())), inner.Watch(io.NopCloser(body())), what)
			}
			whole := frames(t, e, objs, types)
			small := frames(t, e, objs[:2], types)
			tiny := frames(t, e, [][]byte{encode(t, e, &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}})}, types)
			compare("whole", func() io.Reader { return bytes.NewReader(whole) })
			compare("a byte at a time", func() io.Reader { return iotest.OneByteReader(bytes.NewReader(tiny)) })
			compare("timeout", func() io.Reader { return iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(whole))) })
			compare("reset", func() io.Reader {
				return io.MultiReader(bytes.NewReader(small), iotest.ErrReader(errors.New("connection reset by peer")))
			})
			compare("not an event", func() io.Reader { return bytes.NewReader(frames(t, e, objs[:2], []string{"ADDED", "RENAMED"})) })
			for what, more := range hostileFrames(t, e) {
				compare(what, func() io.Reader {
					return io.MultiReader(bytes.NewReader(small), bytes.NewReader(more), bytes.NewReader(small))
				})
			}
			r := rand.New(rand.NewPCG(3, 4))
			for range rounds {
				cut := whole[:r.IntN(len(whole))]
				compare("cut", func() io.Reader { return bytes.NewReader(cut) })
				damaged := mutate(r, small)
				compare("damaged", func() io.Reader { return bytes.NewReader(damaged) })
			}
		})
	}
}

// hostileFrames returns frames that no API server sends.
func hostileFrames(t *testing.T, e Encoding) map[string][]byte {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	event := func(typ string, obj kruntime.Object) []byte {
		return frames(t, e, [][]byte{encode(t, e, obj)}, []string{typ})
	}
	all := map[string][]byte{
		"no type":      event("", pod),
		"an error":     event("ERROR", goneStatus),
		"unknown kind": event("ADDED", &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Widget", APIVersion: "example.com/v1"}}),
	}
	switch e {
	case JSON:
		all["an array"] = []byte("[1]\n")
		all["no object"] = []byte(`{"type":"ADDED"}`)
	case Protobuf:
		if *long {
			all["too large"] = event("ADDED", &v1.Pod{TypeMeta: pod.TypeMeta, Status: v1.PodStatus{Message: strings.Repeat("x", 17<<20)}})
		}
		all["empty"] = binary.BigEndian.AppendUint32(nil, 0)
		all["length of 2^32-1"] = binary.BigEndian.AppendUint32(nil, 1<<32-1)
		all["no event"] = append(binary.BigEndian.AppendUint32(nil, 3), "abc"...)
	case CBOR:
		all["a number"] = []byte{1}
		all["a reserved value"] = []byte{0x1c}
	}
	return all
}

// inBetween calls a function before each object of a watch is decoded.
type inBetween struct {
	Decoder
	f func()
}

func (d inBetween) Decode(data []byte, defaults *schema.GroupVersionKind, into kruntime.Object) (kruntime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		d.f()
	}
	return d.Decoder.Decode(data, defaults, into)
}

func (d inBetween) Info() kruntime.SerializerInfo {
	info := d.Decoder.Info()
	info.Serializer = serving{info.Serializer, d}
	return info
}

// numbered returns the body of a watch of n pods with padding, named by their number.
func numbered(t *testing.T, n, padding int) []byte {
	var objs [][]byte
	for i := range n {
		pod := &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
		pod.Status.Message = strings.Repeat("x", padding)
		objs = append(objs, encode(t, Protobuf, pod))
	}
	return frames(t, Protobuf, objs, slices.Repeat([]string{"ADDED"}, n))
}

// TestParallelOrder: the events of two watches are in order when decoding takes any time, and as many are
// decoded at once as there are workers.
func TestParallelOrder(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			r := rand.New(rand.NewPCG(uint64(workers), 1))
			now, most := 0, 0
			d := NewParallel(inBetween{decoder(t, "clientgo-protobuf", Options{}), func() {
				mu.Lock()
				now++
				most = max(most, now)
				delay := time.Duration(r.IntN(1000)) * time.Millisecond
				mu.Unlock()
				time.Sleep(delay)
				mu.Lock()
				now--
				mu.Unlock()
			}}, workers)
			var reading sync.WaitGroup
			for range 2 {
				w := d.Watch(io.NopCloser(bytes.NewReader(numbered(t, 200, 0))))
				reading.Go(func() {
					defer w.Close()
					for i := range 200 {
						if _, obj, err := w.Decode(); err != nil || obj.(*v1.Pod).Name != fmt.Sprint(i) {
							t.Errorf("event %d: %v, %v", i, obj, err)
							return
						}
					}
					if _, _, err := w.Decode(); !errors.Is(err, io.EOF) {
						t.Errorf("at the end: %v", err)
					}
				})
			}
			reading.Wait()
			if most != workers {
				t.Errorf("%d workers decoded %d objects at once", workers, most)
			}
		})
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

// TestParallelBound: a watch reads as far ahead as its bounds say, and no further.
func TestParallelBound(t *testing.T) {
	for _, test := range []struct{ frames, padding, ahead, after int }{
		{10, 0, 8, 9},                   // slots; one is free after the second event
		{5, aheadBytes*2/5 - 100, 3, 4}, // two frames below the bound, and one that waits
		{4, aheadBytes + 1, 2, 3},       // a frame above the bound, and one that waits
	} {
		synctest.Test(t, func(t *testing.T) {
			frames := numbered(t, test.frames, test.padding)
			one := len(frames) / test.frames
			body := &counted{Reader: bytes.NewReader(frames)}
			w := NewParallel(decoder(t, "clientgo-protobuf", Options{}), 2).Watch(io.NopCloser(body))
			defer w.Close()
			synctest.Wait()
			if n := body.n / one; n != test.ahead {
				t.Errorf("padding %d: %d frames are read ahead, want %d", test.padding, n, test.ahead)
			}
			for range 2 {
				if _, _, err := w.Decode(); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if n := body.n / one; n != test.after {
				t.Errorf("padding %d: %d frames are read after two events, want %d", test.padding, n, test.after)
			}
		})
	}
}

// TestParallelClose: Close ends a waiting Decode and all goroutines, in every state of a watch. A
// goroutine that is left fails synctest.
func TestParallelClose(t *testing.T) {
	body := numbered(t, 20, 0)
	for what, test := range map[string]struct {
		body   []byte
		decode int  // events
		held   bool // workers wait until the watch is closed
	}{
		"nothing read":          {},
		"a frame cut":           {body: body[:10]},
		"full":                  {body: body},
		"full, some read":       {body: body, decode: 3},
		"workers busy":          {body: body, held: true},
		"all read":              {body: body, decode: 20},
		"waiting for bytes":     {body: numbered(t, 4, aheadBytes*2/5)},
		"waiting for the next":  {body: body[:len(body)/2], decode: 10},
		"an error was returned": {body: make([]byte, 4), decode: 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				go func() { _, _ = out.Write(test.body) }()
				hold := make(chan struct{})
				if !test.held {
					close(hold)
				}
				w := NewParallel(inBetween{decoder(t, "clientgo-protobuf", Options{}), func() { <-hold }}, 2).Watch(in)
				for range test.decode {
					_, _, _ = w.Decode()
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for {
						if _, _, err := w.Decode(); err != nil {
							return
						}
						time.Sleep(time.Second) // a slow reader
					}
				}()
				synctest.Wait()
				w.Close()
				w.Close()
				<-ended
				if test.held {
					close(hold)
				}
				if _, _, err := w.Decode(); err == nil {
					t.Error("an event after Close")
				}
			})
		})
	}
}

// TestParallelForgets: a watch that waits for the next event does not keep the last object alive.
func TestParallelForgets(t *testing.T) {
	in, out := io.Pipe()
	w := decoder(t, "parallel", Options{}).Watch(in)
	defer w.Close()
	go func() { _, _ = out.Write(numbered(t, 1, 0)) }()
	wait := func() func() {
		_, obj, err := w.Decode()
		if err != nil {
			t.Fatal(err)
		}
		return gone(obj)
	}()
	go func() { _, _, _ = w.Decode() }()
	wait()
}

// panicking is a reader that panics at its end.
type panicking struct{ io.Reader }

func (p panicking) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil {
		panic(err)
	}
	return n, nil
}

// TestParallelPanic: a panic of a worker or of the body goes to the reader of the watch, in its place
// among the events, as a panic of client-go's decoder does.
func TestParallelPanic(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := 0
	d := NewParallel(inBetween{decoder(t, "clientgo-protobuf", Options{}), func() {
		if n++; n == 3 {
			panic(io.ErrNoProgress)
		}
	}}, 1)
	w := d.Watch(io.NopCloser(panicking{bytes.NewReader(numbered(t, 5, 0))}))
	defer w.Close()
	var log []string
	for range 6 {
		func() {
			defer func() {
				if v := recover(); v != nil {
					err := v.(error)
					log = append(log, fmt.Sprint(errors.Is(err, io.ErrNoProgress), errors.Is(err, io.EOF), strings.Contains(err.Error(), ".Decode")))
				}
			}()
			_, obj, err := w.Decode()
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, obj.(*v1.Pod).Name)
		}()
	}
	if want := []string{"0", "1", "true false true", "3", "4", "false true true"}; !slices.Equal(log, want) {
		t.Errorf("read %q, want %q", log, want)
	}
}
