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

// Labels and annotations of the Leases of a run. All carry [cluster.RunLabel].
const (
	// MemberLabel holds the member, "pod-2" or "writer-0". The start Lease lacks it.
	MemberLabel = "watchlab.dev/member"

	positionAnnotation = "watchlab.dev/position"
	playAnnotation     = "watchlab.dev/play"
	playsAnnotation    = "watchlab.dev/plays"
	leftAnnotation     = "watchlab.dev/left"
	atAnnotation       = "watchlab.dev/at"
	absentAnnotation   = "watchlab.dev/absent"

	// Values of leftAnnotation.
	leftDone, leftFailed = "done", "failed"
)

// LeaseName returns the name of a member's Lease.
func LeaseName(run string, m Member) string {
	if m.Writer {
		return fmt.Sprintf("watchlab-%s-writer-%d", run, m.Index)
	}
	return fmt.Sprintf("watchlab-%s-%d", run, m.Index)
}

// StartName returns the name of the start Lease.
func StartName(run string) string { return "watchlab-" + run + "-start" }

// Place is the progress of a member, as stored in its Lease.
type Place struct {
	Member
	// Holder is the name of its pod. Attempt is the number of earlier processes with
	// this Lease.
	Holder  string
	Attempt int
	// Position is the current play, or -1 before the first; Plays is the number of all
	// plays. Play describes the current one.
	Position, Plays int
	Play            string
	// Left: the member has left the barrier. Done: it left because it finished.
	Left, Done bool
	// Since is the time of the last update.
	Since time.Time
}

// String returns a summary such as "play 12 of 40, round 2 of Queue/impl=cond".
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

// Read parses a member's Lease. It returns false for another Lease.
func Read(l *coordinationv1.Lease) (Place, bool) {
	kind, index, _ := strings.Cut(l.Labels[MemberLabel], "-")
	i, err := strconv.Atoi(index)
	if err != nil || kind != "pod" && kind != "writer" {
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

// put writes the place into its Lease.
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

// value returns *p, or the zero value for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// start is the content of the start Lease.
type start struct {
	// position is the started position, or -1 before the first. at is the start time by
	// the leader's clock. absent are the skipped members.
	position int
	at       time.Time
	absent   []Member
	// left: the leader has left, so there are no further starts.
	left bool
}

// readStart parses the start Lease. It returns false for another Lease.
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

// label returns the text form of a member in labels and annotations.
func label(m Member) string {
	if m.Writer {
		return "writer-" + strconv.Itoa(m.Index)
	}
	return "pod-" + strconv.Itoa(m.Index)
}

// take creates this member's Lease, or takes it over from its predecessor.
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
				// This process wrote the Lease, but the response was lost.
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

// tell updates this member's Lease.
func (b *Barrier) tell(ctx context.Context, edit func(*Place)) error {
	p, _ := Read(b.own)
	edit(&p)
	return b.try(ctx, "report its position", func(ctx context.Context) error {
		l := b.own.DeepCopy()
		p.put(l)
		updated, err := b.leases.Update(ctx, l, metav1.UpdateOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w: the Lease of %v was deleted", ErrReplaced, b.opts.Self)
		case apierrors.IsConflict(err):
			// Either this process wrote the Lease and the response was lost, or another
			// process wrote it.
			now, err := b.leases.Get(ctx, l.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if other, ok := Read(now); !ok || other.Holder != p.Holder || other.Attempt != p.Attempt {
				return fmt.Errorf("%w: %s owns the Lease of %v", ErrReplaced, other.Holder, b.opts.Self)
			}
			b.own = now
			return errAgain
		case err == nil:
			b.own = updated
		}
		return err
	})
}

// announce writes a start. It keeps a later start, written by a successor.
func (b *Barrier) announce(ctx context.Context, s start) error {
	o := b.opts
	return b.try(ctx, "announce the start", func(ctx context.Context) error {
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

// errAgain requests an immediate retry.
var errAgain = errors.New("concurrent write")

// requestLimit is the timeout of one attempt.
const requestLimit = 10 * time.Second

// try retries do until it succeeds or Wait has passed. The error is that of ctx, wraps
// [ErrReplaced], or is the last one of do.
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
			// A retry cannot help.
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
