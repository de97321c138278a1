package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
)

// errEnded is the server's error for a write to a watch that a fault ended.
var errEnded = errors.New("the watch was ended by an injected fault")

const (
	latency = 100 * time.Millisecond // of [Latency]

	// Pieces of Drip.
	dripBytes = 64
	dripPause = 5 * time.Millisecond
)

// serve serves one request.
func (i *Injector) serve(h http.Handler, rw http.ResponseWriter, hr *http.Request) {
	line, ok := wire.ParseRequest(hr)
	if !ok {
		h.ServeHTTP(rw, hr)
		return
	}
	r := &request{http: hr, Request: line}
	r.version, _ = strconv.ParseUint(line.Query.Get("resourceVersion"), 10, 64)
	if i.hooks.Client != nil {
		r.client = i.hooks.Client(hr.Context())
	}
	i.register(h, r)
	if f, hit := i.refuse(r); hit {
		f.write(rw, r)
		return
	}
	if _, hit := i.hit(r, Latency.is); hit {
		select {
		case <-time.After(latency):
		case <-hr.Context().Done():
			return
		}
	}
	r, refused := i.old(r)
	switch hr = r.http; {
	case refused != nil:
		refused.write(rw, r)
		return
	case r.writes():
		i.write(h, rw, r)
		return
	case r.Verb != "watch":
		h.ServeHTTP(rw, hr)
		return
	}
	ctx, cancel := context.WithCancel(hr.Context())
	defer cancel()
	w := &watcher{
		inj:     i,
		request: r,
		out:     rw,
		control: http.NewResponseController(rw),
		ctx:     ctx,
		cancel:  cancel,
		lock:    make(chan struct{}, 1),
		// A watch from a version has no initial state; for any other it is
		// known when the bookmark comes that ends it.
		settled: r.version > 0 && r.Query.Get("sendInitialEvents") != "true",
		lasting: map[Name]injection{},
	}
	func() {
		defer func() {
			w.end(endHandler)
			i.mu.Lock()
			delete(i.watches, w)
			i.mu.Unlock()
			w.injecting.Wait()
		}()
		h.ServeHTTP(w, hr.WithContext(ctx))
	}()
	switch w.ended {
	case endAbort:
		// The server closes the connection, or resets the stream of HTTP/2.
		panic(http.ErrAbortHandler)
	case endReset:
		w.reset()
		panic(http.ErrAbortHandler)
	}
}

// ending is the way a watch ended.
type ending int

const (
	endNot     ending = iota // the watch is open
	endHandler               // the server ended it, or the client went away
	endClean                 // the body ends regularly
	endAbort                 // the connection closes inside the body
	endReset                 // the connection is reset
)

// injection is an occurrence of a fault on a watch.
type injection struct {
	spec, occurrence int
	until            time.Duration // end, as the time since Start
}

// watcher is a proxied watch. It is the ResponseWriter of the handler, whose goroutine
// writes frames; a goroutine for each injection writes injected ones. A writer holds the lock
// and releases it only at the end of a frame.
type watcher struct {
	inj     *Injector
	request *request
	out     http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context
	cancel  context.CancelFunc
	id      int // set before the first injection
	// lock serializes writes to out. It is a channel: in a testing/synctest bubble,
	// a wait for a mutex stops the clock, a wait for a channel does not.
	lock chan struct{}
	// encoding, answered and plain (the server did not accept the watch) are set in the
	// handler's goroutine with the header, before id.
	encoding        encoding
	answered, plain bool
	// settled: the initial state is complete. It is known if a fault needs bookmarks.
	// Guarded by lock.
	settled bool
	// frames is the number of frames while faults are active. Only the handler's goroutine uses it.
	frames int
	// injecting counts the goroutines of injections. None starts after the end.
	injecting sync.WaitGroup

	mu sync.Mutex // guards all fields below
	// ended is the reason of the end; endNot while the watch is open.
	ended   ending
	lasting map[Name]injection // newest injections of faults that last
}

func (w *watcher) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended == endNot
}

// end ends the watch. It returns false if the watch has ended already.
func (w *watcher) end(by ending) bool {
	w.mu.Lock()
	first := w.ended == endNot
	if first {
		w.ended = by
	}
	w.mu.Unlock()
	if !first {
		return false
	}
	w.cancel()
	if by == endAbort || by == endReset {
		// Release a Write that waits for the client, if deadlines are supported.
		_ = w.control.SetWriteDeadline(time.Unix(1, 0))
	}
	return true
}

// inject applies a fault. It does not block: frames are written in a goroutine.
func (w *watcher) inject(s injection) {
	f := &w.inj.faults[s.spec]
	switch {
	case f.ends != endNot:
		w.endBy(s, f.ends, "")
	case f.lasts:
		w.mu.Lock()
		w.lasting[f.Name] = s
		w.mu.Unlock()
		if f.Name == Drip || f.Name == Stall || f.Name == Skip { // others are noted at their frame
			w.note(s, "")
		}
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ended == endNot {
			w.injecting.Go(func() {
				if w.acquire() {
					w.writeFault(s)
					w.release()
				}
			})
		}
	}
}

func (w *watcher) endBy(s injection, by ending, detail string) {
	if w.end(by) {
		w.note(s, detail)
	}
}

func (w *watcher) note(s injection, detail string) {
	w.inj.mu.Lock()
	defer w.inj.mu.Unlock()
	w.inj.note(Injection{Spec: s.spec, Occurrence: s.occurrence, Watch: w.id, Path: w.request.http.URL.Path, Detail: detail})
}

// rest returns the newest injection of a fault and its remaining time, 0 if it is over.
func (w *watcher) rest(name Name) (injection, time.Duration) {
	w.mu.Lock()
	s, ok := w.lasting[name]
	w.mu.Unlock()
	if !ok {
		return s, 0
	}
	i := w.inj
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return s, 0
	}
	return s, max(s.until-i.now(), 0)
}

// acquire takes the lock. It returns false if the watch ends first.
func (w *watcher) acquire() bool {
	select {
	case w.lock <- struct{}{}:
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (w *watcher) release() { <-w.lock }

// writeFault writes a fault's frames. The caller holds the lock.
func (w *watcher) writeFault(s injection) {
	if !w.open() {
		return
	}
	var frame []byte
	var detail string
	switch f := &w.inj.faults[s.spec]; {
	case f.event != nil:
		failure := f.event(0)
		var err error
		if frame, err = w.encoding.frame(watch.Error, &failure.status); err != nil {
			return
		}
		detail = "ERROR event " + failure.detail
	default:
		frame = w.encoding.garbage(w.inj.rng(s, w.id))
		detail = fmt.Sprintf("%q", frame)
	}
	if w.write(frame) == nil {
		w.endBy(s, endClean, detail)
	}
}

// write sends and flushes. The caller holds the lock.
func (w *watcher) write(b []byte) error {
	if _, err := w.out.Write(b); err != nil {
		return err
	}
	return w.control.Flush()
}

func (w *watcher) Unwrap() http.ResponseWriter { return w.out } // for [http.ResponseController]
func (w *watcher) Header() http.Header         { return w.out.Header() }

// WriteHeader passes on the server's answer. An accepted watch is open from here.
func (w *watcher) WriteHeader(code int) {
	if !w.answered && code >= http.StatusOK {
		w.answered = true
		w.plain = code != http.StatusOK
		w.encoding = encodingOf(w.Header().Get("Content-Type"))
		if !w.plain {
			defer w.inj.open(w)
		}
	}
	w.out.WriteHeader(code)
}

func (w *watcher) Flush() { _ = w.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (w *watcher) FlushError() error {
	if !w.answered {
		w.WriteHeader(http.StatusOK)
	}
	if !w.acquire() {
		return errEnded
	}
	defer w.release()
	return w.control.Flush()
}

// Write sends frames and applies the faults that they trigger.
func (w *watcher) Write(b []byte) (int, error) {
	if !w.answered {
		w.WriteHeader(http.StatusOK)
	}
	if w.plain || len(b) == 0 {
		return w.out.Write(b)
	}
	sent := 0
	for sent < len(b) {
		if err := w.pause(); err != nil {
			return sent, err
		}
		n, triggered := w.upTo(b[sent:])
		if !w.acquire() {
			return sent, errEnded
		}
		err := w.send(b[sent : sent+n])
		if err == nil && len(triggered) > 0 {
			err = w.control.Flush()
		}
		for _, s := range triggered {
			switch f := &w.inj.faults[s.spec]; {
			case f.ends != endNot || f.lasts: // It writes no frames of its own.
				w.inject(s)
			case err == nil:
				w.writeFault(s)
			}
		}
		w.release()
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// pause blocks while the watch is stalled. After a skip the watch ends.
func (w *watcher) pause() error {
	skipped := false
	for w.open() {
		_, rest := w.rest(Stall)
		skip, more := w.rest(Skip)
		if skipped = skipped || more > 0; max(rest, more) == 0 {
			if skipped && w.acquire() {
				w.writeFault(skip)
				w.release()
				return errEnded
			}
			return nil
		}
		if err := w.sleep(max(rest, more)); err != nil {
			return err
		}
	}
	return errEnded
}

// sleep waits for d, Stop, or the end of the watch.
func (w *watcher) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
	case <-w.inj.ctx.Done():
	case <-w.ctx.Done():
		return errEnded
	}
	return nil
}

// upTo returns the length of the frames up to the next triggered faults, and those.
func (w *watcher) upTo(b []byte) (int, []injection) {
	for at := 0; w.inj.perFrame && at < len(b); {
		at += w.encoding.next(b[at:])
		if triggered := w.inj.triggered(w); len(triggered) > 0 {
			return at, triggered
		}
	}
	return len(b), nil
}

// send sends frames, or a part of them for HalfFrame. The caller holds the lock.
func (w *watcher) send(b []byte) error {
	if half, rest := w.rest(HalfFrame); rest > 0 {
		at := w.encoding.cut(b, w.inj.rng(half, w.id))
		if err := w.write(b[:at]); err != nil {
			return err
		}
		w.endBy(half, endAbort, fmt.Sprintf("%d of %d bytes", at, len(b)))
		return errEnded
	}
	at, err := w.drip(b)
	if err != nil {
		return err
	}
	if _, err := w.out.Write(b[at:]); err != nil {
		return err
	}
	if twice, rest := w.rest(Duplicate); rest > 0 {
		w.over(Duplicate)
		w.note(twice, "")
		if err := w.write(w.encoding.last(b)); err != nil {
			return err
		}
	}
	if w.inj.bookmarks {
		return w.doubleBookmark(b)
	}
	return nil
}

// over ends an injection before its time.
func (w *watcher) over(name Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lasting, name)
}

// drip sends the start of b in small pieces while Drip lasts. It returns the length sent,
// which is less than all.
func (w *watcher) drip(b []byte) (int, error) {
	at := 0
	for len(b)-at > dripBytes {
		if _, rest := w.rest(Drip); rest == 0 {
			break
		}
		if err := w.write(b[at : at+dripBytes]); err != nil {
			return at, err
		}
		at += dripBytes
		if err := w.sleep(dripPause); err != nil {
			return at, err
		}
	}
	return at, nil
}

// doubleBookmark sends two bookmarks of the position after frames, if a DuplicateBookmark
// waits for one. Within the initial state there is no position.
func (w *watcher) doubleBookmark(frames []byte) error {
	s, rest := w.rest(DuplicateBookmark)
	if w.settled && rest == 0 {
		return nil
	}
	last := w.encoding.last(frames)
	if !w.settled && !isBookmark(last) {
		return nil
	}
	p, err := w.encoding.read(last)
	if err != nil || p.meta.ResourceVersion == "" {
		return nil //nolint:nilerr // The next frame may have a position.
	}
	w.settled = w.settled || p.meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
	if !w.settled || rest == 0 {
		return nil
	}
	w.over(DuplicateBookmark)
	mark := &metav1.PartialObjectMetadata{TypeMeta: p.meta.TypeMeta}
	mark.ResourceVersion = p.meta.ResourceVersion
	frame, err := w.encoding.frame(watch.Bookmark, mark)
	if err == nil {
		err = w.write(append(frame, frame...))
	}
	if err == nil {
		w.note(s, "two bookmarks of version "+mark.ResourceVersion)
	}
	return err
}

// reset closes the connection with a TCP reset, which discards unsent bytes.
func (w *watcher) reset() {
	conn, _, err := w.control.Hijack()
	if err != nil {
		return // HTTP/2: only the stream is reset
	}
	socket := conn // below TLS and other wrappers
	for wrapper, ok := socket.(interface{ NetConn() net.Conn }); ok; wrapper, ok = socket.(interface{ NetConn() net.Conn }) {
		socket = wrapper.NetConn()
	}
	if tcp, ok := socket.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // on failure, Close is a regular one
	}
	_ = conn.Close()
}
