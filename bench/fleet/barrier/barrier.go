// Package barrier starts each cell of a run at the same time in all pods of a load Job.
// The pods meet by Leases, in a cluster or at any API server.
//
//  1. Each member, a pod or a writer, calls [Join] and owns a Lease.
//  2. Before a cell it calls [Barrier.Meet], which writes the position of the cell into
//     its Lease. Positions are the same for all members and never decrease.
//  3. The leader, pod 0, waits for all members. It then writes position and start time
//     into the start Lease, a little ahead of its own clock ([Ahead]).
//  4. All members watch that Lease and start at that time.
//
// A member behind the start position, such as a retried pod, continues at once; its
// lateness is reported. The leader waits [Options].Wait for a member, then skips it until
// it catches up, and names it absent. If the leader does not come, each member waits
// 2×Wait, since the leader may itself be waiting, then continues alone, names all others
// absent, and looks for the leader at each further meeting. No member waits forever.
//
// Accuracy: a start is announced about 200 ms ahead, and each member uses its own clock.
// NTP keeps clocks within a few milliseconds. A fast clock shows as lateness. A slow
// clock delays its member by the latency of the watch at most, and does not show.
//
// Cost for the API server with n members: to join, one read, one write, one list and one
// watch each; for each meeting n+1 writes and one read, n+1 watch events for the leader and
// one for each other member; to leave, one write each.
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

// ErrReplaced is wrapped by the error for a member that lost its Lease: another pod took
// it, or it was deleted.
var ErrReplaced = errors.New("replaced")

// Member is a pod of the run, or a writer of mode cluster.
type Member struct {
	Writer bool
	Index  int
}

// leader announces the starts.
var leader = Member{}

// String returns "pod 2" or "writer 0".
func (m Member) String() string {
	if m.Writer {
		return "writer " + strconv.Itoa(m.Index)
	}
	return "pod " + strconv.Itoa(m.Index)
}

// Options configure [Join].
type Options struct {
	// Client is for the Leases, in the namespace in which the run is.
	Client    kubernetes.Interface
	Namespace string
	// Run is the run's name.
	Run string
	// Self is this member. Holder tells its processes apart: the name of its pod.
	Self   Member
	Holder string

	Pods, Writers int

	Plays int
	// Wait is how long others are waited for in one meeting; more than 0.
	Wait time.Duration
	// Warn is told what doesn't end the run, in a line; nil for nobody.
	Warn func(string)
}

// Start describes the start of a cell.
type Start struct {
	// Position of the start by which it began: the play's own, or a later one where
	// the others were ahead.
	Position int
	// Late is how long after the start it began, by this member's clock; where the
	// others were ahead, after theirs.
	Late time.Duration
	// Absent are the members that were not waited for, without this one, the shards
	// first.
	Absent []Member
}

// Ahead returns the time between the announcement of a start and the start: 200 ms plus
// 2 ms for each member, at most two seconds.
func Ahead(members int) time.Duration {
	return min(200*time.Millisecond+time.Duration(members)*2*time.Millisecond, 2*time.Second)
}

// Barrier is one member's end of the barrier. One goroutine calls its methods.
type Barrier struct {
	opts    Options
	leases  coordinationclient.LeaseInterface
	members []Member
	ahead   time.Duration
	// own is the Lease as it was last written.
	own     *coordinationv1.Lease
	attempt int

	cancel   context.CancelFunc
	watching sync.WaitGroup
	// synced is closed when the Leases have been read for the first time.
	synced chan struct{}
	sync   sync.Once

	// lost are the members that were waited for in vain: for the leader any, for
	// another member the leader.
	lost map[Member]bool
	// last is the position that this one came to before.
	last int

	mu sync.Mutex
	// places and start are what the Leases say. Guarded by mu.
	places map[Member]Place
	start  start
	// changed is closed, and made anew, when they say something else. Guarded by mu.
	changed chan struct{}
}

// Join creates this member's Lease, or takes it over from its predecessor, and lists the
// others. It retries for Wait. The error is that of ctx or of the API server.
func Join(ctx context.Context, opts Options) (*Barrier, error) {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	b := &Barrier{
		opts: opts, leases: opts.Client.CoordinationV1().Leases(opts.Namespace), lost: map[Member]bool{}, places: map[Member]Place{}, changed: make(chan struct{}),
		synced: make(chan struct{}), last: -1, start: start{position: -1},
	}
	for i := range opts.Pods {
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

// Attempt returns the number of predecessors that owned this member's Lease.
func (b *Barrier) Attempt() int { return b.attempt }

// Meet waits for all members at the position, and for the start. play describes the cell
// for people. The error is that of ctx, or wraps [ErrReplaced]. If the API server does not
// answer within Wait, Meet warns and starts alone.
func (b *Barrier) Meet(ctx context.Context, position int, play string) (Start, error) {
	came := time.Now()
	err := b.tell(ctx, func(p *Place) { p.Position, p.Play = position, play })
	switch {
	case ctx.Err() != nil:
		return Start{}, ctx.Err()
	case errors.Is(err, ErrReplaced):
		return Start{}, err
	case err != nil:
		b.opts.Warn(fmt.Sprintf("%v: %s starts alone", err, play))
		return b.alone(position), nil
	}
	last := b.last
	b.last = position
	// A start that the leader finds is that of its predecessor.
	s := b.started()
	if s.position >= last {
		// The leader is back.
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

// alone is the start of a member that waits for no other.
func (b *Barrier) alone(position int) Start {
	return Start{Position: position, Absent: b.others(b.members)}
}

// behind is the start of a member that others are ahead of.
func (b *Barrier) behind(s start) Start {
	return Start{Position: s.position, Late: max(time.Since(s.at), 0), Absent: b.others(s.absent)}
}

// others returns the members without this one.
func (b *Barrier) others(members []Member) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m == b.opts.Self })
}

// lead waits for the others and announces the start.
func (b *Barrier) lead(ctx context.Context, position int, came time.Time) (Start, error) {
	timeout := time.NewTimer(b.opts.Wait - time.Since(came))
	defer timeout.Stop()
	var absent []Member
	for waiting := true; ; {
		missing, gone, changed := b.missing(position)
		if len(missing) == 0 || !waiting {
			for _, m := range missing {
				b.lost[m] = true
				b.opts.Warn(fmt.Sprintf("%v missed the barrier timeout %v and is skipped", m, b.opts.Wait))
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

// missing returns the members before the position: those that the leader waits for, and
// those that it skips. It closes changed when the result may differ.
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
			// The leader skipped this member, or this cell.
			delete(b.lost, leader)
			return b.behind(s), nil
		case s.left || b.lost[leader]:
			return b.alone(position), nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			b.lost[leader] = true
			b.opts.Warn(fmt.Sprintf("%v missed the barrier timeout %v: this pod continues alone", leader, 2*b.opts.Wait))
		case <-ctx.Done():
			return Start{}, ctx.Err()
		}
	}
}

// begin waits for the start time.
func (b *Barrier) begin(ctx context.Context, s start) (Start, error) {
	// A slow clock must not delay the start by more than the announcement.
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

// Leave removes this member from the barrier and ends the watch. done is true if the
// member has finished, and false if it failed.
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
		return nil // The successor owns the Lease.
	}
	return err
}

// inOrder sorts pods before writers.
func inOrder(a, b Member) int {
	switch {
	case a.Writer == b.Writer:
		return a.Index - b.Index
	case a.Writer:
		return 1
	}
	return -1
}
