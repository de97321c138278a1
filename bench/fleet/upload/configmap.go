package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/source/cluster"
)

// Labels, annotations and keys of the ConfigMaps with results. They also carry [cluster.RunLabel].
const (
	PodLabel         = "watchlab.dev/pod"    // index of the pod; only ConfigMaps with results have it
	PartAnnotation   = "watchlab.dev/part"   // part's number from 1 and the number of parts: "2/3"
	BundleAnnotation = "watchlab.dev/bundle" // bundle's ID
	OfAnnotation     = "watchlab.dev/of"     // number of pods
	NameAnnotation   = "watchlab.dev/name"   // name of the pod
	dataKey          = "part"                // key of the part in binaryData

	// mapPart is the number of bundle bytes in a ConfigMap. The API server accepts 1 MiB in total.
	mapPart = 900_000
	mapPage = 20 // number of ConfigMaps per list request: 18 MB
)

// ConfigMaps stores each bundle in immutable ConfigMaps named by its checksum. They
// have no owner and outlive the Job; `watchlab cluster clean` deletes them.
//
// Uploading needs permission to create ConfigMaps; reading needs permission to list
// them. etcd stores the data, and every watch on ConfigMaps receives it.
type ConfigMaps struct {
	Client interface { // of the run's namespace
		Create(ctx context.Context, m *corev1.ConfigMap, opts metav1.CreateOptions) (*corev1.ConfigMap, error)
		List(ctx context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error)
	}
	Namespace string // in messages
}

// NewConfigMaps returns the ConfigMaps of an API server. It sends no request.
func NewConfigMaps(config *rest.Config, namespace string) (ConfigMaps, error) {
	client, err := cluster.NewTyped(config, corev1.SchemeGroupVersion.WithResource("configmaps"), namespace,
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
	return ConfigMaps{Client: client, Namespace: namespace}, err
}

// Upload implements [Sink].
func (c ConfigMaps) Upload(ctx context.Context, p Bundle) error {
	chunks := slices.Collect(slices.Chunk(p.Data, mapPart))
	for i, data := range chunks {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprintf("watchlab-%s-result-%d-%s-%d", p.Run, p.Index, p.ID(), i+1),
				Namespace: c.Namespace,
				Labels:    map[string]string{cluster.RunLabel: p.Run, PodLabel: strconv.Itoa(p.Index)},
				Annotations: map[string]string{
					PartAnnotation: fmt.Sprintf("%d/%d", i+1, len(chunks)), BundleAnnotation: p.ID(), OfAnnotation: strconv.Itoa(p.Of),
					NameAnnotation: p.Pod,
				},
			},
			Immutable:  new(true),
			BinaryData: map[string][]byte{dataKey: data},
		}
		// All pods finish at the same time: the backoff has jitter.
		backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 15 * time.Second}
		var last error
		err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			_, last = c.Client.Create(ctx, m, metav1.CreateOptions{FieldManager: "watchlab"})
			switch {
			// The name contains the checksum: an earlier attempt stored the same data,
			// and its response was lost.
			case last == nil, apierrors.IsAlreadyExists(last):
				return true, nil
			case temporary(last):
				return false, nil
			}
			return false, last
		})
		if err != nil {
			return fmt.Errorf("part %d of %d of the result: %w", i+1, len(chunks), cmp.Or(last, err))
		}
	}
	return nil
}

// temporary reports whether a retry may succeed. An unreachable API server sends no status.
func temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// Read implements [Reader]. It holds a page of 20 ConfigMaps and incomplete bundles in memory.
func (c ConfigMaps) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	r := newReceiver(run, take)
	opts := metav1.ListOptions{LabelSelector: PodLabel, Limit: mapPage}
	if run != "" {
		opts.LabelSelector += "," + labels.Set{cluster.RunLabel: run}.String()
	}
	for {
		list, err := c.Client.List(ctx, opts)
		var status apierrors.APIStatus
		if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			// The continue token expired. ConfigMaps are immutable, so the rest of the
			// list may come from a later version.
			opts.Continue = status.Status().Continue
			continue
		}
		if err != nil {
			return r.unrepaired(), err
		}
		for i := range list.Items {
			m := &list.Items[i]
			p, err := partOf(m)
			if err != nil {
				r.damaged(m.Name, err)
				continue
			}
			if err := r.part(p, nil); err != nil {
				return r.unrepaired(), err
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			r.end("namespace " + c.Namespace)
			return r.unrepaired(), nil
		}
	}
}

func partOf(m *corev1.ConfigMap) (part, error) {
	p := part{Header: Header{Run: m.Labels[cluster.RunLabel]}, id: m.Annotations[BundleAnnotation], data: m.BinaryData[dataKey]}
	text := m.Labels[PodLabel] + " " + m.Annotations[OfAnnotation] + " " + m.Annotations[PartAnnotation]
	if _, err := fmt.Sscanf(text, "%d %d %d/%d", &p.Index, &p.Of, &p.number, &p.parts); err != nil {
		return part{}, errors.New("labels or annotations of the part are missing")
	}
	if p.number < 1 || p.number > p.parts || p.parts > maxContents/mapPart || p.id == "" {
		return part{}, fmt.Errorf("invalid part %d of %d", p.number, p.parts)
	}
	return p, nil
}
