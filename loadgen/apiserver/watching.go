package apiserver

import (
	"context"
	"sync"
)

// watching counts watches.
type watching struct {
	// mu guards the fields below.
	mu sync.Mutex
	// open is the number of open watches, ended the number of ended ones.
	open, ended int
	// changed is closed at the next change; nil if no caller waits.
	changed chan struct{}
}

// add counts an opened watch; the caller calls ended at its end.
func (w *watching) add() (ended func()) {
	w.change(1, 0)
	return func() { w.change(-1, 1) }
}

func (w *watching) change(open, ended int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += open
	w.ended += ended
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// AwaitWatches waits until enough returns true for the numbers of open and ended
// watches. The error is ctx's.
func (s *Server) AwaitWatches(ctx context.Context, enough func(open, ended int) bool) error {
	w := &s.watching
	for {
		w.mu.Lock()
		done := enough(w.open, w.ended)
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
