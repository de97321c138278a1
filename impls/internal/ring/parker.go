package ring

import (
	"context"
	"sync/atomic"
)

// parker is where the consumer sleeps until the value of one position is
// published. Only the producer of that very position has to wake it, so that
// there is one wake-up for each sleep and none that wakes for nothing, save by
// Close.
//
// # Why no wake-up is missed
//
// The consumer announces its position p and then looks whether p is published;
// the producer publishes p and then looks whether p is announced. Go's atomics
// have one total order (go.dev/ref/mem). If the consumer's look comes before
// the publication in it, so does the announcement, and the producer, which
// looks after publishing, sees it. The same holds for Close, which stores
// closedAt before it looks.
//
// # Why tokens are neither lost nor left over
//
// An announcement is taken back by exactly one compare-and-swap: that of a
// waker, which then sends one token, or that of the consumer, which then
// expects none. A consumer whose own swap fails receives the token that is on
// its way. So there is at most one token, it has been received before the next
// announcement, and to send never blocks. That a swap may meet a later
// announcement of the same position than the one that was loaded does no harm:
// the position is published by then.
type parker struct {
	// at is the position that the consumer sleeps for, or awake.
	at atomic.Uint64
	// token has room for one.
	token chan struct{}
}

// awake is no position.
const awake = 1<<64 - 1

func (k *parker) init() {
	k.at.Store(awake)
	k.token = make(chan struct{}, 1)
}

// publisher tells whether the value of a position, the consumer's, is
// published.
type publisher interface{ ready(p uint64) bool }

// wait returns nil when position p is published, [ErrClosed] when the queue was
// closed at it, or the error of ctx.
func (k *parker) wait(ctx context.Context, p uint64, q publisher, closedAt *atomic.Uint64) error {
	for {
		if q.ready(p) {
			return nil
		}
		if closedAt.Load() == p {
			return ErrClosed
		}
		k.announce(p)
		if q.ready(p) || closedAt.Load() == p {
			k.withdraw(p)
			continue
		}
		if err := k.sleep(ctx, p); err != nil {
			return err
		}
	}
}

// announce says that the consumer is about to sleep for position p. The caller
// then looks once more whether it has to, and calls sleep or withdraw.
func (k *parker) announce(p uint64) { k.at.Store(p) }

// withdraw takes the announcement back.
func (k *parker) withdraw(p uint64) {
	if !k.at.CompareAndSwap(p, awake) {
		<-k.token
	}
}

// sleep returns nil when woken, or the error of ctx.
func (k *parker) sleep(ctx context.Context, p uint64) error {
	done := ctx.Done()
	if done == nil {
		<-k.token
		return nil
	}
	select {
	case <-k.token:
		return nil
	case <-done:
		k.withdraw(p)
		return ctx.Err()
	}
}

// published wakes the consumer if it sleeps for p. The caller has published p.
func (k *parker) published(p uint64) {
	if k.at.Load() == p {
		k.wake(p)
	}
}

// closed wakes the consumer whatever it sleeps for. The caller has stored
// closedAt, which the consumer looks at after each announcement; hence one that
// comes after the load here needs no waking.
func (k *parker) closed() {
	if p := k.at.Load(); p != awake {
		k.wake(p)
	}
}

func (k *parker) wake(p uint64) {
	if k.at.CompareAndSwap(p, awake) {
		k.token <- struct{}{}
	}
}
