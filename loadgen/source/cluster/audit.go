package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"

	"watchlab/loadgen/storm"
)

// ErrMissed is wrapped by the error for objects of a cluster that a [Tee] has not received.
var ErrMissed = errors.New("not received")

// state is the last known state of a key.
type state struct {
	Version
	deleted bool // the object was deleted, at that version
}

// inventory is the state of all objects of a resource at a version.
type inventory struct {
	version string
	objects map[string]Version
}

type lister func(context.Context) (inventory, error)

// newLister returns a lister for the metadata of a resource's objects, in pages.
func newLister(c *Cluster, r Resource, s Scope) (lister, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	const page = 1000
	return func(ctx context.Context) (inventory, error) {
		opts := metav1.ListOptions{LabelSelector: s.Selector, Limit: page}
		got := inventory{objects: make(map[string]Version)}
		for {
			list, err := client.Resource(r.GroupVersionResource).Namespace(s.Namespace).List(ctx, opts)
			if err != nil {
				return inventory{}, err
			}
			for i := range list.Items {
				m := &list.Items[i].ObjectMeta
				got.objects[storm.ObjectKey(m.Namespace, m.Name)] = Version{m.UID, m.ResourceVersion}
			}
			// All pages have the version of the first page.
			if got.version = list.ResourceVersion; list.Continue == "" {
				return got, nil
			}
			opts.Continue = list.Continue
		}
	}, nil
}

// Audit lists the metadata of the cluster's objects once. It returns when the Tee has received
// each listed version or a later one. A failed list is retried. If ctx ends first, the error
// names the missing objects and wraps [ErrMissed], or is the error of the list.
//
// It compares at most twenty times per second, in O(objects).
func (t *Tee) Audit(ctx context.Context) error {
	if t.inventory == nil {
		return nil
	}
	var want *inventory
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if want == nil {
			got, err := t.inventory(ctx)
			if last = err; apierrors.IsForbidden(err) && ctx.Err() == nil && !t.link.breaks().Down {
				// A starting API server may answer Forbidden to all requests, although the
				// watch is established.
				return false, err
			}
			if err != nil {
				return false, nil //nolint:nilerr // The next poll tries again.
			}
			want = &got
		}
		missing := t.missing(*want)
		const most = 3
		last = fmt.Errorf("%w: %d of %d objects of the cluster, such as %s", ErrMissed, len(missing), len(want.objects), strings.Join(missing[:min(most, len(missing))], ", "))
		return len(missing) == 0, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return fmt.Errorf("cluster: audit: %w", err)
	}
	return fmt.Errorf("cluster: audit: %w", errors.Join(last, ctx.Err()))
}

// missing returns the sorted keys whose version the Tee has not received.
func (t *Tee) missing(want inventory) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []string
	for key, s := range want.objects {
		got, ok := t.received[key]
		if !ok || older(got.ResourceVersion, s.ResourceVersion) ||
			got.ResourceVersion == s.ResourceVersion && (got.deleted || got.UID != s.UID) {
			missing = append(missing, key)
		}
	}
	for key, got := range t.received {
		// A key that the list lacks was deleted before the list or created after it.
		if _, ok := want.objects[key]; !ok && !got.deleted && !older(want.version, got.ResourceVersion) {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	return missing
}

// older reports whether version a is before b. Versions that are not numbers have no order:
// each counts as older than every other.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order < 0
}
