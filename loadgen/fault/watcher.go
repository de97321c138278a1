package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	// errInjected is what an injected internal error says.
	errInjected = errors.New("an injected fault")
	// errEnded is what the server gets that writes to a watch that was ended.
	errEnded = errors.New("the watch was ended by an injected fault")
)

// How Drip writes.
const (
	dripBytes = 64
	dripPause = 5 * time.Millisecond
)

// serve serves one request.
func (i *Injector) serve(h http.Handler, rw http.ResponseWriter, hr *http.Request) {
	r, ok := read(hr)
	if !ok {
		h.ServeHTTP(rw, hr)
		return
	}
	i.know(h, r)
	if f, struck := i.answer(r); struck {
		f.write(rw, r)
		return
	}
	if !r.watch {
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
		kick:    make(chan struct{}, 1),

		settled: r.version > 0 && r.query.Get("sendInitialEvents") != "true",
	}
	var attending sync.WaitGroup
	attending.Go(w.attend)
	func() {
		defer func() {
			w.end(endHandler)
			i.close(w)
			attending.Wait()
			w.drop()
		}()
		h.ServeHTTP(w, hr.WithContext(ctx))
	}()
	switch w.how() {
	case endAbort:
		// The server closes the connection, or resets the stream of HTTP/2.
		panic(http.ErrAbortHandler)
	case endReset:
		w.reset()
		panic(http.ErrAbortHandler)
	}
}

// ending is how a watch ended.
type ending int

const (
	// endNot: it hasn't.
	endNot ending = iota
	// endHandler: the server ended it, or the client went away.
	endHandler
	// endClean: the body ends as it should.
	endClean
	// endAbort: the connection is closed in the body.
	endAbort
	// endReset: the connection is reset.
	endReset
)

// strike is what is to be done to a watch.
type strike struct {
	spec, occurrence int
	until            time.Duration
}

// watcher is a watch that passes through. It is the ResponseWriter of the
// handler, whose goroutine writes; what faults have to write is written by
// attend's. Whoever writes holds the lock, and lets go of it at a frame's end
// only.
type watcher struct {
	inj      *Injector
	request  *request
	out      http.ResponseWriter
	control  *http.ResponseController
	ctx      context.Context
	cancel   context.CancelFunc
	id       int
	lock     chan struct{}
	encoding encoding
	answered bool
	plain    bool
	last     []byte
	settled  bool
	frames   int
	kick     chan struct{}

	mu                      sync.Mutex
	pending                 []strike
	ended                   ending
	stall, drip, half, mark *strike
}

func (w *watcher) how() ending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// end ends the watch; it returns false where it has ended already.
func (w *watcher) end(how ending) bool {
	w.mu.Lock()
	first := w.ended == endNot
	if first {
		w.ended = how
	}
	w.mu.Unlock()
	if !first {
		return false
	}
	w.cancel()
	if how == endAbort || how == endReset {
		// A Write that waits for the client to read waits no more. Where this
		// isn't supported it does.
		_ = w.control.SetWriteDeadline(time.Unix(1, 0))
	}
	return true
}

// strike does to the watch what can be done at once, and leaves the rest to
// attend. It doesn't wait.
func (w *watcher) strike(s strike) {
	switch name := w.inj.specs[s.spec].Name; name {
	case Disconnect:
		w.endBy(s, endAbort, "")
	case Reset:
		w.endBy(s, endReset, "")
	case Throttle, InternalError:
		w.endBy(s, endClean, "")
	case Stall, Drip, HalfFrame:
		w.mu.Lock()
		switch name {
		case Stall:
			w.stall = &s
		case Drip:
			w.drip = &s
		default:
			w.half = &s
		}
		w.mu.Unlock()
		if name != HalfFrame { // Which is noted when there is a frame.
			w.note(s, "")
		}
	default:
		w.inj.begin()
		w.mu.Lock()
		w.pending = append(w.pending, s)
		w.mu.Unlock()
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

// drop forgets what is pending, after the end.
func (w *watcher) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range w.pending {
		w.inj.finish()
	}
	w.pending = nil
}

func (w *watcher) endBy(s strike, how ending, detail string) {
	if w.end(how) {
		w.note(s, detail)
	}
}

func (w *watcher) note(s strike, detail string) {
	w.inj.note(Injection{Spec: s.spec, Occurrence: s.occurrence, Watch: w.id, Path: w.request.URL.Path, Detail: detail})
}

// attend does what strikes have to write, until the watch ends.
func (w *watcher) attend() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.kick:
		}
		for s, more := w.take(); more; s, more = w.take() {
			if w.acquire() {
				w.inject(s)
				w.release()
			}
			w.inj.finish()
		}
	}
}

// take returns a strike that is pending.
func (w *watcher) take() (strike, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return strike{}, false
	}
	s := w.pending[0]
	w.pending = w.pending[1:]
	return s, true
}

// acquire takes the lock; it returns false where the watch ends first.
func (w *watcher) acquire() bool {
	select {
	case w.lock <- struct{}{}:
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (w *watcher) release() { <-w.lock }

// inject writes what a fault has to write. The lock is held.
func (w *watcher) inject(s strike) {
	if w.how() != endNot {
		return
	}
	rng := w.inj.rng(drawContent, s.spec, s.occurrence, w.id)
	switch w.inj.specs[s.spec].Name {
	case Gone, Relist:
		f := gone()
		w.injectError(s, &f)
	case ErrorEvent:
		f := internal()
		w.injectError(s, &f)
	case Malformed:
		garbage := w.encoding.garbage(rng)
		if w.write(garbage) == nil {
			w.endBy(s, endClean, fmt.Sprintf("%q", garbage))
		}
	case DuplicateBookmark:
		w.injectBookmark(s)
	}
}

func (w *watcher) injectError(s strike, f *failure) {
	frame, err := w.encoding.frame(watch.Error, &f.status)
	if err == nil {
		err = w.write(frame)
	}
	if err == nil {
		w.endBy(s, endClean, "ERROR event "+f.detail)
	}
}

// injectBookmark sends a bookmark twice where it is known which, and has the
// next one of the server doubled where it is not.
func (w *watcher) injectBookmark(s strike) {
	if w.settled && w.last != nil {
		if p, err := w.encoding.read(w.last); err == nil && p.meta.ResourceVersion != "" {
			mark, err := w.encoding.bookmark(p)
			if err == nil && w.write(append(mark, mark...)) == nil {
				w.note(s, "two bookmarks of version "+p.meta.ResourceVersion)
			}
			return
		}
	}
	w.mu.Lock()
	w.mark = &s
	w.mu.Unlock()
}

// write sends at once what a fault has to say. The lock is held.
func (w *watcher) write(b []byte) error {
	if _, err := w.out.Write(b); err != nil {
		return err
	}
	return w.control.Flush()
}

// Unwrap is for [http.ResponseController].
func (w *watcher) Unwrap() http.ResponseWriter { return w.out }

// Header returns the header of the answer.
func (w *watcher) Header() http.Header { return w.out.Header() }

// WriteHeader passes on what the server answers. From here on the watch is
// open, if it was accepted.
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

// Flush sends what was written.
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

// Write sends frames, unless a fault has other plans.
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
			switch w.inj.specs[s.spec].Name {
			case Gone, ErrorEvent, Malformed, DuplicateBookmark:
				if err == nil {
					w.inject(s)
				}
			default:
				w.strike(s)
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

// pause waits while the watch is stalled.
func (w *watcher) pause() error {
	for {
		w.mu.Lock()
		ended, stall := w.ended, w.stall
		w.mu.Unlock()
		if ended != endNot {
			return errEnded
		}
		rest, lasts := w.inj.rest(stall)
		if !lasts {
			return nil
		}
		if err := w.sleep(rest); err != nil {
			return err
		}
	}
}

// sleep waits; the watch's end and Stop end it.
func (w *watcher) sleep(d time.Duration) error {
	select {
	case <-w.inj.clock.After(d):
	case <-w.inj.done:
	case <-w.ctx.Done():
		return errEnded
	}
	return nil
}

// rest returns how long a strike still lasts.
func (i *Injector) rest(s *strike) (time.Duration, bool) {
	if s == nil {
		return 0, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	rest := s.until - i.now()
	return rest, rest > 0 && !i.stopped
}

// upTo returns how much of b is sent before frames trigger a fault, and those
// faults.
func (w *watcher) upTo(b []byte) (int, []strike) {
	if !w.inj.perFrame || !w.inj.active() {
		return len(b), nil
	}
	for at := 0; at < len(b); {
		at += w.encoding.next(b[at:])
		w.frames++
		if triggered := w.inj.triggered(w.frames); len(triggered) > 0 {
			return at, triggered
		}
	}
	return len(b), nil
}

// triggered returns what happens after so many frames of a watch.
func (i *Injector) triggered(frames int) []strike {
	i.mu.Lock()
	defer i.mu.Unlock()
	var strikes []strike
	for k := range i.specs {
		s := &i.specs[k]
		now := i.now()
		if s.Frames == 0 || frames%s.Frames != 0 || now < time.Duration(s.At) || s.over(i.occurrences[k]+1, now) {
			continue
		}
		n, yes := i.claim(k)
		if yes {
			until := now + time.Duration(s.Duration)
			if s.Name == Gone {
				i.windows[k] = window{until, n}
			}
			strikes = append(strikes, strike{spec: k, occurrence: n, until: until})
		}
		// The schedule may be over with this, and it may last.
		i.poke()
	}
	return strikes
}

// send sends frames, all of them or, with a fault, a part. The lock is held.
func (w *watcher) send(b []byte) error {
	w.mu.Lock()
	half, drip, mark := w.half, w.drip, w.mark
	w.mu.Unlock()
	if half != nil {
		if _, armed := w.inj.rest(half); armed {
			at := w.encoding.cut(b, w.inj.rng(drawContent, half.spec, half.occurrence, w.id))
			if err := w.write(b[:at]); err != nil {
				return err
			}
			w.endBy(*half, endAbort, fmt.Sprintf("%d of %d bytes", at, len(b)))
			return errEnded
		}
	}
	at, err := w.dripping(drip, b)
	if err != nil {
		return err
	}
	if _, err := w.out.Write(b[at:]); err != nil {
		return err
	}
	if w.inj.bookmarks {
		return w.remember(b, mark)
	}
	return nil
}

// dripping sends of b as much as drips while that lasts, and returns how much it
// was: never all of it.
func (w *watcher) dripping(drip *strike, b []byte) (int, error) {
	at := 0
	for len(b)-at > dripBytes {
		if _, lasts := w.inj.rest(drip); !lasts {
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

// remember keeps the last frame, and doubles it where it is a bookmark that was
// waited for.
func (w *watcher) remember(b []byte, mark *strike) error {
	w.last = append(w.last[:0], w.encoding.last(b)...)
	if !isBookmark(w.last) {
		return nil
	}
	if !w.settled {
		if p, err := w.encoding.read(w.last); err == nil {
			w.settled = p.meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		}
	}
	if _, armed := w.inj.rest(mark); !armed {
		return nil
	}
	w.mu.Lock()
	w.mark = nil
	w.mu.Unlock()
	if err := w.write(w.last); err != nil {
		return err
	}
	w.note(*mark, "the server's bookmark, twice")
	return nil
}

// reset has the connection reset: the system throws away what was not sent and
// tells the client so.
func (w *watcher) reset() {
	conn, _, err := w.control.Hijack()
	if err != nil {
		return // HTTP/2: the stream is reset instead.
	}
	linger(conn)
	_ = conn.Close() // It is over, one way or the other.
}

// linger finds the TCP connection below others, and has it closed with a reset.
func linger(conn net.Conn) {
	for conn != nil {
		switch c := conn.(type) {
		case interface{ SetLinger(sec int) error }:
			_ = c.SetLinger(0) // Where it fails, the connection is closed all the same.
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return
		}
	}
}
