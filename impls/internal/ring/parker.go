package ring

import "sync/atomic"

// parker is where the consumer sleeps until one position is published. Only the producer of that
// position wakes it. So each sleep has one wake-up, and only Close causes a spurious one.
//
// # Why no wake-up is missed
//
// The consumer announces its position p and then checks whether p is published. The producer
// publishes p and then checks whether p is announced. Go's atomics have one total order
// (go.dev/ref/mem). If the consumer's check comes before the publication, so does the announcement.
// The producer checks after it publishes, and sees the announcement. The same holds for Close,
// which stores closedAt before it checks.
//
// # Why no token is lost or left over
//
// Exactly one compare-and-swap withdraws an announcement. If a waker succeeds, it sends one token.
// If the consumer succeeds, it expects no token. If the consumer fails, it receives the token of
// the waker. So there is at most one token, the consumer receives it before the next announcement,
// and a send never blocks. A waker may withdraw a later announcement of the same position than the
// one it loaded. This is harmless, because the position is published by then.
type parker struct {
	at    atomic.Uint64 // the position that the consumer sleeps for, or awake
	token chan struct{} // has capacity 1
}

const awake = 1<<64 - 1 // not a valid position

func (k *parker) init() {
	k.at.Store(awake)
	k.token = make(chan struct{}, 1)
}

// publisher reports whether the position of the consumer is published.
type publisher interface{ ready(p uint64) bool }

// wait returns nil when position p is published, or [ErrClosed] if the queue was closed at p.
func (k *parker) wait(p uint64, q publisher, closedAt *atomic.Uint64) error {
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
		} else {
			<-k.token
		}
	}
}

// announce sets the position that the consumer is about to sleep for. The caller
// then checks the queue again, and receives the token or calls withdraw.
func (k *parker) announce(p uint64) { k.at.Store(p) }

// withdraw undoes announce. If a waker was faster, it receives the token.
func (k *parker) withdraw(p uint64) {
	if !k.at.CompareAndSwap(p, awake) {
		<-k.token
	}
}

// published wakes the consumer if it sleeps for p. The caller has published p.
func (k *parker) published(p uint64) {
	if k.at.Load() == p {
		k.wake(p)
	}
}

// closed wakes the consumer from any sleep. The caller has stored closedAt. The consumer checks
// closedAt after each announcement, so an announcement after the load here needs no wake-up.
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
