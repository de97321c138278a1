// Package static has the kubelet's other two sources of pods: manifests in a
// folder, and manifests behind a URL. Both send the whole state of the source as
// a SET, to the channel of a merger.
//
//	ch, err := merger.Channel(ctx, merge.FileSource)
//	src, err := static.File("/etc/kubernetes/manifests", static.Options{NodeName: "n1"})
//	src.Run(ctx, ch)
//
// What is done with what is read is the kubelet's (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config, common.go, file.go, file_linux.go and http.go):
//
//   - A pod is bound to the node, and its name gets the node's as a suffix, in
//     lower case, so that it is unique among nodes. Its namespace is default
//     where the manifest names none, its phase is Pending.
//   - Its UID, where the manifest names none, is a hash of the manifest, of the
//     node (files) and of the path or URL: a manifest that changes makes another
//     pod, one that doesn't makes the same again. The annotation
//     kubernetes.io/config.hash has the UID. (kubernetes.io/config.source and
//     .seen are the merger's to set.)
//   - Pods of files tolerate every NoExecute taint.
//   - What can't be used is reported and left out; the rest of a folder is read.
//   - A source that is there and empty, and a path that isn't there, is an empty
//     SET, so that the source counts as seen.
//
// # Where it differs
//
// The kubelet converts to its internal types, fills in API defaults and runs the
// validation of the API server, none of which can be imported. Here defaults are
// left out, so that hashes are others, and what is checked is less: names, and
// that there are containers with names and images. A file or a URL may hold what
// kubectl reads too, such as a List of pods. And three slips are not repeated:
// a folder that became empty is forgotten (the kubelet says that it is empty, and
// brings all its pods back with the next change), so is an answer of a URL after
// an empty one, and a path that was replaced goes on being watched.
package static

import (
	"context"
	"crypto/md5" //nolint:gosec // As the kubelet: a name, not a secret.
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"watchlab/impls/merge"
	"watchlab/loadgen/manifest"
)

// The kubelet's defaults: how often it reads a folder or a URL, and the most
// that it reads of it.
const (
	DefaultPeriod = 20 * time.Second
	MaxBytes      = 10 << 20
)

// HashAnnotation is where the kubelet keeps the hash of a static pod's manifest.
const HashAnnotation = "kubernetes.io/config.hash"

var (
	// ErrOptions is wrapped by the error for options that are not allowed.
	ErrOptions = errors.New("invalid options")
	// ErrPod is wrapped by the error for a manifest that the kubelet can't use.
	ErrPod = errors.New("invalid static pod")
)

// Options are what both sources need.
type Options struct {
	NodeName string

	Period time.Duration

	Report func(error)
}

// complete checks the options and fills in the defaults.
func (o Options) complete() (Options, error) {
	switch {
	case o.NodeName == "":
		return o, fmt.Errorf("static: %w: NodeName is empty", ErrOptions)
	case o.Period < 0:
		return o, fmt.Errorf("static: %w: Period %v is negative (0 means %v)", ErrOptions, o.Period, DefaultPeriod)
	}
	if o.Period == 0 {
		o.Period = DefaultPeriod
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return o, nil
}

// Source is one of the kubelet's sources of static pods. It is run once.
type Source interface {
	Run(ctx context.Context, updates chan<- merge.PodUpdate)
}

// send sends a state; it returns false where ctx ends first.
func send(ctx context.Context, updates chan<- merge.PodUpdate, source string, pods []*v1.Pod) bool {
	select {
	case updates <- merge.PodUpdate{Pods: pods, Op: merge.SET, Source: source}:
		return true
	case <-ctx.Done():
		return false
	}
}

// read decodes the pods of a manifest and makes them the node's.
func (o Options) read(source string, data []byte, isFile bool) ([]*v1.Pod, error) {
	objects, err := manifest.Decode(source, data, true)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, 0, len(objects))
	for _, obj := range objects {
		at := obj.String()
		pod, ok := obj.Object.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("%w: %s is not a pod", ErrPod, at)
		}
		if pod.Name == "" {
			return nil, fmt.Errorf("%w: %s: a name is needed", ErrPod, at)
		}
		if err := o.adopt(pod, source, isFile); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrPod, at, err)
		}
		if err := check(pod); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrPod, at, err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// adopt makes a pod the node's (applyDefaults in common.go).
func (o Options) adopt(pod *v1.Pod, source string, isFile bool) error {
	if pod.UID == "" {
		text, err := json.Marshal(pod) // Maps are sorted.
		if err != nil {
			return err
		}
		h := md5.New() //nolint:gosec // As above.
		_, _ = h.Write(text)
		if isFile {
			_, _ = io.WriteString(h, "host:"+o.NodeName+"file:"+source)
		} else {
			_, _ = io.WriteString(h, "url:"+source)
		}
		pod.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
	pod.Name += "-" + strings.ToLower(o.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = o.NodeName
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[HashAnnotation] = string(pod.UID)
	if isFile {
		tolerate(pod, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	}
	pod.Status.Phase = v1.PodPending
	return nil
}

// tolerate adds a toleration, in place of one for the same taint.
func tolerate(pod *v1.Pod, t v1.Toleration) {
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].MatchToleration(&t) {
			pod.Spec.Tolerations[i] = t
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
}

// check refuses what no kubelet could run.
func check(pod *v1.Pod) error {
	var errs []error
	bad := func(field, value string, problems []string) {
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", field, value, strings.Join(problems, ", ")))
		}
	}
	bad("metadata.name", pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	bad("metadata.namespace", pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, errors.New("spec.containers: there are none"))
	}
	seen := map[string]bool{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			bad("the container's name", c.Name, validation.IsDNS1123Label(c.Name))
			if seen[c.Name] {
				errs = append(errs, fmt.Errorf("two containers are called %q", c.Name))
			}
			seen[c.Name] = true
			if c.Image == "" {
				errs = append(errs, fmt.Errorf("container %q has no image", c.Name))
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ClusterTrustBundle != nil {
				errs = append(errs, errors.New("static pods may not use ClusterTrustBundle projected volume sources"))
			}
		}
	}
	return errors.Join(errs...)
}

// errTooLong is what is said of more than MaxBytes.
var errTooLong = fmt.Errorf("%w: more than %d MiB", ErrPod, MaxBytes>>20)

// readAtMost reads all, but not more than the kubelet does.
func readAtMost(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = errTooLong
	}
	return data, err
}
