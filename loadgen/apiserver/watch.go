package apiserver

import (
	"math"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/source/stream"
)

// writeSize is about how many bytes a watch writes at once, so that a watch
// with much to catch up on looks at its time-out now and then.
const writeSize = 1 << 20

// watch serves a watch until it ends. An error means that nothing was written.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q *query) error {
	start, err := s.stream.Start(q.opts.ResourceVersion, q.opts.SendInitialEvents, q.opts.AllowWatchBookmarks)
	expired := apierrors.IsResourceExpired(err)
	if err != nil && !expired {
		return err
	}
	s.watches.Add(1)
	wr := &watcher{
		server: s,
		query:  q,
		out:    w,
		flush:  http.NewResponseController(w).Flush,
		at:     start.At,
	}
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(http.StatusOK)
	if expired {
		// A real server's watch cache answers so (k8s.io/apiserver,
		// pkg/storage/cacher): once the version is read, what is wrong comes as
		// an event.
		wr.fail(err)
		return nil
	}
	if start.State {
		s.snapshots.Add(1)
	}
	wr.follower = s.stream.Follow(start.At)
	defer wr.follower.Close()
	// From here on, an error means that the client has gone.
	if wr.flush() == nil && wr.initial(start) == nil {
		wr.run(r.Context().Done())
	}
	return nil
}

// watcher is one watch being served.
type watcher struct {
	server   *Server
	query    *query
	follower *stream.Follower
	out      http.ResponseWriter
	flush    func() error
	// at is the position up to which events were sent.
	at uint64
	// scratch is reused for what has to be put together.
	scratch []byte
}

// fail sends an ERROR event.
func (w *watcher) fail(err error) {
	body := struct {
		Type   watch.EventType `json:"type"`
		Object any             `json:"object"`
	}{watch.Error, statusOf(err)}
	frame, err := marshalLine(body)
	if err == nil {
		_ = w.send(frame)
	}
}

// send writes and flushes.
func (w *watcher) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := w.out.Write(b); err != nil {
		return err
	}
	return w.flush()
}

// initial sends the state that the watch begins with, if it does.
func (w *watcher) initial(start stream.Start) error {
	s := w.server
	if start.State {
		for _, i := range s.stream.State(start.At) {
			e := &s.storm.Events[i]
			if !w.query.filter.matches(e.Object) {
				continue
			}
			w.scratch = s.frames.appendFrame(w.scratch, watch.Added, i, e.Type)
			if len(w.scratch) >= writeSize {
				if err := w.send(w.scratch); err != nil {
					return err
				}
				w.scratch = w.scratch[:0]
			}
		}
	}
	if start.Mark {
		mark, err := s.bookmarkFrame(start.At, true)
		if err != nil {
			return err
		}
		w.scratch = append(w.scratch, mark...)
	}
	err := w.send(w.scratch)
	w.scratch = w.scratch[:0]
	return err
}

// run sends events as they become visible, until the time is up or the client
// goes away, which it does for good when the server closes its connection.
func (w *watcher) run(gone <-chan struct{}) {
	var bookmarks, timeout <-chan time.Time
	if w.query.opts.AllowWatchBookmarks {
		t := time.NewTicker(w.server.bookmark)
		defer t.Stop()
		bookmarks = t.C
	}
	if s := w.query.opts.TimeoutSeconds; s != nil && *s > 0 {
		t := time.NewTimer(time.Duration(min(*s, math.MaxInt64/int64(time.Second))) * time.Second)
		defer t.Stop()
		timeout = t.C
	}
	for {
		upto := w.follower.Poll()
		var err error
		if upto > w.at {
			if err = w.events(upto); err != nil {
				return
			}
			select {
			case <-bookmarks:
				err = w.bookmark()
			case <-timeout:
				return
			case <-gone:
				return
			default:
			}
		} else {
			select {
			case <-w.follower.Wake():
			case <-bookmarks:
				err = w.bookmark()
			case <-timeout:
				return
			case <-gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// bookmark sends where the watch is.
func (w *watcher) bookmark() error {
	frame, err := w.server.bookmarkFrame(w.at, false)
	if err != nil {
		return err
	}
	return w.send(frame)
}

// events sends what is ready, up to a position or as much as is good at once.
func (w *watcher) events(upto uint64) error {
	f := w.server.frames
	full, _ := slices.BinarySearch(f.end[w.at+1:upto+1], f.end[w.at]+writeSize)
	upto = min(upto, w.at+uint64(full)+1)
	out := f.between(w.at, upto)
	if !w.query.filter.all() {
		w.scratch = w.scratch[:0]
		for i := w.at; i < upto; i++ {
			if err := w.filtered(int32(i)); err != nil {
				return err
			}
		}
		out = w.scratch
	}
	w.at = upto
	w.follower.Seen(upto, 0)
	return w.send(out)
}

// filtered appends what the watch sees of the event with that index: an object
// that comes to match was ADDED, one that no longer does was DELETED, with its
// last state that did, as a real server has it.
func (w *watcher) filtered(i int32) error {
	s, f := w.server, &w.query.filter
	e := &s.storm.Events[i]
	matches := e.Type != watch.Deleted && f.matches(e.Object)
	before := s.frames.before()[i]
	matched := before >= 0 && f.matches(s.storm.Events[before].Object)
	switch {
	case matches && !matched:
		w.scratch = s.frames.appendFrame(w.scratch, watch.Added, i, e.Type)
	case matches || (matched && e.Type == watch.Deleted):
		w.scratch = s.frames.appendFrame(w.scratch, e.Type, i, e.Type)
	case matched:
		frame, err := encodeWith(watch.Deleted, s.frames.typeMeta, s.storm.Events[before].Object, e.Seq)
		if err != nil {
			return err
		}
		w.scratch = append(w.scratch, frame...)
	}
	return nil
}
