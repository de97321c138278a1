package apiserver

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

const writeSize = 1 << 20 // the approximate size of a watch's writes

// lastBookmark is the time of the last bookmark before a watch's timeout, as in a real
// server (k8s.io/apiserver v0.37, pkg/storage/cacher).
const lastBookmark = 2 * time.Second

// watch serves a watch until it ends. On an error nothing was written.
func (s *Server) watch(req *request, q *query) error {
	start, err := req.log.Bounds().Start(q.opts.ResourceVersion, q.opts.SendInitialEvents, q.opts.AllowWatchBookmarks)
	expired := apierrors.IsResourceExpired(err)
	if err != nil && !expired {
		return err
	}
	if _, err := req.bookmark(0, false); err != nil {
		return err // the kind cannot be encoded in this form
	}
	at := req.log.At(start.At)
	if expired {
		at = req.log.Visible() // It lacks nothing that could be cut.
	}
	w := &watcher{request: req, query: q, out: http.NewResponseController(req.w), at: at, over: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.over) })
	w.sent.Store(at)
	s.watching.add(w)
	defer s.watching.remove(w)
	// A watch ends after its own timeout, and not after those of requests. Without a connection there are none.
	_, _ = w.out.SetReadDeadline(time.Time{}), w.out.SetWriteDeadline(time.Time{})
	req.w.Header().Set("Content-Type", req.form.StreamType())
	req.w.WriteHeader(http.StatusOK)
	if expired {
		// As an event, like a real server's watch cache (k8s.io/apiserver, pkg/storage/cacher).
		w.fail(err)
		return nil
	}
	if start.State {
		s.snapshots.Add(1)
	}
	w.follower = req.log.Follow(at)
	defer w.follower.Close()
	if z, ok := req.w.(*compressor); ok && z.on {
		w.zipped = z
	}
	// From here on, an error means that the client is gone.
	if w.out.Flush() == nil && w.initial(start) == nil {
		w.run(req.http.Context().Done(), s.opts.BookmarkInterval)
	}
	return nil
}

type watcher struct {
	*request
	query        *query
	follower     *store.Follower
	out          *http.ResponseController
	at           uint64        // position of the last sent event
	sent         atomic.Uint64 // the same after it is written; see [Server.Lags]
	writing      atomic.Bool   // a write is in progress; see [watching.cut]
	over         chan struct{} // closed by end when the definition has changed; see [watching.end]
	end          func()
	scratch, one []byte // reused buffers for assembled frames
	// zipped takes the log's members as they are: all watches have one compression of an event. Nil if the answer
	// is not compressed, or something between, such as a fault, has to see the frames.
	zipped *compressor
}

// fail sends an ERROR event.
func (w *watcher) fail(err error) {
	status, err := wire.AppendAny(nil, w.form.Media(), statusOf(err))
	if err == nil {
		_ = w.send(wire.AppendEvent(nil, w.form.Media(), watch.Error, status))
	}
}

// write writes whole frames to an answer and flushes them, if there are any.
func (w *watcher) write(to io.Writer, b []byte, flush func() error) error {
	if len(b) == 0 {
		return nil
	}
	w.writing.Store(true)
	defer w.writing.Store(false)
	if _, err := to.Write(b); err != nil {
		return err
	}
	return flush()
}

// send writes whole frames and flushes.
func (w *watcher) send(b []byte) error { return w.write(w.w, b, w.out.Flush) }

// sendEvents is send for events up to w.at: members, if the watch takes those.
func (w *watcher) sendEvents(b []byte) error {
	to := w.w
	if w.zipped != nil {
		to = w.zipped.ResponseWriter
	}
	err := w.write(to, b, w.out.Flush)
	if err == nil {
		w.sent.Store(w.at)
	}
	return err
}

func (w *watcher) initial(start store.Start) error {
	if start.State {
		items := w.log.State(w.at, w.query.filter.prefix(), "")
		if !w.query.filter.selects() && !w.converts {
			// Errors of objects come when they are sent.
			_ = w.log.Prepare(w.encoder, w.form, items)
		}
		for _, it := range items {
			if !w.query.filter.matches(it.Key, it.Object) {
				continue
			}
			object, err := w.object(it)
			if err != nil {
				w.fail(err)
				return err
			}
			w.scratch = wire.AppendEvent(w.scratch, w.form.Media(), watch.Added, object)
			if len(w.scratch) >= writeSize {
				// All initial events are one flush: a real server's cache has them ready.
				if err := w.write(w.w, w.scratch, func() error { return nil }); err != nil {
					return err
				}
				w.scratch = w.scratch[:0]
			}
		}
	}
	if start.Mark {
		mark, err := w.bookmark(start.At, true)
		if err != nil {
			return err
		}
		w.scratch = append(w.scratch, mark...)
	}
	err := w.send(w.scratch)
	w.scratch = nil // An idle watch does not keep the state.
	return err
}

// run sends events as they become visible, until the timeout or the end of the
// connection, and bookmarks with that period if the client allows them.
func (w *watcher) run(gone <-chan struct{}, period time.Duration) {
	var bookmarks, timeout, last <-chan time.Time
	if w.query.opts.AllowWatchBookmarks {
		t := time.NewTicker(period)
		defer t.Stop()
		bookmarks = t.C
	}
	if s := w.query.opts.TimeoutSeconds; s != nil && *s < 0 {
		return
	} else if s != nil && *s > 0 {
		until := time.Duration(min(*s, math.MaxInt64/int64(time.Second))) * time.Second
		timeout = time.After(until)
		if bookmarks != nil && until > lastBookmark {
			last = time.After(until - lastBookmark)
		}
	}
	ready := make(chan struct{}) // there may be more events
	close(ready)
	for {
		wake := w.follower.Wake()
		if upto := w.follower.Poll(); upto > w.at {
			if err := w.events(upto); err != nil {
				w.endWith(err)
				return
			}
			wake = ready
		}
		var err error
		select {
		case <-wake:
		case <-bookmarks:
			err = w.mark()
		case <-last:
			err = w.mark()
		case <-w.over:
			if w.log.Visible() <= w.at {
				return
			}
		case <-timeout:
			return
		case <-gone:
			return
		}
		if err != nil {
			return
		}
	}
}

// endWith reports to the client why its watch ends.
func (w *watcher) endWith(err error) {
	switch {
	case errors.Is(err, store.ErrGone):
		w.fail(store.TooOld(w.log.Version(w.at), w.log.Bounds().Oldest))
	case errors.Is(err, wire.ErrEncoding), errors.As(err, new(apierrors.APIStatus)):
		w.fail(err)
	}
}

// mark sends a bookmark of the watch's position.
func (w *watcher) mark() error {
	frame, err := w.bookmark(w.log.Newest(w.at), false)
	if err != nil {
		return err
	}
	return w.send(frame)
}

// events sends events up to a position, or one block of them.
func (w *watcher) events(upto uint64) error {
	if w.query.filter.all() && !w.converts {
		frames, upto, err := w.log.Frames(w.encoder, w.form, w.zipped != nil, w.at, upto)
		if err != nil {
			return err
		}
		w.at = upto
		w.follower.Seen(upto, 0)
		return w.sendEvents(frames)
	}
	w.scratch = w.scratch[:0]
	for w.at < upto && len(w.scratch) < writeSize {
		if err := w.filter(w.at); err != nil {
			return err
		}
		w.at++
	}
	w.follower.Seen(w.at, 0)
	return w.sendEvents(w.scratch)
}

// filter appends the event after a position as the watch sees it: ADDED if the object
// starts to match, DELETED with its last matching state if it no longer matches.
func (w *watcher) filter(at uint64) error {
	f := &w.query.filter
	e, was, err := w.log.Event(at)
	if err != nil {
		return err
	}
	matches := e.Type != watch.Deleted && f.matches(e.Key, e.Object)
	matched := was != nil && f.matches(was.Key, was.Object)
	switch {
	case matches && !matched:
		return w.append(at, watch.Added, e)
	case matches || (matched && e.Type == watch.Deleted):
		return w.append(at, e.Type, e)
	case matched:
		o, err := w.show(was.Object)
		if err == nil {
			o = wire.AtVersion(o, strconv.FormatUint(w.log.Version(at+1), 10))
			w.one, err = w.kind.AppendObject(w.one[:0], w.form, o)
		}
		if err != nil {
			return err
		}
		w.event(watch.Deleted, w.one)
	}
	return nil
}

// event appends an event that the log does not have.
func (w *watcher) event(t watch.EventType, object []byte) {
	if w.zipped == nil {
		w.scratch = wire.AppendEvent(w.scratch, w.form.Media(), t, object)
		return
	}
	w.scratch = wire.AppendMember(w.scratch, wire.AppendEvent(nil, w.form.Media(), t, object))
}

// append appends the event after a position with the given type.
func (w *watcher) append(at uint64, t watch.EventType, e *storm.Event) error {
	if t == e.Type && !w.converts {
		frame, _, err := w.log.Frames(w.encoder, w.form, w.zipped != nil, at, at+1)
		w.scratch = append(w.scratch, frame...)
		return err
	}
	object, err := w.object(e)
	if err == nil {
		w.event(t, object)
	}
	return err
}

// bookmark returns a bookmark, annotated if it ends the initial events.
func (req *request) bookmark(version uint64, initialEnd bool) ([]byte, error) {
	o := req.resource.NewObject()
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	if initialEnd {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	object, err := req.kind.AppendObject(nil, req.form, o)
	if err != nil {
		return nil, err
	}
	return wire.AppendEvent(nil, req.form.Media(), watch.Bookmark, object), nil
}

type watching struct {
	mu      sync.Mutex    // guards the fields below
	all     []*watcher    // open, in the order of their begin
	ended   int           // number of those that were open
	changed chan struct{} // closed at the next change; nil if no caller waits
}

func (w *watching) add(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	w.notify()
}

func (w *watching) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(other *watcher) bool { return other == one })
	w.ended++
	w.notify()
}

// notify wakes the callers that wait for a change. The caller holds mu.
func (w *watching) notify() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// end ends the watches of a log after the events that are visible: its definition has changed or is gone.
func (w *watching) end(log *store.Log) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.log == log {
			one.end()
		}
	}
}

// follow cuts watches of a log that fall behind its events.
func (w *watching) follow(log *store.Log) {
	log.Dropped = func(floor uint64) { w.cut(log, floor) }
}

// cut ends the writes of watches of a log that have not written the event after its floor: the client does not
// read, and the events that it lacks are gone. Other watches so late get an ERROR event. O(watches).
func (w *watching) cut(log *store.Log, floor uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.log == log && one.sent.Load() < floor && one.writing.Load() {
			_ = one.out.SetWriteDeadline(time.Unix(1, 0)) // An error means that the connection is gone.
		}
	}
}

// AwaitWatches waits until enough returns true for the numbers of open and ended
// watches. The error is ctx's.
func (s *Server) AwaitWatches(ctx context.Context, enough func(open, ended int) bool) error {
	w := &s.watching
	for {
		w.mu.Lock()
		done := enough(len(w.all), w.ended)
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Lag is the distance of an open watch from the newest event.
type Lag struct {
	Client   string // see [WithClient]
	Resource schema.GroupVersionResource
	Events   int // visible events of the resource that the watch has not written
}

// Lags returns the lags of the open watches, in the order in which they were opened. O(watches).
func (s *Server) Lags() []Lag {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	lags := make([]Lag, len(s.watching.all))
	for i, w := range s.watching.all {
		sent := w.sent.Load() // first, so that it is not ahead
		lags[i] = Lag{Client: ClientOf(w.http.Context()), Resource: w.resource.GVR, Events: int(w.log.Visible() - sent)}
	}
	return lags
}
