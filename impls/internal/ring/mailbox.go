package ring

import "sync/atomic"

// Mailbox passes values of many producers through a channel to an owner: a
// goroutine that alone uses a [State], from Start to Close. The owner receives
// also while nobody asks. A question waits until the owner can answer it.
//
// # Order
//
// When Send returns, its value is in the channel. The owner drains the channel before it answers,
// unless the answer does not depend on it. So a question sees every earlier value. A producer waits
// only until the owner receives, which never waits for the consumer.
//
// # Close
//
// accepted counts the values that producers have committed to send. Close sets its highest bit and
// reads the count in one operation. The owner receives that many values, leaves the state in the
// channel left, and ends, even if nobody asks. Then whoever asks borrows the state.
type Mailbox[T, A any] struct {
	in   chan T
	asks chan ask[A]
	left chan State[T, A]

	// accepted counts the values that were or will be sent, plus closedBit after
	// Close. total is the count at Close; it is written before closed is closed.
	accepted atomic.Uint64
	total    uint64
	closed   chan struct{}

	yielder Yielder // of the consumer; the owner says for it that it sleeps
}

// State is what the owner of a [Mailbox] owns.
type State[T, A any] interface {
	// Receive takes the first value, and n more from the channel, which has them.
	Receive(first T, n int, more <-chan T)
	// Enough reports whether the answer does not depend on values in the channel.
	Enough(q Question) bool
	// Answer answers a question. It returns false if the question must wait for
	// more values. Only one question may wait at a time.
	Answer(q Question) (A, bool)
}

// Question asks for the next values if Take is true, otherwise for the length.
type Question struct{ Take, Batch bool }

type ask[A any] struct {
	Question
	reply chan<- A
}

// NewMailbox returns a mailbox with a channel for size values.
func NewMailbox[T, A any](size int) *Mailbox[T, A] {
	m := &Mailbox[T, A]{
		in:     make(chan T, size),
		asks:   make(chan ask[A]),
		left:   make(chan State[T, A], 1),
		closed: make(chan struct{}),
	}
	m.yielder.Init()
	return m
}

// Own runs the owner until all values that were sent before Close are received.
func (m *Mailbox[T, A]) Own(s State[T, A]) {
	received := uint64(0)
	receive := func(first T, n int) {
		received += uint64(n) + 1
		s.Receive(first, n, m.in)
	}
	// waiting is a question without an answer yet; its reply is nil if there is none.
	var waiting ask[A]
	serve := func() {
		if waiting.reply == nil {
			return
		}
		if a, ok := s.Answer(waiting.Question); ok {
			waiting.reply <- a
			waiting.reply = nil
		}
	}
	// drain receives all values that were sent before Close.
	drain := func() {
		<-m.closed
		for received < m.total {
			receive(<-m.in, min(len(m.in), int(m.total-received-1)))
		}
		serve()
	}
	for open := true; open; {
		select {
		case v := <-m.in:
			receive(v, len(m.in))
			serve()
		case q := <-m.asks:
			if m.Closed() {
				// A question after Close sees every accepted value.
				drain()
			} else if n := len(m.in); n > 0 && !s.Enough(q.Question) {
				receive(<-m.in, n-1)
				serve()
			}
			if a, ok := s.Answer(q.Question); ok {
				q.reply <- a
			} else {
				waiting = q
				m.yielder.Asleep()
			}
		case <-m.closed:
			drain()
			open = false
		}
	}
	if waiting.reply != nil {
		var none A
		waiting.reply <- none
	}
	m.left <- s
}

// Send sends a value to the owner. It returns false after Close.
func (m *Mailbox[T, A]) Send(v T) bool {
	if m.accepted.Add(1)&closedBit != 0 {
		return false
	}
	m.in <- v
	m.yielder.Yield()
	return true
}

// Took counts n values that the answer to a question had. The consumer calls it before it asks again.
func (m *Mailbox[T, A]) Took(n int) { m.yielder.Took(n) }

// Ask returns the answer to a question, or the zero answer if there will be none.
// reply has capacity 1.
func (m *Mailbox[T, A]) Ask(q Question, reply chan A) A {
	select {
	case m.asks <- ask[A]{q, reply}:
		a := <-reply
		if q.Take {
			m.yielder.Awake()
		}
		return a
	case s := <-m.left:
		defer func() { m.left <- s }()
		a, _ := s.Answer(q)
		return a
	}
}

// Close refuses further values. A second Close does nothing.
func (m *Mailbox[T, A]) Close() {
	if n := m.accepted.Or(closedBit); n&closedBit == 0 {
		m.total = n
		close(m.closed)
	}
}

// Closed reports whether Close was called.
func (m *Mailbox[T, A]) Closed() bool { return m.accepted.Load()&closedBit != 0 }
