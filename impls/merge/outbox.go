package merge

import (
	"context"
	"sync"
)

// outbox is a backlog of notifications. One caller at a time sends, oldest first;
// the others wait for their turn with a condition variable.
//
// A caller sends until all earlier notifications and its own are sent, or waits while another
// caller does. The next caller sends the notifications of canceled calls. So the length of the
// outbox is bounded by the number of waiting callers plus the canceled calls.
type outbox struct {
	mux *mux
	mu  sync.Mutex // guards the fields below; not held during a send or a copy
	// turn is signalled when sending becomes false, and when a waiting caller
	// must check its ctx or stop.
	turn *sync.Cond
	backlog
	sending bool // a caller sends the first notification
}

func (o *outbox) init(m *mux) {
	o.mux = m
	o.turn = sync.NewCond(&o.mu)
}

// flush returns when all current notifications are sent, ctx has ended or the
// merger is closed. The caller holds the mutex; flush releases it.
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
			select {
			case <-o.mux.closing:
				return errClosing
			default:
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			o.turn.Wait()
		} else if err := o.sendFirst(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sendFirst sends the first notification. The caller holds the mutex, which is
// released during the send.
func (o *outbox) sendFirst(ctx context.Context) error {
	o.sending = true
	first := *o.first()
	o.mu.Unlock()

	err := o.mux.send(ctx, first.ready())

	o.mu.Lock()
	o.sending = false
	o.turn.Broadcast()
	if err != nil {
		// Keep the copies for the next sender.
		*o.first() = first
		return err
	}
	o.shift()
	return nil
}

// wake makes waiting callers check their ctx and stop.
func (o *outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn.Broadcast()
}
