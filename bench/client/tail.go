package client

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
)

// tail keeps the end of what the last watch was sent, before it is compressed.
type tail struct {
	unknown bool // objects get fields that no client knows

	mu   sync.Mutex
	last *watched // nil without a watch
}

// watched is the answer of a watch.
type watched struct {
	http.ResponseWriter
	tail *tail
	sent int // bytes
	end  []byte
	over bool
}

func (t *tail) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &watched{ResponseWriter: rw, tail: t}
		if r.URL.Query().Has("watch") {
			t.mu.Lock()
			t.last = w
			t.mu.Unlock()
		}
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			w.over = true
		}()
		h.ServeHTTP(w, r)
	})
}

// Unwrap serves [http.ResponseController].
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [http.ResponseWriter].
func (w *watched) Write(b []byte) (int, error) {
	out := b
	if w.tail.unknown {
		out = bytes.ReplaceAll(b, []byte(`"metadata":{`), []byte(`"metadata":{"fromTheFuture":{"a":[1,{"b":null}]},`))
	}
	w.tail.mu.Lock()
	w.sent += len(out)
	w.end = append(w.end, out[max(0, len(out)-excerpt):]...)
	w.end = w.end[max(0, len(w.end)-excerpt):]
	w.tail.mu.Unlock()
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// String says what the last watch was sent, and whether it is open.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		return "there was no watch"
	}
	return fmt.Sprintf("the last of %d bytes of the last watch, which %s: %q", t.last.sent, map[bool]string{false: "is open", true: "has ended"}[t.last.over], t.last.end)
}
