package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/loadgen/source/cluster"
)

// The barrier starts each play of a load Job at one time in all pods.
//
//  1. Each member, a pod, calls [JoinBarrier]. Before a play it calls [Barrier.Meet], which says
//     in a Lease of its own that it is ready. Positions of plays are the same for all members.
//  2. The leader, pod 0, watches these Leases. When all members are ready it writes the start into
//     one Lease that all watch: position and time, a little ahead of its own clock (startLead).
//  3. Each member waits for that time by its own clock.
//
// No member starts a play before all are ready, but for these cases, which [lab.Start] reports:
//
//   - A member that is not ready within [BarrierOptions].Wait is absent: the leader starts without it, and
//     does not wait for it again until it has caught up.
//   - A member that comes after the start, such as a retried pod, starts at once and is late.
//   - Without an answer of the API server for Wait, a minute at least, or a start within 2×Wait, a member
//     starts alone.
//
// Skew: members start within the difference of their clocks, a few milliseconds with NTP. A fast clock
// shows as lateness. A slow one delays its member, by at most startLead.
//
// Cost for the API server with n members: one write, one list and one watch a member; for each play n+1
// writes, n+1 watch events for the leader, and one for each other member.
//
// A start by the command or by a single time for the whole run would be simpler. The command may leave
// ([Fleet.Follow] is optional), and plays of unpaced cells take as long as each pod needs.

// Leases is a client of the Leases of a namespace.
type Leases interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*coordinationv1.Lease, error)
}

// NewLeases returns the client of an API server. It sends no request.
func NewLeases(config *rest.Config, namespace string) (Leases, error) {
	return cluster.NewTyped(config, coordinationv1.SchemeGroupVersion.WithResource("leases"), namespace,
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} })
}

// BarrierOptions configure [JoinBarrier].
type BarrierOptions struct {
	Leases Leases        // of the run's namespace
	Run    string        // name of the run
	Self   int           // this member: the index of the pod
	Pods   int           // number of members, at least one
	Plays  int           // number of positions of the run, for progress reports
	Wait   time.Duration // timeout for members at one position; above 0
	Warn   func(string)  // receives each problem that does not end the run, as one line
}

// limit returns the timeout of requests: Wait, and a minute at least.
func (o BarrierOptions) limit() time.Duration { return max(o.Wait, time.Minute) }

const leader = 0 // member that writes the starts

// member returns a name such as "pod 2".
func member(m int) string { return "pod " + strconv.Itoa(m) }

// Progress is what a member says in its Lease.
type Progress struct {
	Position int    `json:"position"`       // current play; -1 before the first
	Plays    int    `json:"plays"`          // number of all plays
	Play     string `json:"play,omitempty"` // describes the current one
}

// String returns a summary such as "play 12 of 40, round 2 of Queue/impl=cond".
func (p Progress) String() string {
	if p.Position < 0 {
		return "joined"
	}
	return fmt.Sprintf("play %d of %d, %s", p.Position+1, p.Plays, strings.Join(strings.Fields(p.Play), " "))
}

// start is what the leader says in the start Lease.
type start struct {
	Position int       `json:"position"`         // -1 before the first
	At       time.Time `json:"at"`               // by the leader's clock
	Absent   []int     `json:"absent,omitempty"` // members that the leader did not wait for
}

const (
	memberLabel  = "watchlab.dev/member"  // number of the member; the start Lease lacks it
	barrierField = "watchlab.dev/barrier" // annotation with a Progress or a start, as JSON
)

// readProgress returns the progress of a member from its Lease. It returns false for another Lease.
func readProgress(l *coordinationv1.Lease) (member int, p Progress, ok bool) {
	member, err := strconv.Atoi(l.Labels[memberLabel])
	return member, p, err == nil && member >= 0 && json.Unmarshal([]byte(l.Annotations[barrierField]), &p) == nil
}

// leaseName returns the name of a member's Lease.
func leaseName(run string, member int) string {
	return fmt.Sprintf("watchlab-%s-member-%d", run, member)
}

func startName(run string) string { return "watchlab-" + run + "-start" }

// startLead returns the time from the write of a start to the start: 200 ms and 2 ms a member, at most 2 s.
func startLead(members int) time.Duration {
	return min(200*time.Millisecond+time.Duration(members)*2*time.Millisecond, 2*time.Second)
}

// Barrier is one member of the barrier. It is not safe for concurrent use.
type Barrier struct {
	opts     BarrierOptions
	cancel   context.CancelFunc
	watching sync.WaitGroup
	own      Progress     // last one written
	lost     map[int]bool // members that missed the timeout; the leader alone has other members

	mu       sync.Mutex       // guards the fields below
	progress map[int]Progress // of all members; the leader alone has it
	start    start
	changed  chan struct{} // closed and replaced at each change, of which the first is the list of the Leases
}

// JoinBarrier writes this member's Lease and lists those that it watches. It retries for [BarrierOptions].limit. The
// error is that of ctx or of the API server.
func JoinBarrier(ctx context.Context, opts BarrierOptions) (*Barrier, error) {
	b := &Barrier{
		opts: opts, own: Progress{Position: -1, Plays: opts.Plays}, lost: map[int]bool{},
		progress: map[int]Progress{}, start: start{Position: -1}, changed: make(chan struct{}),
	}
	if err := b.report(ctx); err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	b.cancel = cancel
	listed := b.changed
	b.watch(watching)
	select {
	case <-listed:
		return b, nil
	case <-time.After(opts.limit()):
		b.Leave()
		return nil, fmt.Errorf("barrier: %s could not list Leases within %v", member(opts.Self), opts.limit())
	case <-ctx.Done():
		b.Leave()
		return nil, ctx.Err()
	}
}

// Leave ends the watch.
func (b *Barrier) Leave() {
	b.cancel()
	b.watching.Wait()
}

// Meet waits until all members are ready for the position, and then for the start. play describes the
// play in progress reports. The result says how late the start was, and without whom. The error is that of ctx.
func (b *Barrier) Meet(ctx context.Context, position int, play string) (lab.Start, error) {
	leads, limit := b.opts.Self == leader, b.opts.Wait
	if !leads {
		limit = 2 * limit // The leader may itself wait for a member.
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	before := b.own.Position
	b.own.Position, b.own.Play = position, play
	err := b.report(ctx)
	if s, _, _, _ := b.look(position); s.Position >= before {
		delete(b.lost, leader) // It has caught up.
	}
	for late := false; err == nil; {
		s, absent, missing, changed := b.look(position)
		switch {
		case s.Position >= position:
			return b.begin(ctx, s)
		case leads && (late || len(missing) == 0):
			for _, m := range missing {
				b.lost[m] = true
				b.opts.Warn(fmt.Sprintf("%s missed the barrier timeout %v and is skipped", member(m), limit))
			}
			s = start{Position: position, At: time.Now().Add(startLead(b.opts.Pods)), Absent: absent}
			if err = b.apply(ctx, startName(b.opts.Run), map[string]string{}, s); err == nil {
				return b.begin(ctx, s)
			}
			continue
		case !leads && b.lost[leader]:
			return b.alone(), nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			if late = true; !leads {
				b.lost[leader] = true
				b.opts.Warn(fmt.Sprintf("%s missed the barrier timeout %v: %s continues alone", member(leader), limit, member(b.opts.Self)))
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return lab.Start{}, ctx.Err()
	}
	b.opts.Warn(fmt.Sprintf("%v: %s starts alone", err, play))
	return b.alone(), nil
}

// alone returns the start of a member that waits for no other.
func (b *Barrier) alone() (s lab.Start) {
	for m := range b.opts.Pods {
		if m != b.opts.Self {
			s.Absent = append(s.Absent, m)
		}
	}
	return s
}

// begin waits for a start.
func (b *Barrier) begin(ctx context.Context, s start) (lab.Start, error) {
	// A slow clock must not delay the start by more than the announcement lead.
	select {
	case <-time.After(min(time.Until(s.At), startLead(b.opts.Pods))):
	case <-ctx.Done():
		return lab.Start{}, ctx.Err()
	}
	absent := slices.DeleteFunc(slices.Clone(s.Absent), func(m int) bool { return m == b.opts.Self })
	return lab.Start{Late: max(time.Since(s.At), 0), Absent: absent}, nil
}

// look returns the last start; for the leader also the members below the position, and those of them to
// wait for. changed is closed when the result may differ.
func (b *Barrier) look(position int) (s start, absent, missing []int, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for m := 1; b.opts.Self == leader && m < b.opts.Pods; m++ {
		p, joined := b.progress[m]
		switch {
		case joined && p.Position >= position:
			delete(b.lost, m)
			continue
		case !b.lost[m]:
			missing = append(missing, m)
		}
		absent = append(absent, m)
	}
	return b.start, absent, missing, b.changed
}

func (b *Barrier) report(ctx context.Context) error {
	return b.apply(ctx, leaseName(b.opts.Run, b.opts.Self), map[string]string{memberLabel: strconv.Itoa(b.opts.Self)}, b.own)
}

const requestLimit = 10 * time.Second // timeout of one attempt

// apply writes a Lease by server-side apply, whatever its version. It retries for [BarrierOptions].limit.
func (b *Barrier) apply(ctx context.Context, name string, label map[string]string, content any) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.limit())
	defer cancel()
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	label["app.kubernetes.io/name"], label["app.kubernetes.io/component"], label[RunLabel] = "watchlab", "barrier", b.opts.Run
	data, err := json.Marshal(map[string]any{"apiVersion": coordinationv1.SchemeGroupVersion.String(), "kind": "Lease", "metadata": map[string]any{
		"name": name, "labels": label, "annotations": map[string]string{barrierField: string(text)},
	}})
	if err != nil {
		return err
	}
	var last error
	backoff := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 5, Cap: 4 * time.Second}
	err = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		_, last = b.opts.Leases.Patch(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: Manager, Force: new(true)})
		if apierrors.IsForbidden(last) || apierrors.IsUnauthorized(last) || apierrors.IsInvalid(last) || apierrors.IsBadRequest(last) {
			return false, last // A retry cannot help.
		}
		return last == nil, nil
	})
	if err != nil {
		err = fmt.Errorf("barrier: %s could not write %s: %w", member(b.opts.Self), name, cmp.Or(last, err))
	}
	return err
}

// watch follows the Leases of the run: the leader all, other members the start Lease.
func (b *Barrier) watch(ctx context.Context) {
	limit := func(opts *metav1.ListOptions) {
		if b.opts.Self == leader {
			opts.LabelSelector = labels.Set{RunLabel: b.opts.Run}.String()
		} else {
			opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, startName(b.opts.Run)).String()
		}
	}
	r := cache.NewReflectorWithOptions(cluster.ListWatch(b.opts.Leases, limit, b.opts.Leases), &coordinationv1.Lease{}, leaseStore{b}, cache.ReflectorOptions{
		Name: "barrier",
		// Other members wait, so keep the backoff short; client-go's goes up to 1 min.
		Backoff: &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 4 * time.Second},
	})
	b.watching.Go(func() { r.RunWithContext(ctx) })
}

// leaseStore parses the Leases. A member whose Lease was deleted keeps its position.
type leaseStore struct{ b *Barrier }

func (h leaseStore) Add(o any) error    { return h.Replace([]any{o}, "") }
func (h leaseStore) Update(o any) error { return h.Replace([]any{o}, "") }
func (h leaseStore) Delete(any) error   { return nil }
func (h leaseStore) Resync() error      { return nil }
func (h leaseStore) Replace(leases []any, _ string) error {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range leases {
		l, ok := o.(*coordinationv1.Lease)
		if !ok || l.Labels[RunLabel] != b.opts.Run {
			continue
		}
		if member, p, ok := readProgress(l); ok {
			b.progress[member] = p
		} else if l.Name == startName(b.opts.Run) {
			var s start
			// A resumed watch may deliver an older start.
			if json.Unmarshal([]byte(l.Annotations[barrierField]), &s) == nil && s.Position >= b.start.Position {
				b.start = s
			}
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}
