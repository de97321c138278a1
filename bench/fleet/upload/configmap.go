package upload

import (
	"cmp"
	"context"
	"encoding/json"
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

const (
	// PodLabel is the index of the pod. Only ConfigMaps with results have it, beside [cluster.RunLabel].
	PodLabel       = "watchlab.dev/pod"
	partAnnotation = "watchlab.dev/part" // a [Part] as JSON
	dataKey        = "part"              // key of the part in binaryData

	// partSize is the number of bytes in a ConfigMap. The API server accepts 1 MiB in total.
	partSize = 900_000
	maxParts = maxContents / partSize
	page     = 20 // number of ConfigMaps per list request: 18 MB
)

// Part identifies the content of one ConfigMap.
type Part struct {
	Header
	ID     string `json:"id"`     // of the bundle
	Number int    `json:"number"` // from 1
	Parts  int    `json:"parts"`
}

// PartOf returns the part that a ConfigMap has. The error wraps [ErrBundle].
func PartOf(m metav1.ObjectMeta) (p Part, err error) {
	if err := json.Unmarshal([]byte(m.Annotations[partAnnotation]), &p); err != nil {
		return p, fmt.Errorf("%w: annotation %s: %w", ErrBundle, partAnnotation, err)
	}
	if p.Number < 1 || p.Number > p.Parts || p.Parts > maxParts || p.ID == "" {
		return p, fmt.Errorf("%w: invalid part %d of %d", ErrBundle, p.Number, p.Parts)
	}
	return p, nil
}

// ConfigMaps stores each bundle in ConfigMaps named by its checksum. Uploading needs permission to
// create ConfigMaps; reading needs permission to list them.
type ConfigMaps struct {
	Client interface { // of the run's namespace
		Create(ctx context.Context, m *corev1.ConfigMap, opts metav1.CreateOptions) (*corev1.ConfigMap, error)
		List(ctx context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error)
	}
}

// NewConfigMaps returns the ConfigMaps of an API server. It sends no request.
func NewConfigMaps(config *rest.Config, namespace string) (ConfigMaps, error) {
	client, err := cluster.NewTyped(config, corev1.SchemeGroupVersion.WithResource("configmaps"), namespace,
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
	return ConfigMaps{client}, err
}

// Upload returns nil when the bundle is stored completely. It retries temporary errors until ctx ends.
func (c ConfigMaps) Upload(ctx context.Context, run string, b Bundle) error {
	id, err := b.id()
	if err != nil {
		return err
	}
	chunks := slices.Collect(slices.Chunk(b.contents, partSize))
	for i, data := range chunks {
		head, err := json.Marshal(Part{b.Header, id, i + 1, len(chunks)})
		if err != nil {
			return err
		}
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:        fmt.Sprintf("watchlab-%s-result-%d-%s-%d", run, b.Index, id, i+1),
				Labels:      map[string]string{cluster.RunLabel: run, PodLabel: strconv.Itoa(b.Index)},
				Annotations: map[string]string{partAnnotation: string(head)},
			},
			Immutable:  new(true),
			BinaryData: map[string][]byte{dataKey: data},
		}
		// All pods finish at the same time: the backoff has jitter.
		backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 15 * time.Second}
		var last error
		err = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			_, last = c.Client.Create(ctx, m, metav1.CreateOptions{FieldManager: cluster.Manager})
			switch {
			// The name has the checksum: an earlier attempt stored the same data, and its response was lost.
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

// Read calls take once for each complete bundle of the run, in no order, and returns the damaged ones.
// An error of take ends Read. It holds a page of ConfigMaps and incomplete bundles in memory.
func (c ConfigMaps) Read(ctx context.Context, run string, take func(Bundle) error) (damaged []Damage, err error) {
	pending := map[Part][][]byte{} // by the part without its number
	opts := metav1.ListOptions{LabelSelector: PodLabel + "," + labels.Set{cluster.RunLabel: run}.String(), Limit: page}
	for more := true; more; more = opts.Continue != "" {
		list, err := c.Client.List(ctx, opts)
		var status apierrors.APIStatus
		if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			// The continue token expired. ConfigMaps are immutable, so the rest of the list may come from
			// a later version.
			opts.Continue = status.Status().Continue
			continue
		}
		if err != nil {
			return damaged, err
		}
		for _, m := range list.Items {
			part, err := PartOf(m.ObjectMeta)
			if err != nil {
				damaged = append(damaged, Damage{m.Name, err.Error()})
				continue
			}
			number := part.Number
			part.Number, part.Started = 0, part.Started.UTC()
			if pending[part] == nil {
				pending[part] = make([][]byte, part.Parts)
			}
			pending[part][number-1] = m.BinaryData[dataKey]
			if slices.ContainsFunc(pending[part], func(data []byte) bool { return data == nil }) {
				continue
			}
			b := Bundle{part.Header, slices.Concat(pending[part]...)}
			delete(pending, part)
			if id, err := b.id(); err != nil || id != part.ID {
				damaged = append(damaged, Damage{m.Name, "its checksum is not that of its contents"})
			} else if err := b.check(b.Len()); err != nil {
				damaged = append(damaged, Damage{m.Name, err.Error()})
			} else if err := take(b); err != nil {
				return damaged, err
			}
		}
		opts.Continue = list.Continue
	}
	for part, parts := range pending {
		there := len(slices.DeleteFunc(parts, func(data []byte) bool { return data == nil }))
		damaged = append(damaged, Damage{fmt.Sprintf("pod %d/%d", part.Index, part.Of), fmt.Sprintf("%d of %d parts are present", there, part.Parts)})
	}
	slices.SortFunc(damaged, func(a, b Damage) int { return cmp.Compare(a.String(), b.String()) })
	return damaged, nil
}
