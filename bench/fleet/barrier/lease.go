package barrier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"watchlab/loadgen/source/cluster"
)

const (
	MemberLabel = "watchlab.dev/member" // member, "pod-2" or "writer-0"; the start Lease lacks it
	// barrierAnnotation holds a [Progress] or, in the start Lease, a start, as JSON.
	barrierAnnotation = "watchlab.dev/barrier"
)

// LeaseName returns the name of a member's Lease.
func LeaseName(run string, m Member) string {
	if m.Writer {
		return fmt.Sprintf("watchlab-%s-writer-%d", run, m.Index)
	}
	return fmt.Sprintf("watchlab-%s-%d", run, m.Index)
}

func startName(run string) string { return "watchlab-" + run + "-start" }

// MarshalText returns "pod-2" or "writer-0", for labels and annotations.
func (m Member) MarshalText() ([]byte, error) {
	return []byte(strings.Replace(m.String(), " ", "-", 1)), nil
}

// UnmarshalText parses the form of MarshalText.
func (m *Member) UnmarshalText(text []byte) error {
	kind, index, _ := strings.Cut(string(text), "-")
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || kind != "pod" && kind != "writer" {
		return fmt.Errorf("no member of the barrier: %q", text)
	}
	*m = Member{Writer: kind == "writer", Index: i}
	return nil
}

// Progress is the progress of a member, as stored in its Lease.
type Progress struct {
	Member   Member `json:"-"`
	Holder   string `json:"-"`                 // name of its pod
	Attempt  int    `json:"-"`                 // earlier processes with this Lease
	Position int    `json:"position"`          // current play; -1 before the first
	Plays    int    `json:"plays"`             // number of all plays
	Play     string `json:"play,omitempty"`    // describes the current one
	Refused  int64  `json:"refused,omitempty"` // writes of a writer that the API server rejected so far
	Left     bool   `json:"left,omitempty"`    // the member has left the barrier
	Done     bool   `json:"done,omitempty"`    // it left because it finished
}

// String returns a summary such as "play 12 of 40, round 2 of Queue/impl=cond".
func (p Progress) String() string {
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
func Read(l *coordinationv1.Lease) (Progress, bool) {
	var p Progress
	if json.Unmarshal([]byte(l.Annotations[barrierAnnotation]), &p) != nil || p.Member.UnmarshalText([]byte(l.Labels[MemberLabel])) != nil {
		return Progress{}, false
	}
	p.Holder, p.Attempt = ptr.Deref(l.Spec.HolderIdentity, ""), int(ptr.Deref(l.Spec.LeaseTransitions, 0))
	return p, true
}

func (p Progress) put(l *coordinationv1.Lease) {
	annotate(l, p.Holder, p)
	l.Spec.LeaseTransitions = new(int32(p.Attempt))
}

// start is the content of the start Lease.
type start struct {
	Position int       `json:"position"`          // started position; -1 before the first
	At       time.Time `json:"at"`                // start time by the leader's clock
	Absent   []Member  `json:"absent,omitempty"`  // skipped members
	Refused  int64     `json:"refused,omitempty"` // of all writers
	Left     bool      `json:"left,omitempty"`    // the leader has left, so there are no further starts
}

// readStart parses the start Lease. It returns false for another Lease.
func readStart(l *coordinationv1.Lease) (start, bool) {
	var s start
	err := json.Unmarshal([]byte(l.Annotations[barrierAnnotation]), &s)
	return s, err == nil
}

func annotate(l *coordinationv1.Lease, holder string, content any) {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err) // Progress and start have plain fields only.
	}
	l.Annotations = map[string]string{barrierAnnotation: string(text)}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, new(metav1.NowMicro())
}

// take creates this member's Lease, or takes it over from its predecessor.
func (b *Barrier) take(ctx context.Context) error {
	o := b.opts
	p := Progress{Member: o.Self, Holder: o.Holder, Position: -1, Plays: o.Plays}
	sent := false
	l, err := b.write(ctx, "join", LeaseName(o.Run, o.Self), nil, func(l *coordinationv1.Lease, exists bool) error {
		if before, _ := Read(l); exists {
			p.Attempt = before.Attempt + 1
			if sent && before.Holder == o.Holder {
				// This process wrote the Lease, but the response was lost.
				p.Attempt = before.Attempt
			}
		}
		member, err := o.Self.MarshalText()
		l.Labels[MemberLabel], sent = string(member), true
		p.put(l)
		return err
	})
	b.own, b.attempt = l, p.Attempt
	return err
}

func (b *Barrier) report(ctx context.Context, edit func(*Progress)) error {
	p, _ := Read(b.own)
	edit(&p)
	l, err := b.write(ctx, "report its position", b.own.Name, b.own, func(l *coordinationv1.Lease, exists bool) error {
		switch other, ok := Read(l); {
		case !exists:
			return fmt.Errorf("%w: the Lease of %v was deleted", ErrReplaced, b.opts.Self)
		case !ok || other.Holder != p.Holder || other.Attempt != p.Attempt:
			return fmt.Errorf("%w: %s owns the Lease of %v", ErrReplaced, other.Holder, b.opts.Self)
		}
		p.put(l)
		return nil
	})
	if err == nil {
		b.own = l
	}
	return err
}

// announce writes a start. It keeps a later start, written by a successor.
func (b *Barrier) announce(ctx context.Context, s start) error {
	_, err := b.write(ctx, "announce the start", startName(b.opts.Run), nil, func(l *coordinationv1.Lease, _ bool) error {
		if before, ok := readStart(l); ok && before.Position > s.Position {
			return fmt.Errorf("%w: %s has started play %d", ErrReplaced, ptr.Deref(l.Spec.HolderIdentity, ""), before.Position+1)
		}
		annotate(l, b.opts.Holder, s)
		return nil
	})
	return err
}

const requestLimit = 10 * time.Second // timeout of one attempt

// write creates or updates a Lease and returns it. edit receives the known version of the Lease;
// without one, and after an error, the API server's. write retries for at most Wait. The error is
// that of edit or ctx, or the API server's last one.
func (b *Barrier) write(ctx context.Context, what, name string, known *coordinationv1.Lease, edit func(l *coordinationv1.Lease, exists bool) error) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Wait)
	defer cancel()
	attempt := func(ctx context.Context) (*coordinationv1.Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		l := known.DeepCopy()
		known = nil
		if l == nil {
			var err error
			if l, err = b.opts.Leases.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
				l = b.newLease(name)
				if err := edit(l, false); err != nil {
					return nil, err
				}
				return b.opts.Leases.Create(ctx, l, metav1.CreateOptions{})
			} else if err != nil {
				return nil, err
			}
		}
		if err := edit(l, true); err != nil {
			return nil, err
		}
		return b.opts.Leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	var written *coordinationv1.Lease
	var last error
	backoff := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 5, Cap: 4 * time.Second}
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		written, last = attempt(ctx)
		for ctx.Err() == nil && (apierrors.IsConflict(last) || apierrors.IsAlreadyExists(last)) {
			written, last = attempt(ctx) // At once, with the new version.
		}
		if errors.Is(last, ErrReplaced) || apierrors.IsForbidden(last) || apierrors.IsUnauthorized(last) || apierrors.IsInvalid(last) || apierrors.IsBadRequest(last) {
			return false, last // A retry cannot help.
		}
		return last == nil, nil
	})
	switch {
	case err == nil, errors.Is(last, ErrReplaced):
		return written, last
	case last == nil:
		last = err // ctx had ended before the first attempt.
	}
	return nil, fmt.Errorf("barrier: %v could not %s: %w", b.opts.Self, what, last)
}

func (b *Barrier) newLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			"app.kubernetes.io/name": "watchlab", "app.kubernetes.io/component": "barrier", cluster.RunLabel: b.opts.Run,
		},
	}}
}
