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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"

	"watchlab/loadgen/storm"
)

// ErrMissed is wrapped by the error for what a cluster has and a [Tee] has not
// heard.
var ErrMissed = errors.New("not heard")

// state is the newest that is known of a key.
type state struct {
	uid     types.UID
	version string

	gone bool
}

// census is what a cluster had of a resource at a version.
type census struct {
	version string
	objects map[string]state
}

// counter takes a census.
type counter func(context.Context) (census, error)

// newCounter counts the objects of a resource by their metadata, in pages.
func newCounter(c *Cluster, r Resource, s Scope) (counter, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	const page = 1000
	return func(ctx context.Context) (census, error) {
		opts := metav1.ListOptions{LabelSelector: s.Selector, Limit: page}
		got := census{objects: make(map[string]state)}
		for {
			list, err := client.Resource(r.GroupVersionResource).Namespace(s.Namespace).List(ctx, opts)
			if err != nil {
				return census{}, err
			}
			for i := range list.Items {
				m := &list.Items[i].ObjectMeta
				got.objects[storm.ObjectKey(m.Namespace, m.Name)] = state{uid: m.UID, version: m.ResourceVersion}
			}

			if got.version = list.ResourceVersion; list.Continue == "" {
				return got, nil
			}
			opts.Continue = list.Continue
		}
	}, nil
}

// Audit asks the cluster what it has, by one list of metadata, and returns when the
// Tee has heard all of that, or of what came after it. It tries again where the
// cluster does not answer. Where ctx ends first, the error says what was missing and
// wraps [ErrMissed], or says why the cluster could not be asked. A Tee that was not
// made by [NewTee] has nothing to ask, and Audit returns nil.
//
// Time: O(objects) for each look, of which there are up to twenty a second.
func (t *Tee) Audit(ctx context.Context) error {
	if t.count == nil {
		return nil
	}
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	var there *census
	for {
		var err error
		if there == nil {
			var c census
			if c, err = t.count(ctx); err == nil {
				there = &c
			}
		}
		if there != nil {
			missing := t.missing(*there)
			if len(missing) == 0 {
				return nil
			}
			const most = 3
			err = fmt.Errorf("%w: %d of %d objects of the cluster, such as %s", ErrMissed, len(missing), len(there.objects), strings.Join(missing[:min(most, len(missing))], ", "))
		}
		switch {
		case apierrors.IsForbidden(err) && there == nil && ctx.Err() == nil && !t.line.sofar().Down:
			// Right after its start, an API server may forbid what it doesn't know the
			// rules of yet; but a watch stands.
			return fmt.Errorf("cluster: audit: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("cluster: audit: %w", errors.Join(err, ctx.Err()))
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("cluster: audit: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// missing names the keys of which the Tee has not heard what the census says, in
// their order.
func (t *Tee) missing(there census) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []string
	for key, s := range there.objects {
		if heard, ok := t.heard[key]; !ok || older(heard.version, s.version) || heard.version == s.version && (heard.gone || heard.uid != s.uid) {
			missing = append(missing, key)
		}
	}
	for key, heard := range t.heard {
		// What isn't there any more was heard of before; what isn't there yet, after.
		if _, ok := there.objects[key]; !ok && !heard.gone && !older(there.version, heard.version) {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	return missing
}

// older reports whether version a is before b. Versions that are no numbers cannot
// be ordered, and each is older than every other.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order < 0
}
