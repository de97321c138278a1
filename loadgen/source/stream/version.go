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

// Start is the beginning of a watch: the events after position At, or before them
// the State at it, with a bookmark after that if Mark is set.
type Start struct {
	At    uint64
	State bool
	Mark  bool
}

// Bounds are the positions that a client may ask for: up to Visible, and from
// Oldest. First is the position of the oldest state.
type Bounds struct {
	// Visible is the newest.
	Visible uint64
	Oldest  uint64
	First   uint64
}

// Start reads the options of a watch, as an API server does
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch):
//
//   - a version n: the events after n.
//   - no version: the present state, then events.
//   - "0", any state: the oldest state, then events. That is the initial list of
//     the storm, or the oldest position that is retained. (An API server returns
//     the state of its cache. With the oldest, a client misses nothing that got
//     "0" from the list of a storm without an initial list.)
//   - with sendInitialEvents: the present state, an annotated bookmark where
//     bookmarks are allowed, then events.
//   - sendInitialEvents=false without a version: events from now on.
//
// The error is an [apierrors.StatusError]: 500 without a reason for a version that
// is not a number, Expired for one that is not retained, and a Timeout with the
// cause ResourceVersionTooLarge for one in the future. (An API server lets a watch
// from the future wait.)
func (b Bounds) Start(version string, sendInitialEvents *bool, bookmarks bool) (Start, error) {
	n, err := parse(version)
	if err != nil {
		return Start{}, err
	}
	switch {
	case n > b.Visible:
		return Start{}, tooLarge(n, b.Visible)
	case sendInitialEvents != nil && *sendInitialEvents:
		return Start{At: b.Visible, State: true, Mark: bookmarks}, nil
	case n > 0 && n < b.Oldest:
		return Start{}, TooOld(n, b.Oldest)
	case n > 0:
		return Start{At: n}, nil
	case sendInitialEvents != nil:
		return Start{At: b.Visible}, nil
	case version == "":
		return Start{At: b.Visible, State: true}, nil
	default:
		// Position 0 has no state.
		at := max(b.First, b.Oldest)
		return Start{At: at, State: at > 0}, nil
	}
}

// ListAt returns the position whose state a list returns: the version where match
// is Exact, else the present. Errors are those of Start, except that a version
// that is not a number is a BadRequest.
func (b Bounds) ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error) {
	n, err := parse(version)
	switch {
	case err != nil:
		return 0, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	case n > b.Visible:
		return 0, tooLarge(n, b.Visible)
	case match != metav1.ResourceVersionMatchExact:
		return b.Visible, nil
	case n < b.Oldest:
		return 0, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	default:
		return n, nil
	}
}

// TooOld returns the error for a watch from a version that is no longer retained,
// in the words of k8s.io/apiserver's watch cache.
func TooOld(n, oldest uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", n, oldest))
}

// CheckVersion refuses an invalid version with 500 and no reason, as an API server
// does for GET and WATCH.
func CheckVersion(version string) error {
	_, err := parse(version)
	return err
}

// parse returns the position of a version; an empty one is 0.
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

// tooLarge returns the error of k8s.io/apiserver's storage package (v0.37,
// NewTooLargeResourceVersionError), which makes client-go list without a version.
func tooLarge(n, visible uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", n, visible), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}
