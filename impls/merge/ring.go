package merge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls/internal/ring"
)

// combiner merges without a lock and without a goroutine of its own, by flat combining. Calls push
// requests into a lock-free ring. One caller at a time, the combiner's attendant, pops the requests
// of all callers, merges them and sends their notifications. A call without concurrency costs a
// push, a pop and two additions, and no switch between goroutines.
//
// # The attendant
//
// open counts the requests that have not been released. Each caller increments it before it pushes
// its request. The caller that raises open from 0 becomes the attendant and owns the attendance. An
// attendant whose own call is done, or whose ctx has ended, leaves:
//
//   - If a call waits for notifications to be sent, the oldest such call
//     becomes the attendant. That caller must wait for the receiver anyway.
//   - Otherwise, if a request is pushed, its caller becomes the attendant
//     before the request is merged. So a finished caller does no further work
//     for others.
//   - Otherwise, the attendant subtracts the released requests from open. If
//     the result is 0, there is no call and no attendant. Notifications of
//     canceled calls may remain; the next attendant sends them first. If the
//     result is positive, a caller is about to push its request, and the
//     attendant continues as above.
//
// # Why it is correct
//
// Order. The ring orders all requests, in agreement with real time and with the
// order of each caller. Only the attendant pops, merges and sends. Attendance
// moves by a token in a channel, or when one caller lowers open to 0 and another
// raises it from 0. Both order the work of one attendant before that of the next.
//
// One attendant, no forgotten request. A call increments open before its request is in the ring. If
// it raises open from 0, it becomes the attendant. If not, there is an attendant, which cannot
// lower open to 0 before it releases the request, and must pop it for that. It releases no request
// that is not counted in open.
//
// No missed wake-up. An attendant with unsent notifications sleeps if updates is full and the ring
// is empty. It stores parked and checks the ring once more before it sleeps. A caller publishes its
// request and then loads parked. Go's atomics have one total order (go.dev/ref/mem): if the
// attendant's check comes first, the caller sees parked. If the oldest request is claimed but not
// published, the check finds nothing, even if later requests are published. Then the caller of the
// oldest request sees parked. One compare-and-swap resets parked. If a caller succeeds, it sends
// one token. If the attendant fails, it receives that token. So there is at most one token, and a
// send does not block.
//
// States. A waiting caller receives a token for each state change that concerns
// it. It ends its wait by itself only with a compare-and-swap of the state, which
// makes that of the attendant fail. If its ctx ends before the update is merged,
// the caller first waits for the merge, which does not depend on the receiver. Where the merger is
// closed, each caller ends its wait by itself and leaves its request behind.
//
// Nothing spins. An attendant whose next request is not published yet sleeps in the ring's Wait.
// The caller of that request, already counted in open, publishes it.
type combiner struct {
	mux
	requests *ring.LockFree[*request]
	free     sync.Pool // requests for reuse

	// open counts the requests that have not been released. Callers increment it
	// before they publish; only the attendant decrements it.
	open atomic.Int64
	// parked is true while the attendant sleeps because updates is full. The
	// attendant stores it; a waking caller or the attendant swaps it back.
	parked atomic.Bool
	more   chan struct{} // wakes the parked attendant; has capacity 1

	attendance
}

// attendance is the state that only the attendant uses. It moves with the role.
type attendance struct {
	states states
	backlog
	self     *request   // the attendant's own
	done     bool       // self is released
	next     []*request // popped but not merged, in batch
	batch    [16]*request
	merged   []*request // wait for notifications to be sent, in order; may include self
	released int64      // counts the released requests that are not yet subtracted from open
}

// request is a pending command.
type request struct {
	command
	duplicates []*v1.Pod // written before the state becomes isMerged
	target     uint64    // number of sent notifications after which it is done; the attendant owns it
	late       bool      // an unused token may remain; the caller owns it

	state atomic.Int32
	// token reports state changes by the attendant: from isUrgent to isMerged, and to isAttendant
	// and isDone. Its capacity holds both tokens that a call may receive.
	token chan struct{}
}

// The states of a request.
const (
	isPushed    = iota // not merged
	isUrgent           // not merged, and the ctx has ended; the caller sets it
	isMerged           // merged, and its notifications are not sent yet
	isAttendant        // the caller is the attendant
	isDone             // all notifications are sent
	isGivenUp          // the caller left early, set by it from isMerged; the attendant owns it
)

func newCombiner(opts Options) Merger {
	m := &combiner{
		requests: ring.NewLockFree[*request](0),
		free:     sync.Pool{New: func() any { return &request{token: make(chan struct{}, 2)} }},
		more:     make(chan struct{}, 1),
	}
	m.mux.init(opts)
	m.mux.run = m.run
	m.states.mux = &m.mux
	return m
}

// run pushes a request and returns when it is done.
func (m *combiner) run(ctx context.Context, c command) ([]*v1.Pod, error) {
	r := m.free.Get().(*request)
	r.command = c
	attends := m.open.Add(1) == 1
	err := m.requests.TryPush(r)
	switch {
	case err != nil: // Nobody closes the ring.
	case attends:
		err = m.attend(ctx, r)
	default:
		m.wake()
		err = m.wait(ctx, r)
	}
	if errors.Is(err, ErrClosed) {
		return nil, err
	}
	duplicates := r.duplicates
	if err == nil && !r.late {
		r.command, r.duplicates, r.target = command{}, nil, 0
		r.state.Store(isPushed)
		m.free.Put(r)
	}
	return duplicates, err
}

// wake wakes the attendant if it is parked. The caller has pushed a request.
func (m *combiner) wake() {
	if m.parked.Load() && m.parked.CompareAndSwap(true, false) {
		m.more <- struct{}{}
	}
}

// wait waits until another caller has completed the request or passes on the attendance.
func (m *combiner) wait(ctx context.Context, r *request) error {
	select {
	case <-r.token:
	case <-m.closing:
		return errClosing
	case <-ctx.Done():
		if r.state.CompareAndSwap(isPushed, isUrgent) {
			select {
			case <-r.token:
			case <-m.closing:
				return errClosing
			}
		}
		if r.state.CompareAndSwap(isMerged, isGivenUp) {
			return ctx.Err()
		}
		// The attendant was faster. A token may remain unread.
		r.late = true
	}
	if r.state.Load() == isAttendant {
		return m.attend(ctx, r)
	}
	return nil
}

// attend works as the attendant until the caller's own request is done or ctx has
// ended, and leaves.
func (m *combiner) attend(ctx context.Context, r *request) error {
	m.self, m.done = r, false
	for {
		m.mergeAll()
		m.sendAll()
		m.release()
		var err error
		switch {
		case m.done:
			m.leave()
			return nil
		case r.target == 0:
			// An earlier request is not published yet.
			m.awaitRequest()
		default:
			err = m.park(ctx)
		}
		switch {
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			m.merged = slices.DeleteFunc(m.merged, func(have *request) bool { return have == r })
			m.released++
			m.leave()
			return err
		}
	}
}

// pop fills next from the ring and reports whether it has a request.
func (m *combiner) pop() bool {
	if len(m.next) == 0 {
		m.next = m.batch[:m.requests.TakeBatch(m.batch[:])]
	}
	return len(m.next) > 0
}

// awaitRequest waits for the next request, which a caller is about to publish. There is no error, as
// the ring is never closed.
func (m *combiner) awaitRequest() { _ = m.requests.Wait() }

// mergeAll merges all published requests.
func (m *combiner) mergeAll() {
	for m.pop() {
		r := m.next[0]
		m.next[0] = nil
		m.next = m.next[1:]
		m.mergeOne(r)
	}
}

func (m *combiner) mergeOne(r *request) {
	r.duplicates = m.states.execute(r.command, &m.backlog)
	r.target = m.posted
	m.merged = append(m.merged, r)
	if r != m.self && r.state.Swap(isMerged) == isUrgent {
		r.token <- struct{}{}
	}
}

// sendAll sends until updates is full.
func (m *combiner) sendAll() {
	for !m.empty() {
		select {
		case m.updates <- m.first().ready():
			m.shift()
		default:
			return
		}
	}
}

// release releases the requests whose notifications are all sent.
func (m *combiner) release() {
	n := 0
	for ; n < len(m.merged) && m.merged[n].target <= m.sent; n++ {
		r := m.merged[n]
		if r == m.self {
			m.done = true
		} else if r.state.CompareAndSwap(isMerged, isDone) {
			r.token <- struct{}{}
		}
	}
	m.merged = slices.Delete(m.merged, 0, n)
	m.released += int64(n)
}

// park sleeps until the first notification is sent or a request is published. The
// error is that of ctx, or says that the merger is closed.
func (m *combiner) park(ctx context.Context) error {
	m.parked.Store(true)
	var err error
	if !m.pop() {
		select {
		case m.updates <- m.first().ready():
			m.shift()
		case <-m.more:
			return nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-m.closing:
			err = errClosing
		}
	}
	if !m.parked.CompareAndSwap(true, false) {
		<-m.more
	}
	return err
}

// leave passes the attendance to another caller if there is one.
func (m *combiner) leave() {
	m.self = nil
	for {
		for len(m.merged) > 0 {
			r := m.merged[0]
			if r.state.CompareAndSwap(isMerged, isAttendant) {
				r.token <- struct{}{}
				return
			}
			// Its caller has returned early.
			m.merged = slices.Delete(m.merged, 0, 1)
			m.released++
		}
		if m.pop() {
			r := m.next[0]
			r.state.Store(isAttendant)
			r.token <- struct{}{}
			return
		}
		if m.settle() {
			return
		}
	}
}

// settle subtracts the released requests from open and reports whether the
// attendance ended. Otherwise there is a next request.
func (m *combiner) settle() bool {
	released := m.released
	m.released = 0
	if m.open.Add(-released) == 0 {
		return true
	}
	m.awaitRequest()
	return false
}
