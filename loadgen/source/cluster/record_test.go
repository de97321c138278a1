package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// changing returns a storm of n pods: the first two thirds are the initial list, each pod is modified, and every
// third is deleted.
func changing(n int) *storm.Storm {
	s := &storm.Storm{Name: "changing", Resource: podResource.GroupVersionResource, Kind: podResource.Kind, Initial: n * 2 / 3, Keys: n}
	step := func(i int, t watch.EventType) {
		name := fmt.Sprintf("web-%d", i)
		seq := uint64(len(s.Events) + 1)
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		s.Events = append(s.Events, storm.Event{Seq: seq, Type: t, Key: "ns/" + name, KeyIndex: int32(i), Object: storm.Renumber(pod, seq)})
	}
	for i := range n {
		step(i, watch.Added)
	}
	for i := range n {
		step(i, watch.Modified)
		if i%3 == 0 {
			step(i, watch.Deleted)
		}
	}
	return s
}

// serve serves a storm until the test ends.
func serve(t *testing.T, s *storm.Storm, opts apiserver.Options) (*apiserver.Server, *rest.Config) {
	t.Helper()
	srv := must(apiserver.New(s, opts))(t)
	url := must(srv.Start())(t)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv, &rest.Config{Host: url, Transport: transport}
}

// collector keeps the resulting state and the breaks of written frames.
type collector struct {
	FrameWriter
	mu      sync.Mutex
	changed *sync.Cond
	state   map[string]string
	breaks  []trace.Break
	late    bool
}

func newCollector(w FrameWriter) *collector {
	c := &collector{FrameWriter: w, state: map[string]string{}}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *collector) Write(f trace.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	switch {
	case f.Break != nil:
		c.breaks = append(c.breaks, *f.Break)
	case f.Type == watch.Bookmark:
	default:
		key, version, err := f.Key()
		if err != nil {
			return err
		}
		if c.state[key] = version; f.Type == watch.Deleted {
			delete(c.state, key)
		}
	}
	return c.FrameWriter.Write(f)
}

// waitFor waits until the state equals that of the storm after seq events.
func (c *collector) waitFor(t *testing.T, s *storm.Storm, seq int) {
	t.Helper()
	upto := *s
	upto.Events = s.Events[:seq]
	want := map[string]string{}
	for k, v := range upto.Final() {
		want[k] = fmt.Sprint(v)
	}
	timer := time.AfterFunc(time.Minute, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.late = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !maps.Equal(want, c.state) {
		if c.late {
			t.Fatalf("after %d events: %s", seq, cmp.Diff(want, c.state))
		}
		c.changed.Wait()
	}
}

// gate blocks requests while it is closed.
type gate struct {
	mu sync.RWMutex
	// forbid is a number of requests to answer with 403, like a server that has just started.
	forbid atomic.Int64
}

func (g *gate) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.RLock()   // waits while the gate is closed
		g.mu.RUnlock() //nolint:staticcheck // A watch must not hold the gate open.
		if g.forbid.Add(-1) >= 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}`))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// recording is a running Record.
type recording struct {
	*collector
	done chan error
	sums []Recorded // set before done
}

func startRecord(ctx context.Context, w FrameWriter, opts RecordOptions) *recording {
	r := &recording{collector: newCollector(w), done: make(chan error, 1)}
	opts.Resources, opts.Backoff = []Resource{podResource}, time.Millisecond
	go func() {
		var err error
		r.sums, err = Record(ctx, r, opts)
		r.done <- err
	}()
	return r
}

// TestRecord plays a storm through a server that disconnects and expires versions, and records it.
// The final state is correct, the trace is a valid storm, and its breaks count the missed changes.
func TestRecord(t *testing.T) {
	const n, retain = 900, 100
	s, g := changing(n), &gate{}
	srv, config := serve(t, s, apiserver.Options{Retain: retain, Wrap: g.wrap})
	var file bytes.Buffer
	w := must(trace.NewWriter(&file, trace.Header{Resources: []trace.Resource{podResource.Traced()}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := startRecord(ctx, w, RecordOptions{Config: config})
	seq := s.Initial
	got.waitFor(t, s, seq)
	next := func(events int) {
		seq += events
		srv.Release(uint64(seq))
	}
	next(50)
	got.waitFor(t, s, seq)
	// Within the server's history, while it still answers 403.
	g.forbid.Store(3)
	srv.Disconnect()
	next(50)
	got.waitFor(t, s, seq)
	// Beyond the server's history, without a watch: requests wait at the gate.
	g.mu.Lock()
	srv.Disconnect()
	next(5 * retain)
	g.mu.Unlock()
	got.waitFor(t, s, seq)
	next(len(s.Events) - seq)
	got.waitFor(t, s, seq)
	cancel()
	if err := <-got.done; err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if sum := got.sums[0]; sum.Reconnects < 1 || sum.Relists < 1 || sum.Missed < 1 || sum.Events < 100 {
		t.Errorf("%+v", sum)
	}
	relisted := false
	for _, b := range got.breaks {
		relisted = relisted || b.Reason == trace.Relisted && b.Until != "" && b.DownNs > 0 && b.Added+b.Modified+b.Deleted > 0
	}
	if !relisted {
		t.Errorf("breaks: %+v", got.breaks)
	}
	path := filepath.Join(t.TempDir(), "x.jsonl.zst")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := must(trace.Load(path))(t)
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if r.Initial != s.Initial || len(r.Final()) != len(s.Final()) {
		t.Errorf("%d initial, %d final; want %d, %d", r.Initial, len(r.Final()), s.Initial, len(s.Final()))
	}
}

// TestRefused: a refusal at the start, or long after the end of a watch, is an error, and the frames so
// far are kept.
func TestRefused(t *testing.T) {
	for _, listed := range []bool{false, true} {
		s, g := changing(30), &gate{}
		srv, config := serve(t, s, apiserver.Options{Wrap: g.wrap})
		if !listed {
			g.forbid.Store(1 << 40)
		}
		got := startRecord(t.Context(), trace.NewLineWriter(&bytes.Buffer{}), RecordOptions{Config: config, Settling: 20 * time.Millisecond})
		events := 0
		if listed {
			events = s.Initial
			got.waitFor(t, s, events)
			g.forbid.Store(1 << 40)
			srv.Disconnect()
		}
		if err := <-got.done; err == nil || !strings.Contains(err.Error(), "record: pods: pods is forbidden") {
			t.Errorf("listed %v: %v", listed, err)
		}
		if got.sums[0].Events != events {
			t.Errorf("%+v, want %d events", got.sums, events)
		}
	}
}

// answer is the body of all answers.
type answer []byte

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(a)),
	}, nil
}

// FuzzRecord: a watch of any bytes ends with an error or its end, and the frames before are written.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"7"}}}{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"9"}}}`,
		`{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","code":410}}`, `{"type":"ERROR"}`, `{"object":7}`, "[", "null",
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Status"}}`, `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Pod"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		client := must(dynamic.NewForConfig(&rest.Config{Host: "http://localhost", Transport: answer(body)}))(t)
		sum := Recorded{Resource: podResource.Traced()}
		r := follower{
			recorder: &recorder{w: trace.NewLineWriter(&bytes.Buffer{})}, client: client.Resource(podResource.GroupVersionResource),
			resource: podResource, sum: &sum, known: map[string]Version{}, rv: "1",
		}
		_, _ = r.once(t.Context())
		if len(r.known) > sum.Events {
			t.Errorf("%d objects of %d events", len(r.known), sum.Events)
		}
	})
}
