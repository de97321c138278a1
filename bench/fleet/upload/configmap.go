package upload

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

// Labels, annotations and keys of the ConfigMaps with results.
const (
	// RunLabel is on every object of a run.
	RunLabel = "watchlab.dev/run"
	// PodLabel holds the index of the pod. Only ConfigMaps with results have it.
	PodLabel = "watchlab.dev/pod"
	// PartAnnotation holds the part's number from 1 and the number of parts: "2/3".
	// BundleAnnotation holds the bundle's ID. OfAnnotation holds the number of pods.
	PartAnnotation   = "watchlab.dev/part"
	BundleAnnotation = "watchlab.dev/bundle"
	OfAnnotation     = "watchlab.dev/of"
	// dataKey is the key of the part in binaryData.
	dataKey = "part"
)

const (
	// mapPart is the number of bundle bytes in a ConfigMap. The API server accepts 1
	// MiB in total (MaxSecretSize in its validation).
	mapPart = 900_000
	// mapPage is the number of ConfigMaps per list request: 18 MB.
	mapPage = 20
)

// ConfigMaps stores each bundle in immutable ConfigMaps named by its checksum. They
// have no owner and outlive the Job; `watchlab cluster clean` deletes them.
//
// Uploading needs permission to create ConfigMaps; reading needs permission to list
// them. etcd stores the data, and every watch on ConfigMaps receives it.
type ConfigMaps struct {
	Client    kubernetes.Interface // of the cluster
	Namespace string               // of the run
}

// again returns the backoff of writes. It has jitter because all pods finish at the
// same time.
func again() wait.DelayFunc {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 15 * time.Second}.DelayFunc()
}

// Upload implements [Sink]. It does not retry permanent errors, such as a missing
// permission.
func (c ConfigMaps) Upload(ctx context.Context, p Bundle) error {
	parts := (len(p.Data) + mapPart - 1) / mapPart
	yes := true
	for i := range parts {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprintf("watchlab-%s-result-%d-%s-%d", p.Run, p.Index, p.ID(), i+1),
				Namespace: c.Namespace,
				Labels:    map[string]string{RunLabel: p.Run, PodLabel: strconv.Itoa(p.Index)},
				Annotations: map[string]string{
					PartAnnotation: fmt.Sprintf("%d/%d", i+1, parts), BundleAnnotation: p.ID(), OfAnnotation: strconv.Itoa(p.Of),
				},
			},
			Immutable:  &yes,
			BinaryData: map[string][]byte{dataKey: p.Data[i*mapPart : min((i+1)*mapPart, len(p.Data))]},
		}
		var last error
		err := again().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			_, last = c.Client.CoreV1().ConfigMaps(c.Namespace).Create(ctx, m, metav1.CreateOptions{FieldManager: "watchlab"})
			switch {
			// The name contains the checksum: an earlier attempt stored the same data,
			// and its response was lost.
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

// passing reports whether a retry may succeed. An error without a status comes from an
// unreachable API server.
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

// Read implements [Reader]. It reads pages of 20 ConfigMaps. It holds one page and the
// parts of incomplete bundles in memory.
func (c ConfigMaps) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	selector := PodLabel
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
			// The continue token expired. ConfigMaps are immutable, so the rest of the
			// list may come from a later version.
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
			id := m.Annotations[BundleAnnotation]
			whole, ok := a.bundle(id, h, parts).add(part, m.BinaryData[dataKey], parts)
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

// expired returns the token for the rest of an expired list.
func expired(err error) (next string, ok bool) {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return "", false
	}
	next = status.Status().Continue
	return next, next != ""
}

// partOf parses the labels and annotations of a ConfigMap.
func partOf(m *corev1.ConfigMap) (h Header, part, parts int, err error) {
	h = unknown()
	h.Run = m.Labels[RunLabel]
	var index, of int
	if _, err := fmt.Sscanf(m.Labels[PodLabel]+" "+m.Annotations[OfAnnotation]+" "+m.Annotations[PartAnnotation], "%d %d %d/%d", &index, &of, &part, &parts); err != nil {
		return h, 0, 0, errors.New("labels or annotations of the part are missing")
	}
	h.Index, h.Of = index, of
	if part < 1 || part > parts || parts > maxContents/mapPart || m.Annotations[BundleAnnotation] == "" {
		return h, 0, 0, fmt.Errorf("invalid part %d of %d", part, parts)
	}
	return h, part, parts, nil
}
