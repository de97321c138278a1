package delivery

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// The labels of the ConfigMaps that results are in, and what stands in them.
const (
	// RunLabel is on every object of a run.
	RunLabel = "watchlab.dev/run"
	// ShardLabel is the index of the shard that a result is of. Only results have it.
	ShardLabel = "watchlab.dev/shard"
	// PartAnnotation says which part of how many it is, from 1: "2/3"; ParcelAnnotation
	// tells the parcel from others; OfAnnotation is how many shards there are.
	PartAnnotation   = "watchlab.dev/part"
	ParcelAnnotation = "watchlab.dev/parcel"
	OfAnnotation     = "watchlab.dev/of"
	// dataKey is the part's place in binaryData.
	dataKey = "part"
)

const (
	// mapPart of a parcel's bytes go into one ConfigMap: the API server takes 1 MiB in
	// all (MaxSecretSize in its validation).
	mapPart = 900_000
	// mapPage is how many ConfigMaps are read at a time: 18 MB.
	mapPage = 20
)

// ConfigMaps keeps parcels in the cluster itself: each in as many immutable ConfigMaps
// as it needs, named by its checksum. They belong to nothing, so that they are there
// when the Job's objects are gone; `watchlab cluster clean` takes them away.
//
// Writing takes the permission to create ConfigMaps and no other, reading that to list
// them. All of it lies in etcd, and goes to everybody who watches ConfigMaps.
type ConfigMaps struct {
	Client    kubernetes.Interface
	Namespace string
}

// again is how writes are tried again, for as long as it takes: all shards come to their
// end at once.
func again() wait.DelayFunc {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 15 * time.Second}.DelayFunc()
}

// Deliver implements [Sink]. What the API server refuses for good, as it forbids it or
// has no such namespace, is not tried again.
func (c ConfigMaps) Deliver(ctx context.Context, p Parcel) error {
	parts := (len(p.Data) + mapPart - 1) / mapPart
	yes := true
	for i := range parts {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprintf("watchlab-%s-result-%d-%s-%d", p.Run, p.Index, p.ID(), i+1),
				Namespace: c.Namespace,
				Labels:    map[string]string{RunLabel: p.Run, ShardLabel: strconv.Itoa(p.Index)},
				Annotations: map[string]string{
					PartAnnotation: fmt.Sprintf("%d/%d", i+1, parts), ParcelAnnotation: p.ID(), OfAnnotation: strconv.Itoa(p.Of),
				},
			},
			Immutable:  &yes,
			BinaryData: map[string][]byte{dataKey: p.Data[i*mapPart : min((i+1)*mapPart, len(p.Data))]},
		}
		var last error
		err := again().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			_, last = c.Client.CoreV1().ConfigMaps(c.Namespace).Create(ctx, m, metav1.CreateOptions{FieldManager: "watchlab"})
			switch {

			case last == nil, apierrors.IsAlreadyExists(last):
				return true, nil
			case passing(last):
				return false, nil
			}
			return false, last
		})
		if err != nil {
			if last != nil && !errors.Is(err, last) {
				err = fmt.Errorf("%w; last: %w", err, last)
			}
			return fmt.Errorf("part %d of %d of the result: %w", i+1, parts, err)
		}
	}
	return nil
}

// passing reports whether the API server may take at another time what it doesn't now.
// What is no answer of an API server is: it can't be reached.
func passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch code := status.Status().Code; {
	case code == 403 && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false
	case code == 408, code == 409, code == 429, code >= 500:
		return true
	}
	return false
}

// Read implements [Reader]. It reads page by page, so that what it holds is a page and
// the parts of parcels that are not complete. Requests: one for 20 ConfigMaps.
func (c ConfigMaps) Read(ctx context.Context, run string, take func(Parcel) error) ([]Damage, error) {
	selector := ShardLabel
	if run != "" {
		selector = labels.Set{RunLabel: run}.String() + "," + selector
	}
	wanted := runs{asked: run}
	a := newAssembly("namespace " + c.Namespace)
	taken := map[string]bool{}
	var damaged []Damage
	opts := metav1.ListOptions{LabelSelector: selector, Limit: mapPage}
	for {
		list, err := c.Client.CoreV1().ConfigMaps(c.Namespace).List(ctx, opts)
		if next, ok := expired(err); ok {
			// Where it has got to is too old for the API server. Parcels don't change, so that
			// the rest may be of a later version.
			opts.Continue = next
			continue
		}
		if err != nil {
			return damaged, err
		}
		for i := range list.Items {
			m := &list.Items[i]
			if !wanted.wants(m.Labels[RunLabel]) {
				continue
			}
			if err := wanted.err(); err != nil {
				return damaged, err
			}
			h, part, parts, err := partOf(m)
			if err != nil {
				damaged = append(damaged, Damage{Where: m.Name, Of: h, Why: err.Error()})
				continue
			}
			id := m.Annotations[ParcelAnnotation]
			whole, ok := a.of(id, h, parts).add(part, m.BinaryData[dataKey], parts)
			if !ok || taken[id] {
				continue
			}
			p, err := Decode(whole)
			if err != nil {
				damaged = append(damaged, Damage{Where: m.Name, Of: h, Why: err.Error()})
				continue
			}
			taken[id] = true
			if err := take(p); err != nil {
				return damaged, err
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return unrepaired(append(damaged, a.damaged()...), taken), nil
		}
	}
}

// expired returns where a list goes on whose place is too old.
func expired(err error) (next string, ok bool) {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return "", false
	}
	next = status.Status().Continue
	return next, next != ""
}

// partOf reads which part of what a ConfigMap says that it is.
func partOf(m *corev1.ConfigMap) (h Header, part, parts int, err error) {
	h = unknown()
	h.Run = m.Labels[RunLabel]
	var shard, of int
	if _, err := fmt.Sscanf(m.Labels[ShardLabel]+" "+m.Annotations[OfAnnotation]+" "+m.Annotations[PartAnnotation], "%d %d %d/%d", &shard, &of, &part, &parts); err != nil {
		return h, 0, 0, errors.New("its labels and annotations don't say which part of which result it is")
	}
	h.Index, h.Of = shard, of
	if part < 1 || part > parts || parts > maxContents/mapPart || m.Annotations[ParcelAnnotation] == "" {
		return h, 0, 0, fmt.Errorf("it is said to be part %d of %d", part, parts)
	}
	return h, part, parts, nil
}
