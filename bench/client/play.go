package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/record"
	"watchlab/bench/lab"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
)

const (
	changing = 5 * time.Second // of the changes
	every    = 100 * time.Millisecond

	// Hammering is more requests than most within window.
	window = 5 * time.Second
	most   = 25

	excerpt = 160 // bytes of the last watch that are shown
)

var resource = corev1.SchemeGroupVersion.WithResource("configmaps")

// play plays one behaviour to the program.
type play struct {
	Options
	Behaviour
	server  *apiserver.Server
	objects dynamic.ResourceInterface
	record  *record.Recorder
	tail    *tail
	conns   *connections
	faults  *fault.Injector
	program *program.Program
	viewer  *viewer
	rng     *rand.Rand
	made    int // number of the newest object
}

// run plays it. The error is none of the program's.
func (p *play) run(ctx context.Context) (o Outcome, err error) {
	o = Outcome{Behaviour: p.Name, Does: p.Does}
	if err := p.open(ctx); err != nil {
		return o, err
	}
	defer func() {
		_ = os.Remove(p.path("kubeconfig")) // It has a token, and may not exist.
		err = errors.Join(err, p.server.Close(), p.writeRequests())
	}()
	defer p.faults.Stop()
	if err := p.start(ctx); err != nil {
		return o, err
	}
	defer func() {
		p.program.Stop(time.Second)
		p.viewer.close()
	}()
	failure := p.follow(ctx, &o)
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	requests, _ := p.record.Result()
	o.Requests = len(requests)
	if n := busiest(requests); failure == nil && n > most {
		failure = fmt.Errorf("sent %d requests within %v (at most %d)", n, window, most)
	}
	switch {
	case errors.Is(failure, errors.ErrUnsupported):
		o.Verdict, o.Why = Skipped, failure.Error()
	case failure != nil:
		o.Verdict, o.Why, o.Bytes = Failed, failure.Error(), p.tail.String()
	default:
		o.Verdict = Passed
	}
	return o, nil
}

// open opens the server.
func (p *play) open(ctx context.Context) error {
	specs := []fault.Spec{}
	var err error
	if p.Behaviour.faults != "" {
		if specs, err = fault.ParseAll(p.Behaviour.faults); err != nil {
			return err
		}
	}
	if p.faults, err = fault.New(specs, 1); err != nil {
		return err
	}
	token := apiserver.NewToken()
	p.record, p.tail = record.NewRecorder(), &tail{unknown: p.unknown}
	p.server, err = apiserver.Open(apiserver.Options{
		BookmarkInterval: p.bookmarks, Plain: !p.gzip,
		Wrap: func(h http.Handler) http.Handler {
			return apiserver.RequireTokens(map[string]string{token: "client"}, p.record.Wrap(p.tail.wrap(p.faults.Wrap(h))))
		},
	})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(&rest.Config{Transport: p.server.Transport(""), QPS: -1})
	if err != nil {
		return err
	}
	p.objects = client.Resource(resource).Namespace(metav1.NamespaceDefault)
	p.rng = rand.New(rand.NewPCG(1, 1))
	for range p.Behaviour.objects {
		if err := p.create(ctx); err != nil {
			return err
		}
	}
	l, id, err := apiserver.ListenLoopback()
	if err != nil {
		return err
	}
	p.conns = &connections{Listener: l}
	url, err := p.server.Serve(p.conns, id.ServerConfig())
	if err != nil {
		return err
	}
	return apiserver.WriteKubeconfig(p.path("kubeconfig"), apiserver.Kubeconfig{Server: url, CA: id.CA, Token: token}, true)
}

func (p *play) path(suffix string) string { return filepath.Join(p.Dir, p.Name+"."+suffix) }

// start starts the program.
func (p *play) start(ctx context.Context) error {
	if p.early {
		if err := p.faults.Start(); err != nil {
			return err
		}
	}
	v, stdin, stdout, err := newViewer()
	if err != nil {
		return err
	}
	p.viewer = v
	p.program, err = program.Start(ctx, program.Options{
		Client: "client", Command: p.Command, Log: p.path("log"), Dir: p.Dir, Kubeconfig: p.path("kubeconfig"), Stdin: stdin, Stdout: stdout,
	})
	err = errors.Join(err, stdin.Close(), stdout.Close())
	if err != nil {
		v.close()
	}
	return err
}

// follow changes the objects and compares the views. The error is how the program failed.
func (p *play) follow(ctx context.Context, o *Outcome) error {
	if err := p.agree(ctx); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	if !p.early {
		if err := p.faults.Start(); err != nil {
			return err
		}
	}
	for ticker, n := time.NewTicker(every), 0; n < int(changing/every); n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if p.cut > 0 && n == int(p.cut/every) {
			if err := p.conns.vanish(); err != nil {
				return err
			}
		}
		if err := p.change(ctx); err != nil {
			return err
		}
	}
	changed := time.Now()
	if err := p.agree(ctx); err != nil {
		return err
	}
	o.After = fault.Duration(time.Since(changed).Round(time.Millisecond))
	// A program that has listed may have no watch.
	if err := p.create(ctx); err != nil {
		return err
	}
	if err := p.agree(ctx); err != nil {
		return fmt.Errorf("a later change: %w", err)
	}
	return nil
}

// agree waits until the program's view is the server's state. The error is the last difference.
func (p *play) agree(ctx context.Context) error {
	began := time.Now()
	return wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
		seen, err := p.viewer.ask(ctx, p.Within)
		if err != nil {
			select {
			case <-p.program.Exited():
				return false, fmt.Errorf("ended: %s", p.program.Exit().Status)
			case <-time.After(time.Second): // It may be about to end.
				return false, err
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		list, err := p.objects.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		now := view{}
		for _, o := range list.Items {
			now[o.GetName()] = o.GetResourceVersion()
		}
		difference := seen.difference(now)
		if difference != "" && time.Since(began) > p.Within {
			return false, fmt.Errorf("after %v, %s", p.Within, difference)
		}
		return difference == "", nil
	})
}

func (p *play) create(ctx context.Context) error {
	p.made++
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	o.SetName(fmt.Sprintf("object-%d", p.made))
	o.Object["data"] = p.data()
	_, err := p.objects.Create(ctx, o, metav1.CreateOptions{})
	return err
}

// data is text that gzip cannot make much smaller.
func (p *play) data() map[string]any {
	text := make([]byte, p.size)
	for i := range text {
		text[i] = byte('a' + p.rng.IntN(26))
	}
	return map[string]any{"text": string(text)}
}

// change creates, updates or deletes an object.
func (p *play) change(ctx context.Context) error {
	list, err := p.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	draw := p.rng.IntN(10)
	if len(list.Items) == 0 || draw < 3 && len(list.Items) < 2*p.Behaviour.objects+5 {
		return p.create(ctx)
	}
	o := &list.Items[p.rng.IntN(len(list.Items))]
	if draw < 6 {
		return p.objects.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	o.Object["data"] = p.data()
	_, err = p.objects.Update(ctx, o, metav1.UpdateOptions{})
	return err
}

func (p *play) writeRequests() error {
	requests, _ := p.record.Result()
	return lab.ReplaceFile(p.path("requests.json"), func(w io.Writer) error { return lab.EncodeJSON(w, requests) })
}

// busiest returns the most requests within window.
func busiest(requests []record.Access) (n int) {
	slices.SortFunc(requests, func(a, b record.Access) int { return cmp.Compare(a.At, b.At) })
	first := 0
	for i := range requests {
		for requests[i].At-requests[first].At > window {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// connections are those that a listener has accepted.
type connections struct {
	net.Listener
	mu  sync.Mutex
	all []*net.TCPConn
}

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		c.mu.Lock()
		c.all = append(c.all, tcp)
		c.mu.Unlock()
	}
	return conn, err
}

// tcpRepair is the option TCP_REPAIR of Linux: a socket in that mode is closed without a packet (net/ipv4/tcp.c).
const tcpRepair = 19

// vanish closes all connections so far, and their clients do not learn of it. What they send later is answered with a
// reset. The error wraps [errors.ErrUnsupported] where that takes another system or more rights.
func (c *connections) vanish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		raw, err := conn.SyscallConn()
		if err != nil {
			continue // It is closed.
		}
		var refused error
		err = raw.Control(func(fd uintptr) { refused = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRepair, 1) })
		if err == nil && (refused != nil || runtime.GOOS != "linux") {
			return fmt.Errorf("%w: it takes CAP_NET_ADMIN on Linux", errors.ErrUnsupported)
		}
		_ = conn.Close()
	}
	return nil
}
