package stream

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Start is where a watch starts.
type Start struct {
	At uint64

	State bool

	Mark bool
}

// Bounds are the positions of a history that may be asked for.
type Bounds struct {
	Visible uint64

	Oldest uint64

	First uint64
}

// Start reads the options of a watch, as an API server does
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch):
//
//   - a version n: the events after n.
//   - no version: the present state, then events.
//   - "0", any state: the oldest there is, then events. The oldest is what was
//     there when the storm began, or at the edge of what is retained. (An API
//     server gives the state that its cache has. The oldest loses nothing to a
//     client that got "0" from the list of a storm without an initial list.)
//   - with sendInitialEvents: the present state, an annotated bookmark where
//     bookmarks are allowed, then events.
//   - sendInitialEvents=false without a version: events from now on.
//
// The error is an [apierrors.StatusError]: 500 without a reason for a version
// that is not a number, Expired for one that is not retained, a Timeout with the cause
// ResourceVersionTooLarge for one in the future. (An API server lets a watch
// from the future wait.)
func (b Bounds) Start(version string, sendInitialEvents *bool, bookmarks bool) (Start, error) {
	n, err := parse(version)
	if err != nil {
		return Start{}, err
	}
	visible := b.Visible
	if n > visible {
		return Start{}, tooLarge(n, visible)
	}
	switch {
	case sendInitialEvents != nil && *sendInitialEvents:
		return Start{At: visible, State: true, Mark: bookmarks}, nil
	case n > 0:
		if n < b.Oldest {
			return Start{}, TooOld(n, b.Oldest)
		}
		return Start{At: n}, nil
	case sendInitialEvents != nil:
		return Start{At: visible}, nil
	case version == "":
		return Start{At: visible, State: true}, nil
	default:
		at := max(b.First, b.Oldest)
		// At the very beginning there is nothing.
		return Start{At: at, State: at > 0}, nil
	}
}

// ListAt returns the position of which a list shows the state: the version
// itself where match is Exact, else the present one. Errors are those of Start,
// but a version that is not a number is a BadRequest.
func (b Bounds) ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error) {
	n, err := parse(version)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	visible := b.Visible
	switch {
	case n > visible:
		return 0, tooLarge(n, visible)
	case match != metav1.ResourceVersionMatchExact:
		return visible, nil
	case n < b.Oldest:
		return 0, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	default:
		return n, nil
	}
}

// TooOld is the error for a watch from a version that is no longer retained, as
// k8s.io/apiserver's watch cache words it.
func TooOld(n, oldest uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", n, oldest))
}

// CheckVersion refuses a version that is none, with 500 and no reason, as an API
// server refuses it in a GET and a WATCH.
func CheckVersion(version string) error {
	_, err := parse(version)
	return err
}

// parse returns the position that a version names; an empty one is 0.
func parse(version string) (uint64, error) {
	if version == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(version, 10, 64)
	if err == nil && n > math.MaxInt64 {
		err = errors.New("it is not a version of this server")
	}
	if err != nil {
		return 0, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: fmt.Sprintf("resourceVersion: Invalid value: %q: %v", version, err),
		}}
	}
	return n, nil
}

// tooLarge is the error of k8s.io/apiserver's storage package (v0.37,
// NewTooLargeResourceVersionError), by which client-go knows that it has to
// list without a version.
func tooLarge(n, visible uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", n, visible), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}
