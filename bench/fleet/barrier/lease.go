package barrier

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/loadgen/source/cluster"
)

// What the Leases of a run have. [cluster.RunLabel] is on each of them, with the run's
// name.
const (
	// MemberLabel is on the Lease of a member: "shard-2" or "writer-0". That of the
	// starts hasn't got it.
	MemberLabel = "watchlab.dev/member"

	positionAnnotation = "watchlab.dev/position"
	playAnnotation     = "watchlab.dev/play"
	playsAnnotation    = "watchlab.dev/plays"
	leftAnnotation     = "watchlab.dev/left"
	atAnnotation       = "watchlab.dev/at"
	absentAnnotation   = "watchlab.dev/absent"

	// What stands in leftAnnotation.
	leftDone, leftFailed = "done", "failed"
)

// LeaseName is the name of a member's Lease.
func LeaseName(run string, m Member) string {
	if m.Writer {
		return fmt.Sprintf("watchlab-%s-writer-%d", run, m.Index)
	}
	return fmt.Sprintf("watchlab-%s-%d", run, m.Index)
}

// StartName is the name of the Lease with the starts.
func StartName(run string) string { return "watchlab-" + run + "-start" }

// Place is how far a member is.
type Place struct {
	Member

	Holder  string
	Attempt int

	Position, Plays int
	Play            string

	Left, Done bool

	Since time.Time
}

// String returns a few words, such as "play 12 of 40, round 2 of Queue/impl=cond".
func (p Place) String() string {
	switch {
	case p.Done:
		return "done"
	case p.Left:
		return "left"
	case p.Position < 0:
		return "joined"
	}
	return fmt.Sprintf("play %d of %d, %s", p.Position+1, p.Plays, p.Play)
}

// Read reads a member's Lease; false where it is none.
func Read(l *coordinationv1.Lease) (Place, bool) {
	kind, index, _ := strings.Cut(l.Labels[MemberLabel], "-")
	i, err := strconv.Atoi(index)
	if err != nil || kind != "shard" && kind != "writer" {
		return Place{}, false
	}
	position, err := strconv.Atoi(l.Annotations[positionAnnotation])
	if err != nil {
		return Place{}, false
	}
	p := Place{
		Member: Member{Writer: kind == "writer", Index: i}, Position: position, Play: l.Annotations[playAnnotation],
		Holder: value(l.Spec.HolderIdentity), Attempt: int(value(l.Spec.LeaseTransitions)),
		Since: value(l.Spec.RenewTime).Time,
	}
	p.Plays, _ = strconv.Atoi(l.Annotations[playsAnnotation])
	left := l.Annotations[leftAnnotation]
	p.Left, p.Done = left != "", left == leftDone
	return p, true
}

// put writes a place into its Lease.
func (p Place) put(l *coordinationv1.Lease) {
	l.Annotations = map[string]string{
		positionAnnotation: strconv.Itoa(p.Position), playsAnnotation: strconv.Itoa(p.Plays), playAnnotation: p.Play,
	}
	if p.Left {
		l.Annotations[leftAnnotation] = leftFailed
	}
	if p.Done {
		l.Annotations[leftAnnotation] = leftDone
	}
	now := metav1.NowMicro()
	l.Spec.RenewTime = &now
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions = &p.Holder, new(int32(p.Attempt))
}

// value is what p points to, the zero value where that is nowhere.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// start is what the start Lease says.
type start struct {
	position int
	at       time.Time
	absent   []Member

	left bool
}

// readStart reads the start Lease; false where it is none.
func readStart(l *coordinationv1.Lease) (start, bool) {
	position, err := strconv.Atoi(l.Annotations[positionAnnotation])
	if err != nil {
		return start{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, l.Annotations[atAnnotation])
	if err != nil {
		return start{}, false
	}
	s := start{position: position, at: at, left: l.Annotations[leftAnnotation] != ""}
	for _, text := range strings.Fields(l.Annotations[absentAnnotation]) {
		kind, index, _ := strings.Cut(text, "-")
		if i, err := strconv.Atoi(index); err == nil {
			s.absent = append(s.absent, Member{Writer: kind == "writer", Index: i})
		}
	}
	return s, true
}

func (s start) put(l *coordinationv1.Lease, holder string) {
	absent := make([]string, len(s.absent))
	for i, m := range s.absent {
		absent[i] = label(m)
	}
	l.Annotations = map[string]string{
		positionAnnotation: strconv.Itoa(s.position), atAnnotation: s.at.Format(time.RFC3339Nano),
		absentAnnotation: strings.Join(absent, " "),
	}
	if s.left {
		l.Annotations[leftAnnotation] = leftDone
	}
	now := metav1.NowMicro()
	l.Spec.RenewTime, l.Spec.HolderIdentity = &now, &holder
}

// label names a member as labels and annotations have it.
func label(m Member) string {
	if m.Writer {
		return "writer-" + strconv.Itoa(m.Index)
	}
	return "shard-" + strconv.Itoa(m.Index)
}

// take makes this member's Lease, or takes it over from the process before it.
func (b *Barrier) take(ctx context.Context) error {
	o := b.opts
	p := Place{Member: o.Self, Holder: o.Holder, Position: -1, Plays: o.Plays}
	sent := false
	return b.try(ctx, "join", func(ctx context.Context) error {
		l, err := b.leases.Get(ctx, LeaseName(o.Run, o.Self), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			l = b.lease(LeaseName(o.Run, o.Self))
			l.Labels[MemberLabel] = label(o.Self)
			p.put(l)
			sent = true
			l, err = b.leases.Create(ctx, l, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return errAgain
			}
		case err == nil:
			before, _ := Read(l)
			if p.Attempt = before.Attempt + 1; sent && before.Holder == o.Holder {

				p.Attempt = before.Attempt
			}
			p.put(l)
			sent = true
			l, err = b.leases.Update(ctx, l, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				return errAgain
			}
		}
		if err == nil {
			b.own, b.attempt = l, p.Attempt
		}
		return err
	})
}

func (b *Barrier) lease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			"app.kubernetes.io/name": "watchlab", "app.kubernetes.io/component": "barrier", cluster.RunLabel: b.opts.Run,
		},
	}}
}

// tell writes where this member is into its Lease.
func (b *Barrier) tell(ctx context.Context, edit func(*Place)) error {
	p, _ := Read(b.own)
	edit(&p)
	return b.try(ctx, "say where it is", func(ctx context.Context) error {
		l := b.own.DeepCopy()
		p.put(l)
		updated, err := b.leases.Update(ctx, l, metav1.UpdateOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w: the Lease of %v was deleted", ErrReplaced, b.opts.Self)
		case apierrors.IsConflict(err):

			now, err := b.leases.Get(ctx, l.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if other, ok := Read(now); !ok || other.Holder != p.Holder || other.Attempt != p.Attempt {
				return fmt.Errorf("%w: %v is %s now", ErrReplaced, b.opts.Self, other.Holder)
			}
			b.own = now
			return errAgain
		case err == nil:
			b.own = updated
		}
		return err
	})
}

// announce writes a start. One that is further, which another process in this place
// has written, stays.
func (b *Barrier) announce(ctx context.Context, s start) error {
	o := b.opts
	return b.try(ctx, "tell the start", func(ctx context.Context) error {
		l, err := b.leases.Get(ctx, StartName(o.Run), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			l = b.lease(StartName(o.Run))
			s.put(l, o.Holder)
			_, err = b.leases.Create(ctx, l, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return errAgain
			}
		case err == nil:
			if before, ok := readStart(l); ok && before.position > s.position {
				return fmt.Errorf("%w: %s has started play %d", ErrReplaced, value(l.Spec.HolderIdentity), before.position+1)
			}
			s.put(l, o.Holder)
			_, err = b.leases.Update(ctx, l, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				return errAgain
			}
		}
		return err
	})
}

// errAgain has a request made again at once.
var errAgain = errors.New("others write at the same time")

// requestLimit is how long one attempt may take.
const requestLimit = 10 * time.Second

// try does what may fail for a while, until it doesn't or Wait is over. The error
// is ctx's, wraps [ErrReplaced], or is the last that there was.
func (b *Barrier) try(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Wait)
	defer cancel()
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 4*time.Second) {
		attempt, done := context.WithTimeout(ctx, requestLimit)
		err := do(attempt)
		done()
		switch {
		case err == nil || errors.Is(err, ErrReplaced):
			return err
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
			// It will not pass.
			return fmt.Errorf("barrier: %v could not %s: %w", b.opts.Self, what, err)
		case errors.Is(err, errAgain):
			pause = 10 * time.Millisecond
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("barrier: %v could not %s: %w", b.opts.Self, what, err)
		}
	}
}
