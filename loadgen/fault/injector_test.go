package fault

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/apiserver/wire"
)

var encodings = []encoding{{wire.JSON}, {wire.Protobuf}, {wire.CBOR}}

// ticker is an API server for config maps. One config map changes at every tick.
type ticker struct {
	startTime time.Time
	// batch is the maximum number of frames in a Write.
	batch int
}

const tick = 10 * time.Millisecond

func (s *ticker) version() uint64 { return 1 + uint64(time.Since(s.startTime)/tick) }

func object(version uint64) *v1.ConfigMap {
	return &v1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "x", ResourceVersion: strconv.FormatUint(version, 10),
		},
		Data: map[string]string{"filler": strings.Repeat("BOOKMARK\n", 20)},
	}
}

func (s *ticker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("watch") == "" {
		w.Header().Set("Content-Type", "application/json")
		list := v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(s.version(), 10)}}
		_ = json.NewEncoder(w).Encode(&list)
		return
	}
	e := encodingOf(r.Header.Get("Accept"))
	w.Header().Set("Content-Type", wire.FormOf(e.Media, wire.Object).StreamType())
	flush := http.NewResponseController(w).Flush
	at, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	w.WriteHeader(http.StatusOK)
	if flush() != nil {
		return
	}
	frame := func(t watch.EventType, o runtime.Object) []byte {
		b, err := e.frame(t, o)
		if err != nil {
			panic(err)
		}
		return b
	}
	if q.Get("sendInitialEvents") == "true" {
		mark := object(s.version())
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		at = s.version()
		if _, err := w.Write(frame(watch.Bookmark, mark)); err != nil || flush() != nil {
			return
		}
	}
	for t := time.NewTicker(tick); ; {
		var out []byte
		for n := 0; n < max(1, s.batch) && at < s.version(); n++ {
			at++
			out = append(out, frame(watch.Modified, object(at))...)
		}
		if len(out) > 0 {
			if _, err := w.Write(out); err != nil || flush() != nil {
				return
			}
			continue
		}
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
}

// testbed is an injector, its server and its clients, in a bubble.
type testbed struct {
	*Injector
	t         *testing.T
	client    *http.Client
	startTime time.Time
}

func newTestbed(t *testing.T, h http.Handler, specs ...string) *testbed {
	t.Helper()
	return seeded(t, 1, h, specs...)
}

func seeded(t *testing.T, seed int64, h http.Handler, specs ...string) *testbed {
	t.Helper()
	all, err := ParseAll(strings.Join(specs, ";"))
	if err != nil {
		t.Fatal(err)
	}
	inj, err := New(all, seed)
	if err != nil {
		t.Fatal(err)
	}
	if h == nil {
		h = &ticker{startTime: time.Now()}
	}
	l := NewPipe()
	srv := &http.Server{Handler: inj.Wrap(h)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) })
	transport := l.Transport()
	t.Cleanup(func() {
		inj.Stop()
		_ = srv.Close()
		transport.CloseIdleConnections()
		serving.Wait()
	})
	return &testbed{Injector: inj, t: t, client: &http.Client{Transport: transport}, startTime: time.Now()}
}

func (b *testbed) start() {
	b.t.Helper()
	b.startTime = time.Now()
	if err := b.Start(); err != nil {
		b.t.Fatal(err)
	}
}

// answer is the answer to a request. Its body is closed at the end of the test.
type answer struct {
	StatusCode int
	Status     string
	Header     http.Header
	Body       io.Reader
}

func (b *testbed) get(e encoding, query string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://pipe/api/v1/namespaces/default/configmaps?"+query, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept", wire.FormOf(e.Media, wire.Object).ContentType())
	res, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = res.Body.Close() })
	return answer{res.StatusCode, res.Status, res.Header, res.Body}
}

// watch opens a watch and starts to read its frames.
func (b *testbed) watch(e encoding, query string) *reader {
	b.t.Helper()
	res := b.get(e, "watch=1&"+query)
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		b.t.Fatalf("%s: %s", res.Status, body)
	}
	r := &reader{t: b.t, encoding: encodingOf(res.Header.Get("Content-Type")), ended: make(chan struct{})}
	if r.encoding != e {
		b.t.Fatalf("asked for %v, got %v", e, r.encoding)
	}
	go func() {
		defer close(r.ended)
		buf := make([]byte, 4096)
		for {
			n, err := res.Body.Read(buf)
			r.mu.Lock()
			r.got = append(r.got, buf[:n]...)
			r.err = err
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return r
}

// reader holds the bytes received from a watch.
type reader struct {
	t        *testing.T
	encoding encoding
	// ended is closed at the end of the body.
	ended chan struct{}

	// mu guards got and err.
	mu  sync.Mutex
	got []byte
	err error
}

// frames decodes the received frames and returns the bytes after the last whole frame.
func (r *reader) frames() (frames []position, rest []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest = r.got
	for len(rest) > 0 {
		n := r.encoding.next(rest)
		p, err := r.encoding.read(rest[:n])
		if err != nil || (r.encoding.Media == wire.JSON && rest[n-1] != '\n') {
			return frames, rest
		}
		frames, rest = append(frames, p), rest[n:]
	}
	return frames, rest
}

// check fails the test unless the watch received MODIFIED events of consecutive
// versions. It returns their number and the other frames after them.
func (r *reader) check() (events int, others []position, rest []byte) {
	r.t.Helper()
	frames, rest := r.frames()
	last := uint64(0)
	for i, f := range frames {
		if f.typ != watch.Modified {
			return i, frames[i:], rest
		}
		v, err := strconv.ParseUint(f.meta.ResourceVersion, 10, 64)
		if err != nil || last > 0 && v != last+1 {
			r.t.Fatalf("version %q after %d", f.meta.ResourceVersion, last)
		}
		last = v
	}
	return len(frames), nil, rest
}

// bubble runs f in a testing/synctest bubble, for each encoding.
func bubble(t *testing.T, f func(t *testing.T, e encoding)) {
	for _, e := range encodings {
		t.Run("encoding="+wire.FormOf(e.Media, wire.Object).ContentType(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, e) })
		})
	}
}

// wait sleeps for d and until all goroutines are idle.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestEndings(t *testing.T) {
	for name, want := range map[Name]struct {
		err  error
		code int32
		rest bool
	}{
		Disconnect:    {err: io.ErrUnexpectedEOF},
		HalfFrame:     {err: io.ErrUnexpectedEOF, rest: true},
		Reset:         {err: io.ErrUnexpectedEOF},
		Malformed:     {err: io.EOF, rest: true},
		Gone:          {err: io.EOF, code: http.StatusGone},
		Relist:        {err: io.EOF, code: http.StatusGone},
		ErrorEvent:    {err: io.EOF, code: http.StatusInternalServerError},
		Throttle:      {err: io.EOF},
		InternalError: {err: io.EOF},
	} {
		t.Run("fault="+string(name), func(t *testing.T) {
			bubble(t, func(t *testing.T, e encoding) {
				b := newTestbed(t, nil, string(name)+":at=2.005s")
				b.start()
				r := b.watch(e, "resourceVersion=1")
				other := b.watch(e, "resourceVersion=1")
				wait(3 * time.Second)
				for _, r := range []*reader{r, other} {
					<-r.ended
					events, others, rest := r.check()
					if events != 200 {
						t.Errorf("%d events, want 200", events)
					}
					if !errors.Is(r.err, want.err) {
						t.Errorf("the watch ended with %v, want %v", r.err, want.err)
					}
					if (len(rest) > 0) != want.rest {
						t.Errorf("rest %.60q, want any: %v", rest, want.rest)
					}
					if (len(others) > 0) != (want.code > 0) {
						t.Fatalf("%d more frames: %v", len(others), others)
					}
					if want.code > 0 {
						checkError(t, r, want.code)
					}
				}
				log := b.Log()
				// Each watch is hit on its own.
				slices.SortFunc(log, func(a, b Injection) int { return a.Watch - b.Watch })
				if len(log) != 2 || log[0].Fault != name || log[0].Watch != 1 || log[1].Watch != 2 ||
					log[0].At < Duration(2*time.Second) || log[0].Path != "/api/v1/namespaces/default/configmaps" {
					t.Errorf("the log has %v", log)
				}
				if n := b.Counts()[name]; n != 2 {
					t.Errorf("%d requests had a fault, want 2", n)
				}
			})
		})
	}
}

var codecs = serializer.NewCodecFactory(scheme.Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

// checkError fails the test unless the last frame is an ERROR event.
func checkError(t *testing.T, r *reader, code int32) {
	t.Helper()
	last := r.encoding.last(r.got)
	var event metav1.WatchEvent
	var status metav1.Status
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), wire.FormOf(r.encoding.Media, wire.Object).ContentType())
	if r.encoding.Media == wire.Protobuf {
		last = last[4:]
	}
	err := runtime.DecodeInto(info.StreamSerializer, last, &event)
	if r.encoding.Media == wire.JSON { // JSON objects have no kind
		err = json.Unmarshal(last, &event)
	}
	if err == nil {
		err = runtime.DecodeInto(info.Serializer, event.Object.Raw, &status)
	}
	if err != nil || event.Type != string(watch.Error) || status.Code != code || status.Status != metav1.StatusFailure {
		t.Errorf("the last frame %q is %s with %+v: %v", last, event.Type, status, err)
	}
}

// TestRefusals: what a request is answered while a fault lasts, by its query, and that it is served afterwards.
func TestRefusals(t *testing.T) {
	const all = http.StatusOK
	for spec, answers := range map[string]map[string]int{
		"throttle:at=1s,duration=2500ms":       {"": http.StatusTooManyRequests, "watch=true&resourceVersion=1": http.StatusTooManyRequests},
		"internal-error:at=1s,duration=2500ms": {"": http.StatusInternalServerError, "watch=true&resourceVersion=1": http.StatusInternalServerError},
		"gone:at=1s,duration=2500ms": {
			"": all, "watch=1&resourceVersion=5": http.StatusGone, "watch=1&resourceVersion=0": all,
			"watch=1&resourceVersion=5&sendInitialEvents=true": all, "resourceVersion=5": all,
			"resourceVersion=5&resourceVersionMatch=Exact": http.StatusGone, "limit=1&continue=abc": http.StatusGone,
		},
	} {
		t.Run(spec, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil, spec)
				b.start()
				wait(time.Second)
				for query, code := range answers {
					res := b.get(encoding{wire.JSON}, query)
					if res.StatusCode != code {
						t.Errorf("%q: %s, want %d", query, res.Status, code)
					}
					if code == http.StatusOK {
						continue
					}
					var status metav1.Status
					if err := json.NewDecoder(res.Body).Decode(&status); err != nil || int(status.Code) != code {
						t.Errorf("%q: %+v, %v", query, status, err)
					}
					if retry := res.Header.Get("Retry-After"); code == http.StatusTooManyRequests && retry != "3" {
						t.Errorf("Retry-After: %q, want 3", retry)
					}
				}
				wait(2500 * time.Millisecond)
				for query := range answers {
					if res := b.get(encoding{wire.JSON}, query); res.StatusCode != http.StatusOK {
						t.Errorf("afterwards: %q: %s", query, res.Status)
					}
				}
			})
		})
	}
}

func TestRelist(t *testing.T) {
	bubble(t, func(t *testing.T, e encoding) {
		b := newTestbed(t, nil, "relist:at=1s")
		b.start()
		_ = b.get(encoding{wire.JSON}, "") // registers the collection
		wait(10 * time.Second)
		r := b.watch(e, "resourceVersion=100")
		<-r.ended
		checkError(t, r, http.StatusGone)
		r = b.watch(e, "resourceVersion=101")
		wait(time.Second)
		if events, _, _ := r.check(); events != 1000 {
			t.Errorf("from the version of the relist: %d events, want 1000", events)
		}
		if res := b.get(encoding{wire.JSON}, "resourceVersion=100&resourceVersionMatch=Exact"); res.StatusCode != http.StatusGone {
			t.Errorf("an exact list of an older version: %s", res.Status)
		}
		if res := b.get(encoding{wire.JSON}, "resourceVersion=100"); res.StatusCode != http.StatusOK {
			t.Errorf("a list not older than that version: %s", res.Status)
		}
	})
}

// TestDelays: a stall and a drip hold frames back for a while, and lose none.
func TestDelays(t *testing.T) {
	for spec, during := range map[string][2]int{"stall:at=1.005s,duration=5s": {100, 100}, "drip:at=1s,duration=5s": {110, 450}} {
		bubble(t, func(t *testing.T, e encoding) {
			b := newTestbed(t, &ticker{startTime: time.Now(), batch: 1000}, spec)
			b.start()
			r := b.watch(e, "resourceVersion=1")
			wait(5 * time.Second)
			if events, _, _ := r.check(); events < during[0] || events > during[1] {
				t.Errorf("%s: %d events during the fault, want %v", spec, events, during)
			}
			wait(2 * time.Second)
			if events, _, rest := r.check(); events != 700 || len(rest) > 0 {
				t.Errorf("%s: %d events afterwards, want 700; rest %.60q", spec, events, rest)
			}
		})
	}
}

func TestDuplicateBookmark(t *testing.T) {
	bubble(t, func(t *testing.T, e encoding) {
		b := newTestbed(t, nil, "duplicate-bookmark:at=1.005s")
		b.start()
		r := b.watch(e, "resourceVersion=1")
		wait(2 * time.Second)
		events, others, _ := r.check()
		if events != 101 || len(others) < 3 {
			t.Fatalf("%d events and %d more frames", events, len(others))
		}
		for _, f := range others[:2] {
			if f.typ != watch.Bookmark || f.meta.ResourceVersion != "102" || f.meta.Kind != "ConfigMap" || f.meta.APIVersion != "v1" {
				t.Errorf("frame %+v, want a bookmark of version 102", f)
			}
		}
		if f := others[2]; f.typ != watch.Modified || f.meta.ResourceVersion != "103" {
			t.Errorf("next frame %+v, want version 103", f)
		}
	})
}

// A bookmark before the end of the initial state would be wrong.
func TestBookmarkAfterInitialState(t *testing.T) {
	bubble(t, func(t *testing.T, e encoding) {
		b := newTestbed(t, nil, "duplicate-bookmark:frames=1,count=1")
		b.start()
		r := b.watch(e, "sendInitialEvents=true")
		wait(time.Second)
		_, others, _ := r.check()
		if len(others) < 10 || others[0].typ != watch.Bookmark || others[1].typ != watch.Modified || others[2].typ != watch.Bookmark || others[3].typ != watch.Bookmark {
			t.Fatalf("%d frames: %v", len(others), others)
		}

		b = newTestbed(t, nil, "duplicate-bookmark:at=1s")
		b.start()
		early := b.watch(e, "resourceVersion=0")
		wait(2 * time.Second)
		if events, others, _ := early.check(); events != 201 || others != nil {
			t.Errorf("%d events and %v, want no bookmark", events, others)
		}
		late := b.watch(e, "sendInitialEvents=true")
		wait(time.Second)
		if _, others, _ := late.check(); others[0].typ != watch.Bookmark || others[1].typ != watch.Modified {
			t.Errorf("a later watch: %v", others[:2])
		}
	})
}

func TestFramesTrigger(t *testing.T) {
	for _, batch := range []int{1, 7} {
		bubble(t, func(t *testing.T, e encoding) {
			b := newTestbed(t, &ticker{startTime: time.Now(), batch: batch}, "disconnect:frames=50,count=2", "stall:frames=30,duration=1s")
			b.start()
			for range 2 {
				r := b.watch(e, "resourceVersion=1")
				<-r.ended
				if events, _, rest := r.check(); events != 50 || len(rest) > 0 || !errors.Is(r.err, io.ErrUnexpectedEOF) {
					t.Errorf("%d events, %d bytes, %v, want 50 and an unexpected end", events, len(rest), r.err)
				}
			}
			r := b.watch(e, "resourceVersion=1")
			wait(20 * time.Second)
			if events, _, _ := r.check(); events < 100 || r.err != nil {
				t.Errorf("the third watch: %d events, %v", events, r.err)
			}
			n := b.Counts()
			if n[Disconnect] != 2 || n[Stall] < 4 {
				t.Errorf("%v", n)
			}
		})
	}
}

func TestCountAndUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil, "stall:every=1s,count=3,duration=10ms", "drip:at=500ms,every=1s,until=4500ms,duration=10ms")
		b.start()
		_ = b.watch(encoding{wire.JSON}, "resourceVersion=1")
		wait(11 * time.Second)
		at := map[Name][]time.Duration{}
		for _, in := range b.Log() {
			at[in.Fault] = append(at[in.Fault], time.Duration(in.At))
		}
		for name, want := range map[Name][]time.Duration{
			Stall: {time.Second, 2 * time.Second, 3 * time.Second},
			Drip:  {500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond, 3500 * time.Millisecond},
		} {
			if diff := cmp.Diff(want, at[name]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// Equal seeds give equal logs; another seed gives another log.
func TestSeeds(t *testing.T) {
	play := func(seed int64) (log []Injection) {
		synctest.Test(t, func(t *testing.T) {
			b := seeded(t, seed, nil, "half-frame:every=103137us,count=50", "malformed:frames=13,count=10", "disconnect:every=71291us,count=30")
			b.start()
			for range 40 {
				<-b.watch(encoding{wire.JSON}, "resourceVersion=1").ended
			}
			log = b.Log()
		})
		return log
	}
	one, again, other := play(7), play(7), play(8)
	if diff := cmp.Diff(one, again); diff != "" {
		t.Errorf("with one seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(one, other) {
		t.Error("another seed makes no difference")
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil, "stall:at=1s,duration=1h", "throttle:at=2s,duration=1h", "disconnect:every=3s")
		r := b.watch(encoding{wire.JSON}, "resourceVersion=1")
		b.start()
		if err := b.Start(); !errors.Is(err, ErrState) {
			t.Errorf("a second Start: %v", err)
		}
		other := b.watch(encoding{wire.JSON}, "resourceVersion=1")
		wait(1500 * time.Millisecond)
		b.Stop()
		b.Stop()
		wait(10 * time.Second)
		for _, r := range []*reader{r, other} {
			if events, _, _ := r.check(); events != 1150 || r.err != nil {
				t.Errorf("%d events, %v, want all 1150 and no end", events, r.err)
			}
		}
		if err := b.Start(); !errors.Is(err, ErrState) {
			t.Errorf("Start after Stop: %v", err)
		}
	})
}

// Requests outside resources and refused watches pass through unchanged.
func TestPassesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				w.WriteHeader(http.StatusTeapot)
			}
			_, _ = w.Write([]byte("hello"))
		})
		b := newTestbed(t, h, "internal-error", "half-frame:duration=1h")
		b.start()
		synctest.Wait()
		for path, want := range map[string]int{
			"/healthz": 200, "/api/v1": 200, "/apis/apps/v1": 200, "/apis": 200, "/openapi/v3/apis/apps/v1": 200, "/version": 200,
			"/api/v1/pods": 500, "/apis/apps/v1/deployments": 500, "/api/v1/namespaces/a/pods/b/status": 500,
		} {
			res, err := b.client.Get("http://pipe" + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != want || want == 200 && string(body) != "hello" {
				t.Errorf("%s: %s %q", path, res.Status, body)
			}
		}
		wait(time.Second)
		res := b.get(encoding{wire.JSON}, "watch=1")
		if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusTeapot || string(body) != "hello" || err != nil {
			t.Errorf("a refused watch: %s %q %v", res.Status, body, err)
		}
	})
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil, "error-event:every=1s,count=3")
		b.start()
		r := b.watch(encoding{wire.JSON}, "resourceVersion=1")
		<-r.ended
		wait(3 * time.Second)
		want := []Injection{
			{
				At: Duration(time.Second), Fault: ErrorEvent, Occurrence: 1, Watch: 1,
				Path: "/api/v1/namespaces/default/configmaps", Detail: "ERROR event 500 InternalError",
			},
			{At: Duration(2 * time.Second), Fault: ErrorEvent, Occurrence: 2},
			{At: Duration(3 * time.Second), Fault: ErrorEvent, Occurrence: 3},
		}
		if diff := cmp.Diff(want, b.Log()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Over TCP, Reset resets the connection; over HTTP/2, the stream.
func TestResetOverTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inj, err := New([]Spec{{Name: Reset, Frames: 3, Count: 1}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: inj.Wrap(&ticker{startTime: time.Now()})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		inj.Stop()
		_ = srv.Close()
		serving.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	if err := inj.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/api/v1/configmaps?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the watch ended with %v, want a reset", err)
	}
}

// TestFramesOfEachEncoding: frames are found, a cut is inside of one, and garbage has no position.
func TestFramesOfEachEncoding(t *testing.T) {
	for _, e := range encodings {
		var all []byte
		for v := range uint64(5) {
			b, err := e.frame(watch.Modified, object(v+1))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		r := reader{t: t, encoding: e, got: all}
		if frames, rest := r.frames(); len(frames) != 5 || len(rest) > 0 || frames[4].meta.ResourceVersion != "5" || isBookmark(e.last(all)) {
			t.Errorf("%v: frames %v and %q", e, frames, rest)
		}
		rng := rand.New(rand.NewPCG(1, 1))
		for range 2000 {
			r.got = all[:e.cut(all, rng)]
			// A cut JSON frame misses more than its newline.
			if frames, rest := r.frames(); len(frames) > 4 || len(rest) == 0 || e.Media == wire.JSON && json.Valid(rest) {
				t.Fatalf("%v: cut at %d: %d frames and %d bytes", e, len(r.got), len(frames), len(rest))
			}
		}
		for range 20 {
			if p, err := e.read(e.garbage(rng)); err == nil {
				t.Errorf("%v: garbage decodes as %v", e, p)
			}
		}
	}
}
