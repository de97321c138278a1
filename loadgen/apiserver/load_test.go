package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

var (
	loadWatches = flag.Int("load.watches", 50, "watches of TestLoad")
	loadObjects = flag.Int("load.objects", 2000, "objects of TestLoad")
	soakStorms  = flag.Duration("load.soak", 0, "time of TestStormSoak; 0 skips it")
)

// pipes is a listener whose connections have no buffers: a write waits for its reader.
type pipes struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestWatchCut: a watch whose client does not read is cut when the event after its last one is no longer
// kept, over HTTP/1.1 and HTTP/2. The log frees what the watch had not written.
func TestWatchCut(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := bulky()
			srv, err := New(s, Options{Retain: 1000})
			if err != nil {
				t.Fatal(err)
			}
			transport := &http.Transport{DisableCompression: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
			url := serveOver(t, srv, transport, protocol, func() (string, error) {
				p := newPipes()
				transport.DialContext = p.dial
				_, err := srv.Serve(p, nil)
				return "http://pipe", err
			})
			// The first write moves the storm's events to a history that drops old ones.
			c := srv.storms[0]
			c.touch(s.Events[0].Key)
			first := c.log.Visible()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/pods?watch=1&resourceVersion=%d", url, first), nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if res.Proto != protocol {
				t.Fatalf("%s", res.Proto)
			}
			await(ctx, t, "a watch", func() bool { return len(srv.Lags()) == 1 })
			srv.Release(500)
			srv.watching.mu.Lock()
			w := srv.watching.all[0]
			srv.watching.mu.Unlock()
			await(ctx, t, "a write that waits", w.writing.Load)
			held := heldFrames(t, c, first)
			srv.Release(uint64(len(s.Events)))
			await(ctx, t, "the end of the watch", func() bool { return len(srv.Lags()) == 0 })
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				t.Error("the stream has an orderly end, in the middle of an event")
			}
			await(ctx, t, "free memory", func() bool { runtime.GC(); return held.Value() == nil })
		})
	}
}

// heldFrames returns a weak pointer to the encoded event after a position.
func heldFrames(t *testing.T, c *collection, at uint64) weak.Pointer[byte] {
	t.Helper()
	data, _, err := c.log.Frames(c.encoder, wire.FormOf(wire.JSON, wire.Object), false, at, at+1)
	if err != nil {
		t.Fatal(err)
	}
	return weak.Make(&data[0])
}

// touch changes an annotation of an object, as a client does.
func (c *collection) touch(key string) {
	c.edit(store.Origin{}, key, func(current resources.Object) (watch.EventType, resources.Object) {
		o := current.DeepCopyObject().(resources.Object)
		o.SetAnnotations(map[string]string{"touched": current.GetResourceVersion()})
		return watch.Modified, o
	})
}

// loadClients are the watches of TestLoad, which run in a process of their own.
type loadClients struct {
	URL           string
	CA            []byte
	Version       uint64 // where the watches begin
	Watches, Slow int    // Slow more ones do not read
	Bursts, Burst int    // bursts of events
}

const (
	loadEnv       = "WATCHLAB_LOAD" // has the loadClients for TestLoadClients
	loadPerConn   = 100             // watches of a connection
	loadSlow      = 10
	loadRetain    = 256
	loadBurst     = 128
	loadBursts    = 4
	loadPrefix    = "load: " // of the lines between the processes
	loadSlowBytes = 64 << 10 // that a slow watch takes
)

// held returns the bytes of heap and stacks after a collection, and the goroutines.
func held() (bytes, goroutines int) {
	runtime.GC()
	runtime.GC() // finalizers and pools need two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// TestLoad holds objects and watches over HTTP/2 and TLS on loopback. Bursts of writes go to all of them, while
// slow watches do not read. No watch misses an event, the slow ones are cut, and the log keeps no more than its
// history. It reports memory and delivery, and asserts neither.
func TestLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	before, _ := held()
	began := time.Now()
	s := initialPods(t, *loadObjects)
	objects, _ := held()
	t.Logf("%d pods in %.1f s: %d bytes each", s.Initial, time.Since(began).Seconds(), (objects-before)/s.Initial)

	prepared, err := PrepareWith(s, store.NewBudget(0))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := Open(Options{Retain: loadRetain}, prepared)
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, err := Access{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Serve(l, id.ServerConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := srv.storms[0]
	c.touch(s.Events[0].Key)
	served, idle := held()
	t.Logf("the server's index: %d bytes an object", (served-objects)/s.Initial)

	clients := loadClients{URL: url, CA: id.CA, Version: c.log.Visible(), Watches: *loadWatches, Slow: loadSlow, Bursts: loadBursts, Burst: loadBurst}
	lines, end := clients.start(ctx, t)
	next := func(want string) string {
		t.Helper()
		for lines.Scan() {
			if line, ok := strings.CutPrefix(lines.Text(), loadPrefix); ok {
				if !strings.HasPrefix(line, want) {
					t.Fatalf("%q instead of %q", line, want)
				}
				return line
			}
		}
		t.Fatalf("the clients ended before %q: %v", want, lines.Err())
		return ""
	}
	next("open")
	all := clients.Watches + clients.Slow
	if n := len(srv.Lags()); n != all {
		t.Fatalf("%d of %d watches", n, all)
	}
	watched, goroutines := held()
	t.Logf("%d watches on %d connections: %d bytes and %.2f goroutines each", all, (clients.Watches+loadPerConn-1)/loadPerConn+1, (watched-served)/all, float64(goroutines-idle)/float64(all))

	rng := rand.New(rand.NewPCG(1, 1))
	for burst := range loadBursts {
		at := time.Now()
		for range loadBurst {
			c.touch(s.Events[rng.IntN(s.Initial)].Key)
		}
		wrote := time.Since(at)
		line := next(fmt.Sprintf("burst %d:", burst))
		rate := float64(clients.Watches*loadBurst) / time.Since(at).Seconds()
		t.Logf("%s; %d writes took %v, delivery to all %v (%.0f events/s), %d watches", line, loadBurst, wrote.Round(time.Millisecond), time.Since(at).Round(time.Millisecond), rate, len(srv.Lags()))
	}
	await(ctx, t, "the end of the slow watches", func() bool { return len(srv.Lags()) == clients.Watches })
	next(fmt.Sprintf("%d slow watches were cut", clients.Slow))
	// Two blocks of 128 events may be incomplete, and State needs each object's newest event.
	if b := c.log.Bounds(); b.Visible-b.Oldest > loadRetain {
		t.Errorf("a history of %d events", b.Visible-b.Oldest)
	}
	if _, err := c.log.Bounds().Start(strconv.FormatUint(clients.Version, 10), nil, false); err == nil {
		t.Error("the first events are still kept")
	}
	after, _ := held()
	t.Logf("after %d events: %+d bytes a watch", loadBurst*loadBursts, (after-watched)/all)
	if srv.opened() != all {
		t.Errorf("%d watches were opened for %d", srv.opened(), all)
	}
	end()
	await(ctx, t, "no watches", func() bool { return len(srv.Lags()) == 0 })
}

// initialPods returns a storm of n pods of a node loss before it begins.
func initialPods(t *testing.T, n int) *storm.Storm {
	t.Helper()
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		t.Fatal(err)
	}
	p.Resize(0, n, 0)
	set, err := p.Set(1)
	if err != nil {
		t.Fatal(err)
	}
	s := set.Storms[0]
	s.Events = slices.Clone(s.Events[:s.Initial])
	s.Keys = s.Initial
	return s
}

// start runs the clients and returns what they write. end ends them.
func (c loadClients) start(ctx context.Context, t *testing.T) (lines *bufio.Scanner, end func()) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLoadClients$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), loadEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewScanner(out)
	end = sync.OnceFunc(func() {
		_ = in.Close() // The clients wait for it.
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "PASS") && !strings.HasPrefix(lines.Text(), "ok") {
				t.Log(lines.Text())
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("clients: %v", err)
		}
	})
	t.Cleanup(end)
	return lines, end
}

// TestLoadClients is the process of the clients of TestLoad.
func TestLoadClients(t *testing.T) {
	text := os.Getenv(loadEnv)
	if text == "" {
		t.Skip("TestLoad starts it")
	}
	var c loadClients
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	connect := func(window int) *http.Transport {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.CA)
		return &http.Transport{
			DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window},
		}
	}
	open := func(transport *http.Transport) io.ReadCloser {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/api/v1/pods?watch=1&resourceVersion=%d", c.URL, c.Version), nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return nil
		}
		if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
			t.Errorf("%s %s", res.Proto, res.Status)
		}
		return res.Body
	}
	slow := make([]io.ReadCloser, c.Slow)
	lazy := connect(loadSlowBytes)
	for i := range slow {
		slow[i] = open(lazy)
	}
	bodies := make([]io.ReadCloser, c.Watches)
	var opening sync.WaitGroup
	for from := 0; from < c.Watches; from += loadPerConn {
		transport := connect(1 << 20)
		opening.Go(func() {
			for i := from; i < min(from+loadPerConn, c.Watches); i++ {
				bodies[i] = open(transport)
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		return
	}
	fmt.Println(loadPrefix + "open")

	// When each watch had the last event of each burst.
	times := make([][]time.Time, c.Bursts)
	reached := make([]atomic.Int64, c.Bursts)
	for i := range times {
		times[i] = make([]time.Time, c.Watches)
	}
	var reading sync.WaitGroup
	for i, body := range bodies {
		reading.Go(func() {
			buf := make([]byte, 16<<10)
			for n, burst := 0, 0; burst < c.Bursts; {
				k, err := body.Read(buf)
				if err != nil {
					t.Errorf("watch %d after %d events: %v", i, n, err)
					return
				}
				for n += bytes.Count(buf[:k], []byte{'\n'}); burst < c.Bursts && n >= (burst+1)*c.Burst; burst++ {
					times[burst][i] = time.Now()
					if reached[burst].Add(1) == int64(c.Watches) {
						fmt.Printf("%sburst %d: %s\n", loadPrefix, burst, spread(times[burst]))
					}
				}
			}
		})
	}
	reading.Wait()
	cut := 0
	for _, body := range slow {
		if n, err := io.Copy(io.Discard, body); err != nil && n <= 2*loadSlowBytes {
			cut++
		}
		_ = body.Close()
	}
	fmt.Printf("%s%d slow watches were cut\n", loadPrefix, cut)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the server's process has looked
	if !t.Failed() {
		os.Exit(0) // The end of the process closes the connections.
	}
}

// spread says how long after the first watch the others had a burst.
func spread(at []time.Time) string {
	slices.SortFunc(at, time.Time.Compare)
	after := func(i int) time.Duration { return at[i].Sub(at[0]).Round(time.Millisecond) }
	return fmt.Sprintf("after the first watch had it, half had it in %v, 99 %% in %v, all in %v", after(len(at)/2), after(len(at)*99/100), after(len(at)-1))
}

// TestStormSoak plays storms to watches that break and begin anew, one after the other. After each storm no
// goroutine and no descriptor remains, and the heap does not grow.
func TestStormSoak(t *testing.T) {
	if *soakStorms <= 0 {
		t.Skip("asked for by -load.soak")
	}
	ctx, cancel := context.WithTimeout(t.Context(), *soakStorms+10*patience)
	defer cancel()
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		t.Fatal(err)
	}
	p.Resize(10, 0, 0)
	set, err := p.Set(1)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := Prepare(set.Storms[0], wire.JSON, false)
	if err != nil {
		t.Fatal(err)
	}
	var heap, goroutines, files int // after two storms, when pools are filled
	began, events, broken := time.Now(), int64(0), int64(0)
	for n := 1; n <= 4 || time.Since(began) < *soakStorms; n++ {
		e, b := soakStorm(ctx, t, prepared, uint64(n))
		events, broken = events+e, broken+b
		if n == 2 {
			heap, goroutines = held()
			files = descriptors(t)
		}
		if n > 2 {
			await(ctx, t, fmt.Sprintf("after storm %d, at most %d goroutines and %d descriptors", n, goroutines, files), func() bool {
				return runtime.NumGoroutine() <= goroutines && descriptors(t) <= files
			})
		}
	}
	last, _ := held()
	t.Logf("%d events delivered, %d connections broken; heap and stacks %.2f MB", events, broken, float64(last)/1e6)
	if last > heap+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap, last)
	}
}

// soakStorm plays the storm to 20 watches on connections that break, and writes to its pods.
func soakStorm(ctx context.Context, t *testing.T, prepared *Prepared, seed uint64) (events, broken int64) {
	t.Helper()
	srv, err := Open(Options{Retain: 4096}, prepared)
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	ctx, cancel := context.WithCancel(ctx)
	c := srv.storms[0]
	var done sync.WaitGroup
	var got, ends atomic.Int64
	for range 20 {
		done.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/pods?watch=1", nil)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := transport.RoundTrip(req)
				if err != nil {
					ends.Add(1)
					continue
				}
				lines := bufio.NewScanner(res.Body)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					got.Add(1)
				}
				_ = res.Body.Close()
				ends.Add(1)
			}
		})
	}
	if err := srv.AwaitWatches(ctx, func(open, _ int) bool { return open == 20 }); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	s := prepared.storm
	for i := s.Initial; i < len(s.Events); i++ {
		srv.Release(s.Events[i].Seq)
		if rng.IntN(50) == 0 {
			c.touch(s.Events[rng.IntN(s.Initial)].Key)
		}
		if rng.IntN(1000) == 0 {
			srv.Disconnect()
		}
	}
	cancel()
	done.Wait()
	transport.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	return got.Load(), ends.Load()
}

// descriptors returns the number of this process's, or 0 where the system does not tell.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}
