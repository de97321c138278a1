package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/programs"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/loadgen/storm"
)

// served is a running simulated server, with TLS and a token.
type served struct {
	*step
	process *programs.Process
	config  *rest.Config
	events  int // of the storm, after the initial list
}

var stormLine = regexp.MustCompile(`at first, then (\d+) events`)

// serve starts watchlab serve with a storm of some seconds.
func (s *step) serve(args ...string) *served {
	s.Helper()
	kubeconfig := s.path("kubeconfig")
	p := s.start(s.command(slices.Concat([]string{"serve", "--storm", "nodeloss", "--nodes", "1", "--speed", "20", "--kubeconfig-out", kubeconfig}, args)...))
	srv := &served{step: s, process: p}
	p.Ready(s, func() error {
		m := stormLine.FindStringSubmatch(p.Output.String())
		if m == nil {
			return errors.New("the server has said nothing of its storm")
		}
		srv.events, _ = strconv.Atoi(m[1]) // It matches digits.
		_, err := os.Stat(kubeconfig)
		return err
	})
	var err error
	if srv.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		s.Fatal(err)
	}
	return srv
}

// over waits for the end of the storm.
func (srv *served) over() {
	srv.Helper()
	srv.process.Ready(srv, func() error {
		if !strings.Contains(srv.process.Output.String(), "the storm is over") {
			return errors.New("the storm goes on")
		}
		return nil
	})
}

// end interrupts the server, which must end with exit code 0 whatever its clients do.
func (srv *served) end() {
	srv.Helper()
	srv.process.End(os.Interrupt, programs.Patience)
	srv.expect(srv.process, done)
}

// client returns an HTTP client of a config. Its connections end with the step.
func (s *step) client(config *rest.Config) *http.Client {
	s.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { utilnet.CloseIdleConnectionsFor(c.Transport) })
	return c
}

// pods lists the versions of the server's pods by key, and returns the version of the list.
func (srv *served) pods(c *http.Client) (state map[string]string, version string) {
	srv.Helper()
	client, err := kubernetes.NewForConfigAndClient(srv.config, c)
	if err != nil {
		srv.Fatal(err)
	}
	list, err := client.CoreV1().Pods("").List(srv.Context(), metav1.ListOptions{})
	if err != nil {
		srv.Fatal(err)
	}
	state = map[string]string{}
	for i := range list.Items {
		state[keyOf(&list.Items[i])] = list.Items[i].ResourceVersion
	}
	return state, list.ResourceVersion
}

func keyOf(p *v1.Pod) string { return storm.ObjectKey(p.Namespace, p.Name) }

// watch reads the storm's events of a watch from a version. It passes each frame on.
func (srv *served) watch(ctx context.Context, c *http.Client, version string, frame func([]byte) error) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.config.Host+"/api/v1/pods?watch=1&resourceVersion="+version, nil)
	if err != nil {
		return err
	}
	answer, err := c.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	in := bufio.NewReader(answer.Body)
	for n := range srv.events {
		line, err := in.ReadBytes('\n')
		if err == nil {
			err = frame(line)
		}
		if err != nil {
			return fmt.Errorf("after %d of %d events: %w", n, srv.events, err)
		}
	}
	return nil
}

// reference is a watcher that reads all frames.
type reference struct {
	state map[string]string
	last  uint64
}

// frame checks that versions rise: nothing is there twice, and nothing is too late.
func (r *reference) frame(line []byte) error {
	var event struct {
		Type   watch.EventType
		Object v1.Pod
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	version, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
	if err != nil || version <= r.last {
		return fmt.Errorf("version %q after %d", event.Object.ResourceVersion, r.last)
	}
	r.last = version
	key := keyOf(&event.Object)
	if r.state[key] = event.Object.ResourceVersion; event.Type == watch.Deleted {
		delete(r.state, key)
	}
	return nil
}

// same checks that a client ended with the server's state.
func (srv *served) same(who string, state map[string]string) {
	srv.Helper()
	if want, _ := srv.pods(srv.client(srv.config)); !maps.Equal(want, state) {
		srv.Errorf("%s has %d pods, the server %d, or other versions", who, len(state), len(want))
	}
}

// watchers opens 5,000 watches. All get the same bytes, and one of them reads them.
func (s *step) watchers() {
	const watchers = 5000
	srv := s.serve("--start", strconv.Itoa(watchers), "--scale", "0.1")
	c := s.client(srv.config)
	state, version := srv.pods(c)
	ref := &reference{state: state}
	ref.last, _ = strconv.ParseUint(version, 10, 64) // A server's version is a number.
	sums := make([]uint64, watchers)
	errs := make([]error, watchers)
	var reading sync.WaitGroup
	for i := range watchers {
		reading.Go(func() {
			h := fnv.New64a()
			errs[i] = srv.watch(s.Context(), c, version, func(line []byte) error {
				_, _ = h.Write(line) // A hash takes all.
				if i == 0 {
					return ref.frame(line)
				}
				return nil
			})
			sums[i] = h.Sum64()
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatalf("%.2000s", err)
	}
	for i, sum := range sums {
		if sum != sums[0] {
			s.Errorf("watcher %d got other events than watcher 0", i)
		}
	}
	srv.over()
	srv.same("watcher 0", ref.state)
	s.struck += watchers
	srv.end()
}

// connectionStorm opens thousands of connections that say nothing, half a request, or garbage, while one
// client watches. The client misses nothing, others can come in, and the server ends.
func (s *step) connectionStorm() {
	const connections, hanging = 3000, 300
	srv := s.serve("--start", "2") // The storm begins with the second watch, so during the connections.
	address, err := url.Parse(srv.config.Host)
	if err != nil {
		s.Fatal(err)
	}
	c := s.client(srv.config)
	state, version := srv.pods(c)
	refs := []*reference{{state: state}, {state: maps.Clone(state)}}
	errs := make([]error, len(refs))
	var watching sync.WaitGroup
	for i, ref := range refs {
		watching.Go(func() { errs[i] = srv.watch(s.Context(), c, version, ref.frame) })
	}
	texts := []string{"", "GET / HTTP/1.1\r\nHost: ", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", strings.Repeat("\x00\xff", 2000), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}
	var open []net.Conn
	for i := range connections {
		conn, err := net.Dial("tcp", address.Host)
		if err != nil {
			s.Fatalf("connection %d: %v", i, err)
		}
		_, _ = io.WriteString(conn, pick(s, texts)) // The server may have closed it.
		s.struck++
		if i < hanging {
			open = append(open, conn)
		} else {
			_ = conn.Close()
		}
	}
	watching.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	srv.over()
	for i, ref := range refs {
		srv.same(fmt.Sprintf("watcher %d", i), ref.state)
	}
	srv.end()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// mess is what a proxy does to bytes.
type mess int

const (
	cut mess = iota
	delay
	reorder
)

// proxy forwards connections to a server and spoils some of the pieces that it reads.
type proxy struct {
	listener net.Listener
	to       string
	does     mess

	serving sync.WaitGroup
	closing chan struct{}

	mu     sync.Mutex
	rng    *rand.Rand            // guarded by mu
	left   int                   // faults; guarded by mu
	next   int                   // pieces until the next one; guarded by mu
	struck int                   // guarded by mu
	open   map[net.Conn]struct{} // guarded by mu
}

func (s *step) proxy(to string, does mess) *proxy {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	p := &proxy{listener: l, to: to, does: does, rng: s.rng, left: 4, next: 3, closing: make(chan struct{}), open: map[net.Conn]struct{}{}}
	if does == delay {
		p.left = 40
	}
	p.serving.Go(p.serve)
	return p
}

func (p *proxy) close() {
	close(p.closing)
	_ = p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.serving.Go(func() { p.copy(client, server) })
		p.serving.Go(func() { p.copy(server, client) })
	}
}

// copy forwards the bytes of one direction. Its end closes both connections.
func (p *proxy) copy(to, from net.Conn) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		delete(p.open, to)
		delete(p.open, from)
		p.mu.Unlock()
	}()
	piece := make([]byte, 4096)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		if !p.spoil(piece[:n], to) {
			return
		}
	}
}

// spoil writes a piece, perhaps spoilt. It returns false to end the connection.
func (p *proxy) spoil(piece []byte, to net.Conn) bool {
	at, wait, strikes := p.draw(len(piece))
	if strikes {
		switch p.does {
		case cut:
			_, _ = to.Write(piece[:at])
			return false
		case delay:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-p.closing:
				timer.Stop()
				return false
			}
		case reorder:
			piece = slices.Concat(piece[at:], piece[:at])
		}
	}
	_, err := to.Write(piece)
	return err == nil
}

// draw decides whether a fault strikes a piece, where, and how long.
func (p *proxy) draw(n int) (at int, wait time.Duration, strikes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 || n < 2 {
		return 0, 0, false
	}
	if p.next--; p.next > 0 {
		return 0, 0, false
	}
	p.left--
	p.struck++
	p.next = 2 + p.rng.IntN(20)
	return 1 + p.rng.IntN(n-1), time.Duration(p.rng.Int64N(int64(300 * time.Millisecond))), true
}

// watched is an informer behind a proxy.
type watched struct {
	name string
	cache.SharedIndexInformer

	mu     sync.Mutex
	newest map[string]uint64 // version of the last notification by key; guarded by mu
	broken []string          // guarded by mu
}

// notify checks that the version of a key never falls.
func (w *watched) notify(o any) {
	if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	p := o.(*v1.Pod)
	version, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	if key := keyOf(p); err != nil || version < w.newest[key] {
		w.broken = append(w.broken, fmt.Sprintf("%s at version %q after %d", key, p.ResourceVersion, w.newest[key]))
	} else {
		w.newest[key] = version
	}
}

func (w *watched) state() map[string]string {
	state := map[string]string{}
	for _, o := range w.GetStore().List() {
		p := o.(*v1.Pod)
		state[keyOf(p)] = p.ResourceVersion
	}
	return state
}

// proxied plays a storm to informers behind a proxy that spoils bytes: client-go's, and ours on a drawn
// queue. Errors and retries are fine. Wrong data is not: no key goes back to an older version, and at the
// end each store has the state of the server.
func (s *step) proxied(does mess) {
	srv := s.serve()
	address, err := url.Parse(srv.config.Host)
	if err != nil {
		s.Fatal(err)
	}
	p := s.proxy(address.Host, does)
	config := rest.CopyConfig(srv.config)
	config.Host = "https://" + p.listener.Addr().String()
	c := s.client(config)
	client, err := kubernetes.NewForConfigAndClient(config, c)
	if err != nil {
		s.Fatal(err)
	}
	variant := pick(s, deltafifo.Variants()).Name
	ours, err := informer.Func(informer.Options{Variant: variant})
	if err != nil {
		s.Fatal(err)
	}
	makers := map[string]func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer{
		"client-go": cache.NewSharedIndexInformer, variant: ours,
	}
	ctx, stop := context.WithCancel(s.Context())
	var running sync.WaitGroup
	var all []*watched
	for name, mk := range makers {
		lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
		w := &watched{name: name, SharedIndexInformer: mk(lw, &v1.Pod{}, 0, cache.Indexers{}), newest: map[string]uint64{}}
		if _, err := w.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: w.notify, UpdateFunc: func(_, o any) { w.notify(o) }, DeleteFunc: w.notify,
		}); err != nil {
			s.Fatal(err)
		}
		all = append(all, w)
		running.Go(func() { w.RunWithContext(ctx) })
	}
	srv.over()
	want, _ := srv.pods(s.client(srv.config))
	for _, w := range all {
		programs.Eventually(s, w.name+" has the state of the server", func() error {
			if state := w.state(); !maps.Equal(state, want) {
				return fmt.Errorf("%d pods of %d, or other versions", len(state), len(want))
			}
			return nil
		})
	}
	stop()
	running.Wait()
	p.close()
	for _, w := range all {
		for _, broken := range w.broken {
			s.Errorf("%s: %s", w.name, broken)
		}
	}
	s.struck += p.struck
	srv.process.End(syscall.SIGTERM, programs.Patience)
	s.expect(srv.process, done)
}
