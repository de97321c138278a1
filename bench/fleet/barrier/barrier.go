// Package barrier lets the shards of a run begin each play at the same time: they
// meet by Leases, in a cluster or wherever there is an API server.
//
//  1. Each member, a shard or a writer of the storm, [Join]s: it has a Lease of its own.
//  2. Before a play it comes to [Barrier.Meet] and writes into its Lease how far it is:
//     the position of the play in the run's order, which is the same for all.
//  3. The leader, shard 0, waits until all members have come so far. Then it writes
//     into the start Lease what starts and when, a little ahead of its own clock.
//  4. All others watch that Lease, and begin at the time that stands there.
//
// Positions never go back. Who is behind the start, as a pod is that was begun again,
// goes on at once and is told by how much it is late. Whom the leader has waited for
// for as long as [Options].Wait it waits for no more, until it has caught up by itself;
// the start names who is absent. When the leader doesn't come, the others wait for
// twice as long, as the leader may itself be waiting, then go on, each by itself, and
// name everybody as absent; they look at each further meeting whether it is back. So
// nobody waits for ever, and when all are there, nobody waits longer than for the
// slowest.
//
// How exact it is: a start is told some 200 ms ahead (see [Ahead]), and each member
// begins by its own clock. Clocks of nodes have to be kept in step, as NTP does, to a
// few milliseconds. A clock that is ahead shows as lateness; one that is behind makes
// its member begin late by what the watch takes, as nobody waits longer than starts are
// told ahead, and that is not seen.
//
// What it costs the API server, with n members, of which each has one watch: to join, a
// read and a write, a list and the watch for each; in each meeting n+1 writes and one
// read, and n+1 events for the leader and one for each other; to leave, a write for each.
package barrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// ErrReplaced is wrapped by the error for a member whose Lease somebody else has
// taken, such as the pod that was to replace it, or that was deleted.
var ErrReplaced = errors.New("replaced")

// Member is a shard, or a writer of the storm.
type Member struct {
	Writer bool
	Index  int
}

// leader writes the starts.
var leader = Member{}

// String returns "shard 2" or "writer 0".
func (m Member) String() string {
	if m.Writer {
		return "writer " + strconv.Itoa(m.Index)
	}
	return "shard " + strconv.Itoa(m.Index)
}

// Options say who meets.
type Options struct {
	Client    kubernetes.Interface
	Namespace string

	Run string

	Self   Member
	Holder string

	Shards, Writers int

	Plays int

	Wait time.Duration

	Warn func(string)
}

// Start is how a play began.
type Start struct {
	Position int

	Late time.Duration

	Absent []Member
}

// Ahead is how long before a start of so many members it is told to them: 200 ms and
// 2 ms for each, and two seconds at most.
func Ahead(members int) time.Duration {
	return min(200*time.Millisecond+time.Duration(members)*2*time.Millisecond, 2*time.Second)
}

// Barrier is where one member meets the others. Its methods are for one goroutine.
type Barrier struct {
	opts    Options
	leases  coordinationclient.LeaseInterface
	members []Member
	ahead   time.Duration

	own     *coordinationv1.Lease
	attempt int

	cancel   context.CancelFunc
	watching sync.WaitGroup

	synced chan struct{}
	sync   sync.Once

	lost map[Member]bool

	last int

	mu sync.Mutex

	places map[Member]Place
	start  start

	changed chan struct{}
}

// Join takes this member's Lease, from the process before it where there was one, and
// reads how far the others are. The error is ctx's or the API server's, which is asked
// again for as long as Wait.
func Join(ctx context.Context, opts Options) (*Barrier, error) {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	b := &Barrier{
		opts: opts, leases: opts.Client.CoordinationV1().Leases(opts.Namespace), lost: map[Member]bool{}, places: map[Member]Place{}, changed: make(chan struct{}),
		synced: make(chan struct{}), last: -1, start: start{position: -1},
	}
	for i := range opts.Shards {
		b.members = append(b.members, Member{Index: i})
	}
	for i := range opts.Writers {
		b.members = append(b.members, Member{Writer: true, Index: i})
	}
	b.ahead = Ahead(len(b.members))
	if err := b.take(ctx); err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	b.cancel = cancel
	b.watch(watching)
	timeout := time.NewTimer(opts.Wait)
	defer timeout.Stop()
	var err error
	select {
	case <-b.synced:
		return b, nil
	case <-timeout.C:
		err = fmt.Errorf("barrier: %v could not list Leases within %v", opts.Self, opts.Wait)
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.cancel()
	b.watching.Wait()
	return nil, err
}

// Attempt is how many processes have had this member's Lease before.
func (b *Barrier) Attempt() int { return b.attempt }

// Meet waits until all members have come to the position, and for the start. play says
// what is about to start, for people. The error is ctx's, or wraps [ErrReplaced]. Where
// the API server doesn't answer for as long as Wait, it is told in Warn, and nobody is
// waited for.
func (b *Barrier) Meet(ctx context.Context, position int, play string) (Start, error) {
	came := time.Now()
	err := b.tell(ctx, func(p *Place) { p.Position, p.Play = position, play })
	switch {
	case ctx.Err() != nil:
		return Start{}, ctx.Err()
	case errors.Is(err, ErrReplaced):
		return Start{}, err
	case err != nil:
		b.opts.Warn(fmt.Sprintf("%v: %s begins alone", err, play))
		return b.alone(position), nil
	}
	last := b.last
	b.last = position
	// A start that the leader finds is that of a process before it.
	s := b.started()
	if s.position >= last {
		// The leader is no further behind than this one.
		delete(b.lost, leader)
	}
	if s.position > position || s.position == position && b.opts.Self == leader {
		return b.behind(s), nil
	}
	if b.opts.Self == leader {
		return b.lead(ctx, position, came)
	}
	return b.follow(ctx, position, came)
}

// alone is the start of one who waits for nobody.
func (b *Barrier) alone(position int) Start {
	return Start{Position: position, Absent: b.others(b.members)}
}

// behind is the start of one to whom the others are ahead.
func (b *Barrier) behind(s start) Start {
	return Start{Position: s.position, Late: max(time.Since(s.at), 0), Absent: b.others(s.absent)}
}

// others are the members without this one.
func (b *Barrier) others(members []Member) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m == b.opts.Self })
}

// lead waits for the others and has them start.
func (b *Barrier) lead(ctx context.Context, position int, came time.Time) (Start, error) {
	timeout := time.NewTimer(b.opts.Wait - time.Since(came))
	defer timeout.Stop()
	var absent []Member
	for waiting := true; ; {
		missing, gone, changed := b.missing(position)
		if len(missing) == 0 || !waiting {
			for _, m := range missing {
				b.lost[m] = true
				b.opts.Warn(fmt.Sprintf("%v did not come within %v, and is not waited for any more", m, b.opts.Wait))
			}
			absent = append(gone, missing...)
			break
		}
		select {
		case <-changed:
		case <-timeout.C:
			waiting = false
		case <-ctx.Done():
			return Start{}, ctx.Err()
		}
	}
	slices.SortFunc(absent, inOrder)
	s := start{position: position, at: time.Now().Add(b.ahead), absent: absent}
	err := b.announce(ctx, s)
	switch {
	case ctx.Err() != nil:
		return Start{}, ctx.Err()
	case err != nil:
		b.opts.Warn(err.Error())
		return b.alone(position), nil
	}
	return b.begin(ctx, s)
}

// missing are the members that have not come so far and are waited for, and those that
// have not and are not. changed is closed when that may have changed.
func (b *Barrier) missing(position int) (missing, gone []Member, changed chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		p, ok := b.places[m]
		switch there := ok && p.Position >= position && !p.Left; {
		case m == b.opts.Self:
		case there:
			delete(b.lost, m)
		case ok && p.Left || b.lost[m]:
			gone = append(gone, m)
		default:
			missing = append(missing, m)
		}
	}
	return missing, gone, b.changed
}

// follow waits for the leader's start.
func (b *Barrier) follow(ctx context.Context, position int, came time.Time) (Start, error) {
	timeout := time.NewTimer(2*b.opts.Wait - time.Since(came))
	defer timeout.Stop()
	for {
		b.mu.Lock()
		s, changed := b.start, b.changed
		b.mu.Unlock()
		switch {
		case s.position == position:
			delete(b.lost, leader)
			return b.begin(ctx, s)
		case s.position > position:
			// This one wasn't waited for, or the leader left this play out.
			delete(b.lost, leader)
			return b.behind(s), nil
		case s.left || b.lost[leader]:
			return b.alone(position), nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			b.lost[leader] = true
			b.opts.Warn(fmt.Sprintf("%v did not come within %v: this one goes on by itself", leader, 2*b.opts.Wait))
		case <-ctx.Done():
			return Start{}, ctx.Err()
		}
	}
}

// begin waits until a start.
func (b *Barrier) begin(ctx context.Context, s start) (Start, error) {
	// Not longer than starts are told ahead, whatever the clocks say.
	if d := min(time.Until(s.at), b.ahead); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return Start{}, ctx.Err()
		}
	}
	return b.behind(s), nil
}

func (b *Barrier) started() start {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.start
}

// Leave has nobody wait for this member any more, and ends the watch. done says that
// it has come to its end, rather than failed.
func (b *Barrier) Leave(ctx context.Context, done bool) error {
	err := b.tell(ctx, func(p *Place) { p.Left, p.Done = true, done })
	if b.opts.Self == leader && err == nil {
		s := b.started()
		s.left = true
		err = b.announce(ctx, s)
	}
	b.cancel()
	b.watching.Wait()
	if errors.Is(err, ErrReplaced) {
		return nil // Nobody waits for this process.
	}
	return err
}

// inOrder has shards before writers.
func inOrder(a, b Member) int {
	switch {
	case a.Writer == b.Writer:
		return a.Index - b.Index
	case a.Writer:
		return 1
	}
	return -1
}
