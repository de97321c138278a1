package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"watchlab/bench/lab"
	"watchlab/loadgen/source/cluster"
)

// Results of pods are in ConfigMaps: a pod needs the API server and the right to create them, and no storage.
//
//  1. [ConfigMaps.Upload] encodes a result as a bundle, a header and the compressed result, and creates one
//     immutable ConfigMap for each 900 kB of it.
//  2. [ConfigMaps.Collect] joins the parts, verifies their checksum, chooses one result for each pod and merges
//     them ([lab.Merge]). It reports incomplete and changed results.
//
// A pod succeeds only after the API server has stored all parts, so what is lost with a pod is what it had not
// finished. The ConfigMaps have no owner: they outlive pod and Job, until [Fleet.Clean]. The checksum is in their
// names, so a repeated upload has no effect.
//
// A result takes about 4 kB a round of a cell. The limit is etcd's quota, 2 GiB by default, for all pods.

const (
	// maxContents is the largest uncompressed result in bytes, a hundred thousand rounds of cells.
	maxContents = 1 << 30
	// maxRatio limits the compression of contents above maxSmall. A result compresses about 10:1.
	maxRatio = 1000
	maxSmall = 16 << 20

	// PodLabel is the index of the pod. Only ConfigMaps with results have it, beside [RunLabel].
	PodLabel       = "watchlab.dev/pod"
	partAnnotation = "watchlab.dev/part" // a part as JSON
	dataKey        = "part"              // key of the part in binaryData

	// partSize is the number of bytes in a ConfigMap. The API server accepts 1 MiB in total.
	partSize = 900_000
	maxParts = maxContents / partSize
	page     = 20 // number of ConfigMaps per list request: 18 MB
)

var (
	errBundle = errors.New("damaged result")
	// ErrNoResult is returned by [ConfigMaps.Collect] if there is no complete result.
	ErrNoResult = errors.New("no result was found")
)

// header describes a bundle. It is readable without decompression.
type header struct {
	lab.Attempt
	Size int64 `json:"size"` // size of the uncompressed contents in bytes
}

// bundle is an encoded result.
type bundle struct {
	header
	contents []byte // compressed
}

// part identifies the content of one ConfigMap.
type part struct {
	header
	ID     string `json:"id"`     // of the bundle
	Number int    `json:"number"` // from 1
	Parts  int    `json:"parts"`
}

// check limits what the decoder allocates.
func (b bundle) check() error {
	held := int64(len(b.contents))
	most := min(maxContents, held<<15, max(maxSmall, held*maxRatio)) // a block of zstd has at least 4 bytes, for at most 128 KiB
	if b.Of < 1 || b.Index < 0 || b.Index >= b.Of || b.Size < 0 || b.Size > most {
		return fmt.Errorf("%w: invalid header: pod %d/%d, %d bytes", errBundle, b.Index, b.Of, b.Size)
	}
	return nil
}

// id identifies a bundle: the start of the checksum of header and contents.
func (b bundle) id() (string, error) {
	text, err := json.Marshal(b.header)
	sum := sha256.Sum256(append(text, b.contents...))
	return hex.EncodeToString(sum[:8]), err
}

// contents is the compressed part of a bundle. The JSON form of an outcome lacks its environment.
type contents struct {
	Share *lab.Share `json:"share"`
	Env   lab.Env    `json:"env"`
}

// encode encodes the result of a pod, without medians and pooled latencies, which are computed
// from the rounds.
func encode(s *lab.Share) (bundle, error) {
	if s == nil || s.Outcome == nil {
		return bundle{}, errors.New("a result without an outcome cannot be uploaded")
	}
	o := s.Outcome
	c := contents{Share: slim(*s), Env: o.Env}
	text, err := json.Marshal(c)
	enc, encErr := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err := cmp.Or(err, encErr); err != nil {
		return bundle{}, fmt.Errorf("encode the result: %w", err)
	}
	attempt := lab.Attempt{
		Index: s.Index, Of: s.Of, Number: s.Attempt,
		Commit: o.Env.Revision(), Started: o.Started.UTC(), Finished: o.Ended != nil && !o.Interrupted,
	}
	return bundle{header{attempt, int64(len(text))}, enc.EncodeAll(text, nil)}, nil
}

// slim copies the result without withheld rounds and values that are computed from the rounds.
func slim(s lab.Share) *lab.Share {
	o := *s.Outcome
	o.Comparisons = slices.Clone(o.Comparisons)
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		c.Cells = slices.Clone(c.Cells)
		for j := range c.Cells {
			c.Cells[j].Latency, c.Cells[j].Medians, c.Cells[j].Withheld = nil, nil, nil
			if len(c.Cells[j].Rounds) > 0 {
				c.Cells[j].Lag = nil // that of the median round
			}
		}
	}
	s.Outcome = &o
	return &s
}

// share decodes the result. The error wraps errBundle.
func (b bundle) share() (_ *lab.Share, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: pod %d/%d: %w", errBundle, b.Index, b.Of, err)
		}
	}()
	if err := b.check(); err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(b.Size, 1))))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	text, err := dec.DecodeAll(b.contents, nil)
	if err != nil {
		return nil, err
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	switch {
	case int64(len(text)) != b.Size:
		return nil, fmt.Errorf("it has %d bytes, not %d", len(text), b.Size)
	case c.Share == nil || c.Share.Outcome == nil:
		return nil, errors.New("there is no outcome in it")
	}
	c.Share.Outcome.Env = c.Env
	return c.Share, nil
}

// partOf returns the part that a ConfigMap has. The error wraps errBundle.
func partOf(m metav1.ObjectMeta) (p part, err error) {
	if err := json.Unmarshal([]byte(m.Annotations[partAnnotation]), &p); err != nil {
		return p, fmt.Errorf("%w: annotation %s: %w", errBundle, partAnnotation, err)
	}
	if p.Number < 1 || p.Number > p.Parts || p.Parts > maxParts || p.ID == "" {
		return p, fmt.Errorf("%w: invalid part %d of %d", errBundle, p.Number, p.Parts)
	}
	return p, nil
}

// ConfigMaps stores the results of pods. Uploading needs permission to create ConfigMaps; reading needs permission
// to list them.
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

// Upload stores the result of a pod and returns its size in bytes. It returns no error when all of it is stored. It
// retries temporary errors until ctx ends.
func (c ConfigMaps) Upload(ctx context.Context, run string, s *lab.Share) (size int, err error) {
	b, err := encode(s)
	id, idErr := b.id()
	if err := cmp.Or(err, idErr); err != nil {
		return 0, err
	}
	chunks := slices.Collect(slices.Chunk(b.contents, partSize))
	for i, data := range chunks {
		head, err := json.Marshal(part{b.header, id, i + 1, len(chunks)})
		if err != nil {
			return 0, err
		}
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:        fmt.Sprintf("watchlab-%s-result-%d-%s-%d", run, b.Index, id, i+1),
				Labels:      map[string]string{RunLabel: run, PodLabel: strconv.Itoa(b.Index)},
				Annotations: map[string]string{partAnnotation: string(head)},
			},
			Immutable:  new(true),
			BinaryData: map[string][]byte{dataKey: data},
		}
		// All pods finish at the same time: the backoff has jitter.
		backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 15 * time.Second}
		var last error
		err = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			_, last = c.Client.Create(ctx, m, metav1.CreateOptions{FieldManager: Manager})
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
			return 0, fmt.Errorf("part %d of %d of the result: %w", i+1, len(chunks), cmp.Or(last, err))
		}
	}
	return len(b.contents), nil
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

// read returns the complete bundles of the run, in no order, and describes each damaged one on a line. They stay in memory
// compressed; etcd's quota bounds them.
func (c ConfigMaps) read(ctx context.Context, run string) (bundles []bundle, damaged []string, err error) {
	pending := map[part][][]byte{} // by the part without its number
	opts := metav1.ListOptions{LabelSelector: PodLabel + "," + labels.Set{RunLabel: run}.String(), Limit: page}
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
			return nil, damaged, err
		}
		for _, m := range list.Items {
			p, err := partOf(m.ObjectMeta)
			if err != nil {
				damaged = append(damaged, m.Name+": "+err.Error())
				continue
			}
			number := p.Number
			p.Number, p.Started = 0, p.Started.UTC()
			if pending[p] == nil {
				pending[p] = make([][]byte, p.Parts)
			}
			pending[p][number-1] = m.BinaryData[dataKey]
			if slices.ContainsFunc(pending[p], missing) {
				continue
			}
			b := bundle{p.header, slices.Concat(pending[p]...)}
			delete(pending, p)
			if id, err := b.id(); err != nil || id != p.ID {
				damaged = append(damaged, m.Name+": its checksum is not that of its contents")
			} else if err := b.check(); err != nil {
				damaged = append(damaged, m.Name+": "+err.Error())
			} else {
				bundles = append(bundles, b)
			}
		}
		opts.Continue = list.Continue
	}
	for p, parts := range pending {
		damaged = append(damaged, fmt.Sprintf("pod %d/%d: %d of %d parts are present", p.Index, p.Of, len(slices.DeleteFunc(parts, missing)), p.Parts))
	}
	slices.Sort(damaged)
	return bundles, damaged, nil
}

func missing(data []byte) bool { return data == nil }

// Collect reads all results of a run and merges one per pod ([lab.Merge]). of is the number of pods. damaged are the
// incomplete and damaged results, with the reason.
// The error wraps [ErrNoResult], or [lab.ErrShares] for results of different runs; damaged is then
// known.
func (c ConfigMaps) Collect(ctx context.Context, run string, of int, opts lab.MergeOptions) (o *lab.Outcome, damaged []string, err error) {
	bundles, damaged, err := c.read(ctx, run)
	switch {
	case err != nil:
		return nil, damaged, err
	case len(bundles) == 0:
		return nil, damaged, ErrNoResult
	}
	attempts := make([]lab.Attempt, len(bundles))
	for i, h := range bundles {
		// Results of other builds may not decode.
		switch first := bundles[0]; {
		case h.Commit != first.Commit:
			return nil, damaged, lab.MixedError("the program's commit", first.Commit, first.Index, h.Commit, h.Index)
		case h.Of != of:
			return nil, damaged, fmt.Errorf("%w: expected %d pods, but pod %d belongs to %d", lab.ErrShares, of, h.Index, h.Of)
		}
		attempts[i] = h.Attempt
	}
	o, err = lab.Merge(attempts, func(i int) (*lab.Share, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return bundles[i].share()
	}, opts)
	return o, damaged, err
}
