package merge

import (
	"context"
	"fmt"
	"sync"
)

// outbox is a backlog from which one caller at a time sends, oldest first, while
// the others wait by a condition variable for their turn.
//
// A caller sends until its own notifications are out, those of earlier callers
// before them, or waits while another does. What callers left that gave up is
// sent by the next. So the outbox is bounded by the number of callers, each of
// which waits, plus what those left.
type outbox struct {
	updates chan PodUpdate
	// stop is closed when the merger closes.
	stop <-chan struct{}

	// mu guards everything below; it is not held while sending or copying.
	mu sync.Mutex
	// turn is signalled when sending turns false, and where a waiting caller
	// has to look at its ctx or at stop.
	turn *sync.Cond
	backlog
	// sending is true while a caller sends the first of the backlog.
	sending bool
}

func (o *outbox) init(opts Options, stop <-chan struct{}) {
	o.updates = make(chan PodUpdate, opts.Capacity)
	o.stop = stop
	o.turn = sync.NewCond(&o.mu)
}

// flush returns when all that is in the backlog now has been sent, ctx has
// ended or the merger is closed. It is called with the mutex held and returns
// without it.
func (o *outbox) flush(ctx context.Context) error {
	defer o.mu.Unlock()
	target := o.posted
	var stop func() bool
	for o.sent < target {
		if o.sending {
			if stop == nil {
				stop = context.AfterFunc(ctx, o.wake)
				defer stop()
			}
			if err := o.ended(ctx); err != nil {
				return err
			}
			o.turn.Wait()
			continue
		}
		if err := o.sendFirst(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ended returns the error that ends a wait, if any.
func (o *outbox) ended(ctx context.Context) error {
	select {
	case <-o.stop:
		return fmt.Errorf("merge: %w", ErrClosed)
	default:
		return ctx.Err()
	}
}

// sendFirst sends the first of the backlog. It is called with the mutex held
// and lets go of it meanwhile.
func (o *outbox) sendFirst(ctx context.Context) error {
	o.sending = true
	first := *o.first()
	o.mu.Unlock()

	err := o.send(ctx, first.ready())

	o.mu.Lock()
	o.sending = false
	o.turn.Broadcast()
	if err != nil {
		// The copies are kept for whoever sends them.
		*o.first() = first
		return err
	}
	o.shift()
	return nil
}

func (o *outbox) send(ctx context.Context, update PodUpdate) error {
	select {
	case o.updates <- update:
		return nil
	default:
	}
	select {
	case o.updates <- update:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-o.stop:
		return fmt.Errorf("merge: %w", ErrClosed)
	}
}

// wake makes those that wait for their turn look at their ctx and at stop.
func (o *outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn.Broadcast()
}
