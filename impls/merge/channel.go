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

// channel shares memory by communicating: one goroutine, from the constructor
// to Close, owns the state of all sources and the backlog of what is to be
// sent. Calls send it commands and wait for the answer; there is no lock.
//
// The owner never waits for the receiver alone: it selects between the next
// command and the next notification, so that updates go on into the state
// however slow the receiver is. Where several commands wait, it takes them all
// before it sleeps again. A command costs two hand-overs between goroutines,
// there and back; the owner makes the copies that are told.
//
// # Answers
//
// A call is answered once, when what stood in the backlog after its update has
// been sent. A caller whose ctx ends sends the command to give its call up,
// which the owner takes after that of the call itself: the update is in the
// state by then. It answers a call that it has not answered yet.
type channel struct {
	mux
	recorder EventRecorder
	updates  chan PodUpdate
	// commands to the owner, which are taken however slow the receiver is.
	commands chan command
	// free are calls to be used again.
	free sync.Pool
	// ownerEnded is closed when the owner has ended.
	ownerEnded chan struct{}
}

// command is what the owner is asked to do.
type command struct {
	// call to merge, or to give up.
	call   *call
	giveUp bool
}

// call is a call of Merge or Sync. The fields above answer are the caller's
// until it has sent the command, then the owner's until it has answered, then
// the caller's again.
type call struct {
	// sync is true for a call of Sync.
	sync       bool
	source     string
	update     PodUpdate
	duplicates []*v1.Pod
	// target is how many notifications have to be sent to answer the call.
	target uint64
	// answered is true once it is.
	answered bool

	// answer has room for one.
	answer chan struct{}
}

// commandsAhead is how many commands may wait until the owner gets to them.
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

// ask hands a call to the owner and waits for the answer.
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
	// The call isn't used again: a second command refers to it.
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

// owner is the goroutine that has the state.
type owner struct {
	*channel
	mode   Mode
	states states
	backlog
	// unanswered calls, by target.
	unanswered []*call
}

// run works until the merger is closed. It alone sends updates, and closes
// them.
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

// giveUp answers a call early, if it has not been answered.
func (o *owner) giveUp(c *call) {
	if c.answered {
		return
	}
	o.unanswered = slices.DeleteFunc(o.unanswered, func(have *call) bool { return have == c })
	c.answered = true
	c.answer <- struct{}{}
}

// advance takes the commands that wait, sends as much as there is room for, and
// answers the calls that have nothing left to be sent.
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
