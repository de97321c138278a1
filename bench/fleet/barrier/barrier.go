// Package barrier starts each cell of a run at the same time in all pods of a load Job.
// The pods synchronise through Leases, in a cluster or on any API server.
//
//  1. Each member, a pod or a writer, calls [Join] and owns a Lease.
//  2. Before a cell it calls [Barrier.Meet], which writes the position of the cell into
//     its Lease. Positions are the same for all members and never decrease.
//  3. The leader, pod 0, waits for all members. It then writes position and start time
//     into the start Lease, a little ahead of its own clock ([Ahead]).
//  4. All members watch that Lease and start at that time.
//
// A member behind the start position, such as a retried pod, continues at once and
// reports its lateness. If a member misses [Options].Wait, the leader skips it until it
// catches up, and lists it as absent.
//
// If the leader is missing, each member waits 2×Wait, because the leader may itself be
// waiting. Then it continues alone, lists all others as absent, and checks for the
// leader at each further cell. No wait is unbounded.
//
// Accuracy: a start is announced about 200 ms ahead, and each member uses its own
// clock. NTP keeps clocks within a few milliseconds. A fast clock shows as lateness. A
// slow clock delays its member by at most the watch latency; this delay is not visible.
//
// Cost for the API server with n members:
//
//   - join: one read, one write, one list and one watch per member;
//   - each cell: n+1 writes, one read, n+1 watch events for the leader, and one watch
//     event for each other member;
//   - leave: one write per member.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/source/cluster"
)

// ErrReplaced is wrapped by the error for a member whose Lease was taken over or deleted.
var ErrReplaced = errors.New("replaced")

// Member is a pod of the run, or a writer of mode cluster.
type Member struct {
	Writer bool // false for a pod
	Index  int  // from 0
}

var leader = Member{} // member that announces the starts

// String returns "pod 2" or "writer 0".
func (m Member) String() string {
	if m.Writer {
		return "writer " + strconv.Itoa(m.Index)
	}
	return "pod " + strconv.Itoa(m.Index)
}

// Leases is a client of the Leases of a namespace.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// NewLeases returns the client of an API server. It sends no request.
func NewLeases(config *rest.Config, namespace string) (Leases, error) {
	return cluster.NewTyped(config, coordinationv1.SchemeGroupVersion.WithResource("leases"), namespace,
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} })
}

// Options configure [Join].
type Options struct {
	Leases        Leases        // of the run's namespace
	Run           string        // name of the run
	Self          Member        // this member
	Holder        string        // name of its pod, which distinguishes the processes of one member
	Pods, Writers int           // numbers of members; there is at least one pod
	Plays         int           // number of positions of the run, for progress reports
	Wait          time.Duration // timeout for members at one position, and for requests; above 0
	Warn          func(string)  // receives each problem that does not end the run, as one line; may be nil
}

// Start describes how this member started a cell.
type Start struct {
	// Position is that of the cell, or a later one if the others are ahead.
	Position int
	Late     time.Duration // delay after the announced start, by this member's clock
	// Absent are the members that the start did not wait for: pods first, then writers.
	Absent []Member
	// Refused is the number of writes that the API server rejected in earlier plays, of all writers.
	Refused int64
}

// Ahead returns the time from an announcement to the start: 200 ms and 2 ms a member, at most 2 s.
func Ahead(members int) time.Duration {
	return min(200*time.Millisecond+time.Duration(members)*2*time.Millisecond, 2*time.Second)
}

// Barrier is one member of the barrier. It is not safe for concurrent use.
type Barrier struct {
	opts    Options
	members []Member
	ahead   time.Duration
	own     *coordinationv1.Lease // last written version of this member's Lease
	attempt int

	cancel   context.CancelFunc
	watching sync.WaitGroup

	// lost are the members that missed the timeout; other members look at the leader only.
	lost map[Member]bool
	last int // previous position of this member

	mu       sync.Mutex          // guards progress, start and changed
	progress map[Member]Progress // content of the Leases
	start    start               // content of the start Lease
	// changed is closed and replaced at each change, of which the first is the list of the Leases.
	changed chan struct{}
}

// Join creates this member's Lease, or takes over that of its predecessor, and lists the others.
// It retries for at most Wait. The error is that of ctx or of the API server.
func Join(ctx context.Context, opts Options) (*Barrier, error) {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	b := &Barrier{
		opts: opts,
		lost: map[Member]bool{}, last: -1,
		progress: map[Member]Progress{}, start: start{Position: -1}, changed: make(chan struct{}),
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
	listed := b.changed
	b.watch(watching)
	inTime, err := b.await(ctx, opts.Wait, listed)
	if !inTime && err == nil {
		err = fmt.Errorf("barrier: %v could not list Leases within %v", opts.Self, opts.Wait)
	}
	if err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// await waits for a change or the timeout. The error is ctx's.
func (b *Barrier) await(ctx context.Context, timeout time.Duration, changed <-chan struct{}) (inTime bool, err error) {
	select {
	case <-changed:
		return true, nil
	case <-time.After(timeout):
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (b *Barrier) stop() {
	b.cancel()
	b.watching.Wait()
}

// Attempt returns the number of earlier processes that owned this member's Lease.
func (b *Barrier) Attempt() int { return b.attempt }

// Meet waits until all members reach the position, and then for the start. play describes the cell
// in progress reports. The error is that of ctx, or wraps [ErrReplaced]. If the API server does
// not answer within Wait, Meet warns and starts alone. A writer says with refused how many of its
// writes the API server rejected so far.
func (b *Barrier) Meet(ctx context.Context, position int, play string, refused int64) (Start, error) {
	came := time.Now()
	err := b.report(ctx, func(p *Progress) { p.Position, p.Play, p.Refused = position, play, refused })
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
	// If the leader finds this start, its predecessor wrote it.
	s := b.started()
	if s.Position >= last {
		// The leader has caught up.
		delete(b.lost, leader)
	}
	if s.Position > position || s.Position == position && b.opts.Self == leader {
		return b.behind(s), nil
	}
	if b.opts.Self == leader {
		return b.lead(ctx, position, came)
	}
	return b.follow(ctx, position, came)
}

// alone returns the start of a member that waits for no other.
func (b *Barrier) alone(position int) Start {
	return Start{Position: position, Absent: b.others(b.members)}
}

// behind returns the start of a member at or behind the announced position.
func (b *Barrier) behind(s start) Start {
	return Start{Position: s.Position, Late: max(time.Since(s.At), 0), Absent: b.others(s.Absent), Refused: s.Refused}
}

func (b *Barrier) others(members []Member) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m == b.opts.Self })
}

func (b *Barrier) lead(ctx context.Context, position int, came time.Time) (Start, error) {
	absent, missing, changed := b.absent(position)
	for inTime := true; inTime && len(missing) > 0; absent, missing, changed = b.absent(position) {
		var err error
		if inTime, err = b.await(ctx, b.opts.Wait-time.Since(came), changed); err != nil {
			return Start{}, err
		}
	}
	for _, m := range missing {
		b.lost[m] = true
		b.opts.Warn(fmt.Sprintf("%v missed the barrier timeout %v and is skipped", m, b.opts.Wait))
	}
	s := start{Position: position, At: time.Now().Add(b.ahead), Absent: absent, Refused: b.refused()}
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

// absent returns the members below the position, missing those to wait for. changed is closed
// when the result may differ.
func (b *Barrier) absent(position int) (absent, missing []Member, changed chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.others(b.members) {
		p, ok := b.progress[m]
		if ok && p.Position >= position && !p.Left {
			delete(b.lost, m)
			continue
		}
		absent = append(absent, m)
		if !p.Left && !b.lost[m] {
			missing = append(missing, m)
		}
	}
	return absent, missing, b.changed
}

// refused returns the sum of all members' refused writes.
func (b *Barrier) refused() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.progress {
		n += p.Refused
	}
	return n
}

func (b *Barrier) follow(ctx context.Context, position int, came time.Time) (Start, error) {
	for {
		b.mu.Lock()
		s, changed := b.start, b.changed
		b.mu.Unlock()
		switch {
		case s.Position == position:
			delete(b.lost, leader)
			return b.begin(ctx, s)
		case s.Position > position:
			// The leader skipped this member, or this cell.
			delete(b.lost, leader)
			return b.behind(s), nil
		case s.Left || b.lost[leader]:
			return b.alone(position), nil
		}
		inTime, err := b.await(ctx, 2*b.opts.Wait-time.Since(came), changed)
		if err != nil {
			return Start{}, err
		}
		if !inTime {
			b.lost[leader] = true
			b.opts.Warn(fmt.Sprintf("%v missed the barrier timeout %v: this pod continues alone", leader, 2*b.opts.Wait))
		}
	}
}

func (b *Barrier) begin(ctx context.Context, s start) (Start, error) {
	// A slow clock must not delay the start by more than the announcement lead.
	if d := min(time.Until(s.At), b.ahead); d > 0 {
		if _, err := b.await(ctx, d, nil); err != nil {
			return Start{}, err
		}
	}
	return b.behind(s), nil
}

func (b *Barrier) started() start {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.start
}

// Leave removes this member from the barrier and stops the watch. done: it has finished.
func (b *Barrier) Leave(ctx context.Context, done bool) error {
	err := b.report(ctx, func(p *Progress) { p.Left, p.Done = true, done })
	if b.opts.Self == leader && err == nil {
		s := b.started()
		s.Left = true
		err = b.announce(ctx, s)
	}
	b.stop()
	if errors.Is(err, ErrReplaced) {
		return nil // The successor owns the Lease.
	}
	return err
}
