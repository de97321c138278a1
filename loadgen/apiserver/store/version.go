package store

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Start is the start of a watch.
type Start struct {
	At    uint64 // the position after which events follow
	State bool   // the watch first gets the state at At, as ADDED events
	Mark  bool   // an annotated bookmark follows the state
}

// Bounds are the positions that a client may request: from Oldest to Visible.
type Bounds struct {
	Visible uint64 // the newest position
	Newest  uint64 // versions up to it, which other resources have, mean Visible
	Oldest  uint64 // the oldest retained position
	// First is the position of the oldest state, such as the initial list. A watch from any
	// state starts there, or at Oldest if that is newer.
	First uint64
}

// Start interprets the options of a watch, like an API server
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch):
//
//   - version n: the events after n.
//   - no version: the current state, an annotated bookmark if bookmarks are allowed, then events.
//   - "0", any state: the oldest state, the bookmark, then events. That is the initial list of the
//     storm, or the oldest retained position. (An API server returns the state of its
//     cache. The oldest state ensures that a client misses no event if a storm has no
//     initial list and its list returned "0".)
//   - sendInitialEvents: as without a version.
//   - sendInitialEvents=false without a version: events from now on.
//
// The error is an [apierrors.StatusError]. An invalid number is a 500 without a reason. A
// version that is not retained is Expired. A future version is a Timeout with the cause
// ResourceVersionTooLarge. (An API server lets a watch from the future wait.)
func (b Bounds) Start(version string, sendInitialEvents *bool, bookmarks bool) (Start, error) {
	n, err := ParseVersion(version)
	if err != nil {
		return Start{}, err
	}
	newest := max(b.Visible, b.Newest)
	switch {
	case n > newest:
		return Start{}, tooLarge(n, newest)
	case sendInitialEvents != nil && *sendInitialEvents:
		return Start{At: b.Visible, State: true, Mark: bookmarks}, nil
	case n > 0 && n < b.Oldest:
		return Start{}, TooOld(n, b.Oldest)
	case n > 0:
		return Start{At: min(n, b.Visible)}, nil
	case sendInitialEvents != nil:
		return Start{At: b.Visible}, nil
	case version == "":
		return Start{At: b.Visible, State: true, Mark: bookmarks}, nil
	default:
		// Position 0 has no state.
		at := max(b.First, b.Oldest)
		return Start{At: at, State: at > 0, Mark: at > 0 && bookmarks}, nil
	}
}

// ListAt returns the position of a list: the version if match is Exact, else the current
// position. Errors are those of Start, except that an invalid number is a BadRequest.
func (b Bounds) ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error) {
	n, err := ParseVersion(version)
	newest := max(b.Visible, b.Newest)
	switch {
	case err != nil:
		return 0, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	case n > newest:
		return 0, tooLarge(n, newest)
	case match != metav1.ResourceVersionMatchExact:
		return b.Visible, nil
	case n < b.Oldest:
		return 0, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	default:
		return min(n, b.Visible), nil
	}
}

// TooOld returns the error for a watch from a version that is no longer retained. Its text is
// that of k8s.io/apiserver's watch cache.
func TooOld(n, oldest uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", n, oldest))
}

// ParseVersion returns the position of a version; the empty version is 0. The error for an
// invalid one has status 500 and no reason, as an API server's for GET and WATCH.
func ParseVersion(version string) (uint64, error) {
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

// tooLarge returns the error of k8s.io/apiserver's storage package (v0.37,
// NewTooLargeResourceVersionError). It makes client-go list without a version.
func tooLarge(n, visible uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", n, visible), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}
