package record

import (
	"bytes"
	"context"
	"fmt"
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
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
	"watchlab/loadgen/trace/anonymise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name, node string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":%q,"uid":"u-%s","resourceVersion":"1"},"spec":{"nodeName":%q,"containers":null}}`, name, name, node)
}

// script returns a storm of n pods, each of which is bound; every third pod is deleted. The
// first two thirds are the initial list.
func script(t *testing.T, n int) *storm.Storm {
	t.Helper()
	var b strings.Builder
	line := func(typ, object string) {
		fmt.Fprintf(&b, `{"offsetNs":0,"event":{"type":%q,"object":%s}}`+"\n", typ, object)
	}
	for i := range n {
		if i == n*2/3 {
			line("BOOKMARK", `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}`)
		}
		line("ADDED", pod(fmt.Sprintf("web-%d", i), ""))
	}
	for i := range n {
		line("MODIFIED", pod(fmt.Sprintf("web-%d", i), "node-1"))
		if i%3 == 0 {
			line("DELETED", pod(fmt.Sprintf("web-%d", i), "node-1"))
		}
	}
	path := filepath.Join(t.TempDir(), "script.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := trace.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// collector keeps the written frames, as a trace and as the resulting state.
type collector struct {
	trace.FrameWriter
	mu      sync.Mutex
	changed *sync.Cond
	state   map[string]string
	breaks  []trace.Break
	closed  bool
}

func newCollector(w trace.FrameWriter) *collector {
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
	stop := context.AfterFunc(t.Context(), c.changed.Broadcast)
	defer stop()
	timer := time.AfterFunc(time.Minute, func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !maps.Equal(want, c.state) {
		if c.closed {
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
			forbid(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func forbid(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}`))
}

// TestRecord plays a storm through a server that disconnects and expires versions, and records it.
// The final state is correct, the trace is a valid storm, and its breaks count the missed changes.
func TestRecord(t *testing.T) {
	const n, retain = 900, 100
	s := script(t, n)
	g := &gate{}
	srv, err := apiserver.New(s, apiserver.Options{Retain: retain, Wrap: g.wrap})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	config := &rest.Config{Host: url, Transport: transport}
	c, err := cluster.For(config)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Resource("po")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	w, err := trace.NewWriter(&file, trace.Header{Resources: []trace.Resource{ResourceOf(res)}})
	if err != nil {
		t.Fatal(err)
	}
	got := newCollector(w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sums []Summary
	done := make(chan error)
	go func() {
		var err error
		sums, err = Record(ctx, got, Options{Config: config, Resources: []cluster.Resource{res}, Backoff: time.Millisecond})
		done <- err
	}()
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
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(sums) != 1 || sums[0].Reconnects < 1 || sums[0].Relists < 1 || sums[0].Missed < 1 || sums[0].Events < 100 {
		t.Errorf("%+v", sums)
	}
	var relisted *trace.Break
	for i, b := range got.breaks {
		if b.Reason == trace.Relisted {
			relisted = &got.breaks[i]
		}
	}
	if relisted == nil || relisted.Until == "" || relisted.DownNs <= 0 || relisted.Added+relisted.Modified+relisted.Deleted == 0 {
		t.Errorf("breaks: %+v", got.breaks)
	}
	path := filepath.Join(t.TempDir(), "x.jsonl.zst")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := trace.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if r.Initial != s.Initial || len(r.Final()) != len(s.Final()) {
		t.Errorf("%d initial, %d final; want %d, %d", r.Initial, len(r.Final()), s.Initial, len(s.Final()))
	}
}

// TestRefused: a permanent error is returned at once.
func TestRefused(t *testing.T) {
	s := script(t, 3)
	srv, err := apiserver.New(s, apiserver.Options{Wrap: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { forbid(w) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res := cluster.Resource{GroupVersionResource: s.Resource, Kind: s.Kind, Namespaced: true}
	_, err = Record(t.Context(), trace.NewLineWriter(&bytes.Buffer{}, false), Options{Config: &rest.Config{Host: url, Transport: transport}, Resources: []cluster.Resource{res}})
	if err == nil || !strings.Contains(err.Error(), "record: pods: pods is forbidden") {
		t.Errorf("%v", err)
	}
}

// TestPermanentRefusal: a refusal long after the end of a watch is an error, and the frames so
// far are kept.
func TestPermanentRefusal(t *testing.T) {
	s := script(t, 30)
	g := &gate{}
	srv, err := apiserver.New(s, apiserver.Options{Wrap: g.wrap})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res := cluster.Resource{GroupVersionResource: s.Resource, Kind: s.Kind, Namespaced: true}
	got := newCollector(trace.NewLineWriter(&bytes.Buffer{}, false))
	var sums []Summary
	done := make(chan error)
	go func() {
		var err error
		sums, err = Record(t.Context(), got, Options{
			Config: &rest.Config{Host: url, Transport: transport}, Resources: []cluster.Resource{res},
			Backoff: time.Millisecond, Settling: 20 * time.Millisecond,
		})
		done <- err
	}()
	got.waitFor(t, s, s.Initial)
	g.forbid.Store(1 << 40)
	srv.Disconnect()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "record: pods: pods is forbidden") {
		t.Errorf("%v", err)
	}
	if len(sums) != 1 || sums[0].Events != s.Initial {
		t.Errorf("%+v, want %d events", sums, s.Initial)
	}
}

// TestPipe: output of kubectl that starts within a watch and ends with an error, anonymised.
func TestPipe(t *testing.T) {
	doc := func(typ, object string) string { return fmt.Sprintf("{\"type\":%q,\n \"object\":%s}\n", typ, object) }
	in := doc("MODIFIED", pod("web-1", "")) + doc("ADDED", pod("web-2", "")) + "{broken\n" + doc("DELETED", pod("web-3", "")) + doc("DELETED", pod("web-2", "")) +
		doc("ERROR", `{"kind":"Status","apiVersion":"v1","message":"too old","code":410}`)
	var out bytes.Buffer
	a := anonymise.WithKey([anonymise.KeySize]byte{1})
	var faults []string
	events, err := Pipe(trace.NewReader(strings.NewReader(in), "stdin"), trace.NewLineWriter(&out, false), a.Frame, func(e *trace.Error) { faults = append(faults, e.Error()) })
	if err != nil || events != 3 || len(faults) != 1 {
		t.Errorf("%d events, %v, faults %q", events, err, faults)
	}
	var got []string
	r := trace.NewReader(&out, "x")
	for {
		f, err := r.Next()
		if err != nil {
			break
		}
		if f.Break != nil {
			got = append(got, f.Break.Reason)
			continue
		}
		key, _, err := f.Key()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s", f.Type, key))
	}
	key := func(name string) string { return a.String("shop") + "/" + a.String(name) }
	want := []string{"ADDED " + key("web-1"), "ADDED " + key("web-2"), trace.Unreadable, "DELETED " + key("web-2"), trace.Ended}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
