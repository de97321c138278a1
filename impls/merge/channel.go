package merge

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
)

func channelVariant() Variant {
	return Variant{
		Name:       "channel",
		Summary:    "an owner goroutine holds state and outbox, commands come by a channel, notifications leave by select",
		Guarantees: unlockedGuarantees(),
		New:        newChannel,
	}
}

// channel shares memory by communicating. One goroutine, the owner, has the state
// of all sources and the backlog from construction to Close. Calls send it
// commands and wait for the answer; there is no lock.
//
// The owner selects between the next command and the next notification, so that
// updates take effect while the receiver is slow. It executes all waiting
// commands before it sleeps. A command costs two switches between goroutines. The
// owner copies the sent pods.
//
// # Answers
//
// A call is answered once, when all notifications up to its own are sent. A
// caller whose ctx ends sends a second command to cancel the call. The owner
// receives it after the call itself, so the update is merged by then. It then
// answers the call, unless it has already.
type channel struct {
	mux
	recorder EventRecorder
	updates  chan PodUpdate
	// commands carries commands to the owner, which receives them even if the
	// receiver is slow.
	commands chan command
	// free holds calls for reuse.
	free sync.Pool
	// ownerEnded is closed when the owner has ended.
	ownerEnded chan struct{}
}

// command is a request to the owner.
type command struct {
	// call is the call to merge, or to cancel.
	call   *call
	giveUp bool
}

// call is a call of Merge or Sync. The caller owns the fields above answer until
// it sends the command, and again after the answer. In between the owner has
// them.
type call struct {
	// sync is true for a call of Sync.
	sync       bool
	source     string
	update     PodUpdate
	duplicates []*v1.Pod
	// target is the number of sent notifications that answers the call.
	target uint64
	// answered is true after the answer.
	answered bool
	// answer has capacity 1.
	answer chan struct{}
}

// commandsAhead is the capacity of the command channel.
const commandsAhead = 16

func newChannel(opts Options) (Merger, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	m := &channel{
		recorder:   opts.Recorder,
		updates:    make(chan PodUpdate, opts.Capacity),
		commands:   make(chan command, commandsAhead),
		ownerEnded: make(chan struct{}),
	}
	m.free.New = func() any { return &call{answer: make(chan struct{}, 1)} }
	m.mux.init(opts, m.Merge)
	o := &owner{
		channel: m,
		mode:    opts.Mode,
		states:  states{terms: opts.terms()},
	}
	go o.run()
	return m, nil
}

// Updates is [Merger.Updates].
func (m *channel) Updates() <-chan PodUpdate { return m.updates }

// Merge is [Merger.Merge].
func (m *channel) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := m.begin(source, &update); err != nil {
		return err
	}
	defer m.end()
	c := m.free.Get().(*call)
	c.source, c.update = source, update
	return m.ask(ctx, c)
}

// Sync is [Merger.Sync].
func (m *channel) Sync() {
	if !m.beginSync() {
		return
	}
	defer m.end()
	c := m.free.Get().(*call)
	c.sync = true
	// The one error is that of a closed merger.
	_ = m.ask(context.Background(), c)
}

// ask sends a call to the owner and waits for the answer.
func (m *channel) ask(ctx context.Context, c *call) error {
	if err := m.command(command{call: c}); err != nil {
		return err
	}
	select {
	case <-c.answer:
		recordDuplicates(m.recorder, c.source, c.duplicates)
		*c = call{answer: c.answer}
		m.free.Put(c)
		return nil
	case <-m.closing:
		return fmt.Errorf("merge: %w", ErrClosed)
	case <-ctx.Done():
	}
	// The call is not reused, because a second command refers to it.
	if err := m.command(command{call: c, giveUp: true}); err != nil {
		return err
	}
	select {
	case <-c.answer:
		recordDuplicates(m.recorder, c.source, c.duplicates)
		return ctx.Err()
	case <-m.closing:
		return fmt.Errorf("merge: %w", ErrClosed)
	}
}

// command sends a command to the owner.
func (m *channel) command(cmd command) error {
	select {
	case m.commands <- cmd:
		return nil
	case <-m.closing:
		return fmt.Errorf("merge: %w", ErrClosed)
	}
}

// Close is [Merger.Close].
func (m *channel) Close() {
	m.close(func() {}, func() { <-m.ownerEnded })
}

// owner is the goroutine that owns the state.
type owner struct {
	*channel
	mode   Mode
	states states
	backlog
	// unanswered holds the open calls, ordered by target.
	unanswered []*call
}

// run works until the merger is closed. Only run sends to updates and closes it.
func (o *owner) run() {
	defer close(o.ownerEnded)
	defer close(o.updates)
	for {
		if o.empty() {
			select {
			case cmd := <-o.commands:
				o.execute(cmd)
			case <-o.closing:
				return
			}
		} else {
			select {
			case cmd := <-o.commands:
				o.execute(cmd)
			case o.updates <- o.first().ready():
				o.shift()
			case <-o.closing:
				return
			}
		}
		o.advance()
	}
}

// execute executes a command.
func (o *owner) execute(cmd command) {
	c := cmd.call
	switch {
	case cmd.giveUp:
		o.giveUp(c)
		return
	case c.sync:
		o.postAll(AllSource, o.states.all)
	default:
		s := o.states.of(c.source)
		c.duplicates = s.apply(c.update)
		if s.delta.firstSet {
			o.sawSET(c.source)
		}
		o.postDelta(o.mode, s, o.states.all)
	}
	c.target = o.posted
	o.unanswered = append(o.unanswered, c)
}

// giveUp answers a canceled call unless it has been answered.
func (o *owner) giveUp(c *call) {
	if c.answered {
		return
	}
	o.unanswered = slices.DeleteFunc(o.unanswered, func(have *call) bool { return have == c })
	c.answered = true
	c.answer <- struct{}{}
}

// advance executes waiting commands, sends until updates is full, and answers the
// calls whose notifications are all sent.
func (o *owner) advance() {
	for waiting := len(o.commands); waiting > 0; waiting-- {
		o.execute(<-o.commands)
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
