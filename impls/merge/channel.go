package merge

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// channel shares memory by communicating. One goroutine, the owner, has the state
// of all sources and the backlog from construction to Close. Calls send it
// messages and wait for the answer; there is no lock.
//
// The owner selects between the next message and the next notification, so that updates take effect
// while the receiver is slow. It executes all waiting messages before it sleeps. A message costs
// two switches between goroutines. The owner copies the sent pods.
//
// # Answers
//
// A call is answered once, when all notifications up to its own are sent. A caller whose ctx ends
// sends a second message to cancel the call. The owner receives it after the call itself, so the
// update is merged by then. It then answers the call, unless it has already.
type channel struct {
	mux
	messages   chan message  // to the owner, which receives them even if the receiver is slow
	free       sync.Pool     // calls for reuse
	ownerEnded chan struct{} // closed when the owner has ended
}

// message asks the owner to execute a call, or to cancel it.
type message struct {
	call   *call
	cancel bool
}

// call is a command with its answer. The caller owns the fields above answer until
// it sends the message, and again after the answer. In between the owner has them.
type call struct {
	command
	duplicates []*v1.Pod
	target     uint64        // the number of sent notifications that answers the call
	answered   bool          // true after the answer
	answer     chan struct{} // has capacity 1
}

const messagesAhead = 16 // capacity of the message channel

func newChannel(opts Options) Merger {
	m := &channel{
		messages:   make(chan message, messagesAhead),
		free:       sync.Pool{New: func() any { return &call{answer: make(chan struct{}, 1)} }},
		ownerEnded: make(chan struct{}),
	}
	m.mux.init(opts)
	m.mux.run, m.mux.stop = m.run, func() { <-m.ownerEnded }
	o := &owner{channel: m, states: states{mux: &m.mux}}
	go o.run()
	return m
}

// run sends a call to the owner and waits for the answer.
func (m *channel) run(ctx context.Context, cmd command) ([]*v1.Pod, error) {
	c := m.free.Get().(*call)
	c.command = cmd
	if err := m.send(message{call: c}); err != nil {
		return nil, err
	}
	select {
	case <-c.answer:
		duplicates := c.duplicates
		*c = call{answer: c.answer}
		m.free.Put(c)
		return duplicates, nil
	case <-m.closing:
		return nil, errClosing
	case <-ctx.Done():
	}
	// The call is not reused, because a second message refers to it.
	if err := m.send(message{call: c, cancel: true}); err != nil {
		return nil, err
	}
	select {
	case <-c.answer:
		return c.duplicates, ctx.Err()
	case <-m.closing:
		return nil, errClosing
	}
}

func (m *channel) send(msg message) error {
	select {
	case m.messages <- msg:
		return nil
	case <-m.closing:
		return errClosing
	}
}

// owner is the goroutine that owns the state.
type owner struct {
	*channel
	states states
	backlog
	unanswered []*call // the open calls, ordered by target
}

// run works until the merger is closed. Only run sends to updates.
func (o *owner) run() {
	defer close(o.ownerEnded)
	for {
		// Without a notification, the case of updates is off.
		var updates chan<- PodUpdate
		var first PodUpdate
		if !o.empty() {
			updates, first = o.updates, o.first().ready()
		}
		select {
		case msg := <-o.messages:
			o.execute(msg)
		case updates <- first:
			o.shift()
		case <-o.closing:
			return
		}
		o.advance()
	}
}

// execute executes a message. A canceled call is answered unless it has been.
func (o *owner) execute(msg message) {
	c := msg.call
	if !msg.cancel {
		c.duplicates = o.states.execute(c.command, &o.backlog)
		c.target = o.posted
		o.unanswered = append(o.unanswered, c)
	} else if !c.answered {
		o.unanswered = slices.DeleteFunc(o.unanswered, func(have *call) bool { return have == c })
		c.answered = true
		c.answer <- struct{}{}
	}
}

// advance executes waiting messages, sends until updates is full, and answers the
// calls whose notifications are all sent.
func (o *owner) advance() {
	for waiting := len(o.messages); waiting > 0; waiting-- {
		o.execute(<-o.messages)
	}
	for room := true; room && !o.empty(); {
		select {
		case o.updates <- o.first().ready():
			o.shift()
		default:
			room = false
		}
	}
	done := 0
	for _, c := range o.unanswered {
		if c.target > o.sent {
			break
		}
		c.answered = true
		c.answer <- struct{}{}
		done++
	}
	o.unanswered = slices.Delete(o.unanswered, 0, done)
}
