package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls/internal/ring"
)

func ringVariant() Variant {
	return Variant{
		Name:       "ring",
		Summary:    "commands through a lock-free ring; the caller that finds it unattended merges and sends for all",
		Guarantees: unlockedGuarantees(),
		New:        newCombiner,
	}
}

// combiner merges without a lock and without a goroutine of its own: calls push
// requests into a lock-free ring, and one caller at a time, the attendant, takes
// them out, merges them and sends what they have to say, its own and that of the
// others (flat combining). A call that meets no other costs a push, a pop and
// two additions, and no hand-over between goroutines.
//
// # Who attends
//
// open counts the calls that have come and not been let go; each counts itself
// before it pushes its request. Who raises open from 0 attends, and what is the
// attendant's is this caller's. An attendant whose own call is done, or whose
// ctx has ended, leaves:
//
//   - It makes the oldest call that waits for something to be sent the
//     attendant. That one has to wait for the receiver anyway.
//   - Else, it makes one that has been pushed the attendant, before that is
//     merged: who is done doesn't go on to work for others.
//   - Else, it takes the calls that were let go from open. If that gives 0,
//     nobody attends, and nobody has to: there is no call. Notifications of
//     calls that were given up may be left; the next attendant sends them first.
//     If it gives more than 0, a request is on its way: see above.
//
// # Why it is right
//
// Order. The ring gives each request its place, in an order that agrees with
// real time and with that of each caller. Only the attendant pops, merges and
// sends. Attendance passes on by a token in a channel, or by an open that one
// caller lowers to 0 and another raises from 0: all that an attendant did
// happens before what the next one does.
//
// Nothing is left lying, and nobody attends twice. A call counts in open before
// its request is in the ring. If it raises open from 0, it attends. If not,
// there is an attendant, who can't get open to 0 before it has let the call go,
// for which it has to take it out of the ring. And it lets go of no call that
// isn't in open yet.
//
// No wake-up is missed. An attendant that has something to send, and finds no
// room for it and the ring empty, stores parked, looks into the ring once more
// and sleeps; a caller publishes its request and then looks at parked. Go's
// atomics have one total order (go.dev/ref/mem): if the attendant's look comes
// first, the caller sees parked. Where the oldest request is claimed and not
// published yet, the look finds nothing although later ones are; then it is the
// caller of the oldest that sees parked. parked is taken back by one
// compare-and-swap: that of a caller, which then sends one token, or that of the
// attendant, which otherwise receives the token that is on its way. So there is
// never more than one, and to send it doesn't block.
//
// A caller that waits receives a token for each change of its request's state
// that it has to know of. It ends its wait by itself by nothing but a
// compare-and-swap of that state, after which the attendant's own fails. Where
// its ctx ends before its update is in the state, it waits for that first, which
// takes no receiver.
//
// Nothing spins. An attendant that needs a request which isn't in the ring yet,
// or not in order, sleeps in the ring's Wait until the caller in question, which
// has counted itself, has published it.
type combiner struct {
	mux
	mode     Mode
	recorder EventRecorder
	updates  chan PodUpdate
	requests *ring.Unbounded[*request]
	// free are requests to be used again.
	free sync.Pool

	// open counts the calls that have come and not been let go. Raised by
	// callers, each before publishing its request; lowered by the attendant.
	open atomic.Int64
	// parked is true while the attendant sleeps for want of room in updates.
	// Stored by the attendant; swapped back by who wakes it, or by itself.
	parked atomic.Bool
	// more wakes the attendant that is parked; it has room for the one token.
	more chan struct{}

	attendance
}

// attendance is what belongs to the attendant, handed over with the attendance.
type attendance struct {
	states states
	backlog
	// self is the attendant's own request, done true once it was let go.
	self *request
	done bool
	// next are requests that have been popped and not been merged, in batch.
	next  []*request
	batch [16]*request
	// merged are the requests that wait for something to be sent, in order. The
	// attendant's own may be among them.
	merged []*request
	// released is how many requests were let go and not yet taken from open.
	released int64
}

// request is a call of Merge or Sync on its way.
type request struct {
	// sync is true for a call of Sync.
	sync   bool
	source string
	update PodUpdate
	// duplicates is written before the state becomes isMerged.
	duplicates []*v1.Pod
	// target is how many notifications have to be sent until the call is done;
	// the attendant's.
	target uint64

	// late is true if there may be a token left; the caller's.
	late bool

	state atomic.Int32
	// token comes with a change of state by the attendant: to isMerged if it was
	// isUrgent, and to the three that follow. There is room for both that a
	// call may get.
	token chan struct{}
}

// The states of a request.
const (
	// isPushed: it has not been merged.
	isPushed = iota
	// isUrgent: it has not been merged and its ctx has ended. Set by the caller.
	isUrgent
	// isMerged: it is in the state, and waits for something to be sent.
	isMerged
	// isAttendant: its caller attends.
	isAttendant
	// isDone: all has been sent.
	isDone
	// isRefused: the merger is closed.
	isRefused
	// isGivenUp: the caller has gone. Set by the caller, from isMerged; the
	// request is the attendant's.
	isGivenUp
)

func newCombiner(opts Options) (Merger, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	m := &combiner{
		mode:     opts.Mode,
		recorder: opts.Recorder,
		updates:  make(chan PodUpdate, opts.Capacity),
		requests: ring.NewUnbounded[*request](),
		more:     make(chan struct{}, 1),
	}
	m.free.New = func() any { return &request{token: make(chan struct{}, 2)} }
	m.states.terms = opts.terms()
	m.mux.init(opts, m.Merge)
	return m, nil
}

// Updates is [Merger.Updates].
func (m *combiner) Updates() <-chan PodUpdate { return m.updates }

// Merge is [Merger.Merge].
func (m *combiner) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := m.begin(source, &update); err != nil {
		return err
	}
	defer m.end()
	r := m.free.Get().(*request)
	r.source, r.update = source, update
	return m.ask(ctx, r)
}

// Sync is [Merger.Sync].
func (m *combiner) Sync() {
	if !m.beginSync() {
		return
	}
	defer m.end()
	r := m.free.Get().(*request)
	r.sync = true
	// The one error is that of a closed merger.
	_ = m.ask(context.Background(), r)
}

// Close is [Merger.Close]. Who attends looks at closing.
func (m *combiner) Close() {
	m.close(func() {}, func() { close(m.updates) })
}

// ask pushes a request and returns when it is done.
func (m *combiner) ask(ctx context.Context, r *request) error {
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
	recordDuplicates(m.recorder, r.source, r.duplicates)
	if err == nil && !r.late {
		r.sync, r.source, r.update, r.duplicates, r.target = false, "", PodUpdate{}, nil, 0
		r.state.Store(isPushed)
		m.free.Put(r)
	}
	return err
}

// wake wakes the attendant if it is parked. The caller has pushed a request.
func (m *combiner) wake() {
	if m.parked.Load() && m.parked.CompareAndSwap(true, false) {
		m.more <- struct{}{}
	}
}

// wait waits until another caller has done what there is to do for a request,
// or hands over the attendance.
func (m *combiner) wait(ctx context.Context, r *request) error {
	select {
	case <-r.token:
	case <-ctx.Done():
		if r.state.CompareAndSwap(isPushed, isUrgent) {
			<-r.token
		}
		if r.state.CompareAndSwap(isMerged, isGivenUp) {
			return ctx.Err()
		}
		// The attendant was faster. There may be a token that nobody takes.
		r.late = true
	}
	switch r.state.Load() {
	case isAttendant:
		return m.attend(ctx, r)
	case isRefused:
		return fmt.Errorf("merge: %w", ErrClosed)
	default:
		return nil
	}
}

// attend does what there is to do until the caller's own request is done or ctx
// has ended, and leaves. It is called by the attendant.
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
			// It stands behind one that is being published.
			m.awaitRequest()
		default:
			err = m.park(ctx)
		}
		switch {
		case errors.Is(err, ErrClosed):
			m.refuseAll()
			return err
		case err != nil:
			m.merged = slices.DeleteFunc(m.merged, func(have *request) bool { return have == r })
			m.released++
			m.leave()
			return err
		}
	}
}

// pop makes sure that there is a next request if the ring has one.
func (m *combiner) pop() bool {
	if len(m.next) == 0 {
		m.next = m.batch[:m.requests.PopBatch(m.batch[:])]
	}
	return len(m.next) > 0
}

// awaitRequest waits until there is a next request. One is on its way.
func (m *combiner) awaitRequest() {
	// Nobody closes the ring, and this ctx doesn't end.
	_ = m.requests.Wait(context.Background())
}

// mergeAll merges what has been pushed.
func (m *combiner) mergeAll() {
	for m.pop() {
		r := m.next[0]
		m.next[0] = nil
		m.next = m.next[1:]
		m.mergeOne(r)
	}
}

func (m *combiner) mergeOne(r *request) {
	if r.sync {
		m.postAll(AllSource, m.states.all)
	} else {
		s := m.states.of(r.source)
		r.duplicates = s.apply(r.update)
		if s.delta.firstSet {
			m.sawSET(r.source)
		}
		m.postDelta(m.mode, s, m.states.all)
	}
	r.target = m.posted
	m.merged = append(m.merged, r)
	if r != m.self && r.state.Swap(isMerged) == isUrgent {
		r.token <- struct{}{}
	}
}

// sendAll sends as much as there is room for.
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

// release lets go of the requests that have nothing left to be sent.
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

// park sleeps until the first notification has been sent or there is a request
// to merge. The error is that of ctx, or says that the merger is closed.
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
			err = fmt.Errorf("merge: %w", ErrClosed)
		}
	}
	if !m.parked.CompareAndSwap(true, false) {
		<-m.more
	}
	return err
}

// leave gives up the attendance, to another caller if there is one.
func (m *combiner) leave() {
	m.self = nil
	for {
		for len(m.merged) > 0 {
			r := m.merged[0]
			if r.state.CompareAndSwap(isMerged, isAttendant) {
				r.token <- struct{}{}
				return
			}
			m.dropFirst()
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

// dropFirst lets go of the first merged request, whose caller has gone.
func (m *combiner) dropFirst() {
	m.merged = slices.Delete(m.merged, 0, 1)
	m.released++
}

// settle takes the requests that were let go from open. It reports whether that
// ended the attendance; if not, there is a next request.
func (m *combiner) settle() bool {
	released := m.released
	m.released = 0
	if m.open.Add(-released) == 0 {
		return true
	}
	m.awaitRequest()
	return false
}

// refuseAll gives up the attendance of a closed merger: it lets all requests go.
func (m *combiner) refuseAll() {
	for {
		for _, r := range m.merged {
			if r != m.self && r.state.CompareAndSwap(isMerged, isRefused) {
				r.token <- struct{}{}
			}
			m.released++
		}
		m.merged = nil
		for m.pop() {
			r := m.next[0]
			m.next = m.next[1:]
			r.state.Store(isRefused)
			r.token <- struct{}{}
			m.released++
		}
		if m.settle() {
			return
		}
	}
}
