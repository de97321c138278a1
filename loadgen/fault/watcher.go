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
	// errInjected is the text of an injected internal error.
	errInjected = errors.New("an injected fault")
	// errEnded is the server's error for a write to a watch that a fault ended.
	errEnded = errors.New("the watch was ended by an injected fault")
)

// Pieces of Drip.
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
		// A watch from a version has no initial state; for any other it is
		// known when the bookmark comes that ends it.
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
	switch w.ending() {
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
	// endNot: the watch is open.
	endNot ending = iota
	// endHandler: the server ended it, or the client went away.
	endHandler
	// endClean: the body ends regularly.
	endClean
	// endAbort: the connection closes inside the body.
	endAbort
	// endReset: the connection is reset.
	endReset
)

// strike is an occurrence of a fault on a watch.
type strike struct {
	spec, occurrence int
	// until is the end, as the time since Start.
	until time.Duration
}

// watcher is a proxied watch. It is the ResponseWriter of the handler, whose goroutine
// writes frames; the goroutine of attend writes injected ones. A writer holds the lock
// and releases it only at the end of a frame.
type watcher struct {
	inj     *Injector
	request *request
	out     http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context
	cancel  context.CancelFunc
	// id is set before the first strike.
	id int
	// lock serializes writes to out. It is a channel: in a testing/synctest bubble,
	// a wait for a mutex stops the clock, a wait for a channel does not.
	lock chan struct{}
	// encoding, answered and plain are set in the handler's goroutine with the header,
	// before id.
	encoding encoding
	answered bool
	// plain: the server did not accept the watch.
	plain bool
	// last is the last frame, if a fault needs bookmarks. Guarded by lock.
	last []byte
	// settled: the initial state is complete. Guarded by lock.
	settled bool
	// frames is the number of frames while faults are active. Only the handler's
	// goroutine uses it.
	frames int
	// kick wakes attend. Its capacity is 1.
	kick chan struct{}

	// mu guards all fields below.
	mu sync.Mutex
	// pending are the strikes that attend writes.
	pending []strike
	// ended is the reason of the end; endNot while the watch is open.
	ended ending
	// stall, drip, half and mark are the strikes in progress; nil for none.
	stall, drip, half, mark *strike
}

func (w *watcher) ending() ending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
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

// strike applies a fault that needs no write and leaves others to attend. It does not
// block.
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
		if name != HalfFrame { // noted at its frame
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

// drop discards pending strikes after the end.
func (w *watcher) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range w.pending {
		w.inj.finish()
	}
	w.pending = nil
}

func (w *watcher) endBy(s strike, by ending, detail string) {
	if w.end(by) {
		w.note(s, detail)
	}
}

func (w *watcher) note(s strike, detail string) {
	w.inj.note(Injection{Spec: s.spec, Occurrence: s.occurrence, Watch: w.id, Path: w.request.URL.Path, Detail: detail})
}

// attend writes pending strikes until the watch ends.
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

// take returns the next pending strike.
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

// inject writes a fault's bytes. The caller holds the lock.
func (w *watcher) inject(s strike) {
	if w.ending() != endNot {
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

// injectBookmark sends a bookmark of the watch's position twice. If the position is
// unknown, it doubles the server's next bookmark.
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

// write sends and flushes. The caller holds the lock.
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

// Flush flushes the answer.
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

// pause blocks while the watch is stalled.
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

// sleep waits for d, Stop, or the end of the watch.
func (w *watcher) sleep(d time.Duration) error {
	select {
	case <-w.inj.clock.After(d):
	case <-w.inj.done:
	case <-w.ctx.Done():
		return errEnded
	}
	return nil
}

// rest returns the remaining time of a strike.
func (i *Injector) rest(s *strike) (time.Duration, bool) {
	if s == nil {
		return 0, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	rest := s.until - i.now()
	return rest, rest > 0 && !i.stopped
}

// upTo returns the length of the frames up to the next triggered faults, and those.
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

// triggered returns the faults after a watch's nth frame.
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
		// This may be the last occurrence: the scheduler computes its next time again.
		i.poke()
	}
	return strikes
}

// send sends frames, or a part of them for HalfFrame. The caller holds the lock.
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

// dripping sends the start of b in small pieces while Drip lasts. It returns the length
// sent, which is less than all.
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

// remember keeps the last frame and doubles an awaited bookmark.
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

// reset closes the connection with a TCP reset, which discards unsent bytes.
func (w *watcher) reset() {
	conn, _, err := w.control.Hijack()
	if err != nil {
		return // HTTP/2: only the stream is reset
	}
	linger(conn)
	_ = conn.Close()
}

// linger finds the underlying TCP connection and makes its Close send a reset.
func linger(conn net.Conn) {
	for conn != nil {
		switch c := conn.(type) {
		case interface{ SetLinger(sec int) error }:
			_ = c.SetLinger(0) // on failure, Close is a regular one
			return
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return
		}
	}
}
