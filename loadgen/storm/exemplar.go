package storm

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed exemplars/exemplars.jsonl.gz
var exemplarsFile []byte

// exemplars are real objects by what they are of and their state; see
// exemplars/README.md. They are decoded once and never changed.
type exemplars struct {
	web, worker map[string]*v1.Pod
	job         map[string]*batchv1.Job
	node        *v1.Node
	lease       *coordinationv1.Lease
	slice       *discoveryv1.EndpointSlice
}

// loadExemplars panics where the file that is built in can't be read, which no
// input can bring about.
var loadExemplars = sync.OnceValue(func() *exemplars {
	e, err := readExemplars(exemplarsFile)
	if err != nil {
		panic(fmt.Sprintf("storm: exemplars: %v", err))
	}
	return e
})

func readExemplars(file []byte) (*exemplars, error) {
	zr, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	e := &exemplars{web: map[string]*v1.Pod{}, worker: map[string]*v1.Pod{}, job: map[string]*batchv1.Job{}}
	for dec := json.NewDecoder(zr); ; {
		var line struct {
			Of, State string
			Object    json.RawMessage
		}
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF):
			return e, nil
		case err != nil:
			return nil, err
		}
		var into any
		switch line.Of {
		case "pod-web":
			pod := &v1.Pod{}
			e.web[line.State], into = pod, pod
		case "pod-worker":
			pod := &v1.Pod{}
			e.worker[line.State], into = pod, pod
		case "job":
			job := &batchv1.Job{}
			e.job[line.State], into = job, job
		case "node":
			e.node = &v1.Node{}
			into = e.node
		case "lease-node":
			e.lease = &coordinationv1.Lease{}
			into = e.lease
		case "endpointslice":
			e.slice = &discoveryv1.EndpointSlice{}
			into = e.slice
		default:
			return nil, fmt.Errorf("of %q", line.Of)
		}
		if err := json.Unmarshal(line.Object, into); err != nil {
			return nil, fmt.Errorf("%s %s: %w", line.Of, line.State, err)
		}
	}
}

// size is how many bytes an object has as JSON.
func size(o any) int {
	b, err := json.Marshal(o)
	if err != nil {
		return 0 // Typed objects of the API can all be encoded.
	}
	return len(b)
}

// trims are what a pod can do without, in order: what goes first is what small
// pods lack.
var trims = []func(*v1.Pod){
	func(p *v1.Pod) { p.ManagedFields = nil },
	func(p *v1.Pod) { p.Spec.Affinity, p.Spec.TopologySpreadConstraints = nil, nil },
	func(p *v1.Pod) { p.Spec.InitContainers, p.Status.InitContainerStatuses = nil, nil },
	func(p *v1.Pod) {
		p.Spec.Containers = p.Spec.Containers[:1]
		p.Status.ContainerStatuses = p.Status.ContainerStatuses[:min(1, len(p.Status.ContainerStatuses))]
	},
	func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe, c.SecurityContext = nil, nil, nil, nil
	},
	func(p *v1.Pod) {
		p.Spec.Containers[0].Env, p.Spec.Containers[0].Args, p.Annotations = nil, nil, nil
	},
	func(p *v1.Pod) { p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = nil, nil },
	func(p *v1.Pod) { p.Spec.Tolerations, p.Spec.SecurityContext = nil, nil },
	func(p *v1.Pod) {
		p.Spec.Containers[0].Ports, p.Spec.Containers[0].Resources = nil, v1.ResourceRequirements{}
	},
}

// fitPods returns copies of the states of a pod that have about so many bytes of
// JSON in the given one: trimmed of what small pods lack, or with environment
// variables as large pods have them. All states get the same spec.
func fitPods(states map[string]*v1.Pod, measure string, bytes int) map[string]*v1.Pod {
	out := make(map[string]*v1.Pod, len(states))
	for name, p := range states {
		out[name] = p.DeepCopy()
	}
	of := out[measure]
	for _, trim := range trims {
		if size(of) <= bytes {
			break
		}
		for _, p := range out {
			trim(p)
		}
	}
	env := padding(bytes - size(of))
	for _, p := range out {
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, env...)
	}
	return out
}

// padding returns environment variables of about so many bytes as JSON.
func padding(n int) []v1.EnvVar {
	const (
		frame = len(`{"name":"SETTINGS_000","value":""},`)
		chunk = 200
	)
	var env []v1.EnvVar
	for i := 0; n > frame; i++ {
		value := settings(min(chunk, n-frame))
		env = append(env, v1.EnvVar{Name: fmt.Sprintf("SETTINGS_%03d", i), Value: value})
		n -= frame + len(value)
	}
	return env
}

// settings returns n bytes that look like settings rather than like zeros, as
// compressors would have too easy a time with those.
func settings(n int) string {
	b := make([]byte, 0, n+16)
	for i := uint64(n); len(b) < n; i++ {
		b = fmt.Appendf(b, "k%x=%x,", i%16, mix(i)>>32)
	}
	return string(b[:n])
}

// fitNode returns a node of about so many bytes: with the list of images that a
// node in use has.
func fitNode(n *v1.Node, bytes int) *v1.Node {
	n = n.DeepCopy()
	for i := uint64(0); size(n) < bytes && i < 200; i++ {
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example/shop/image-%d@sha256:%016x%016x%016x%016x", i, mix(4*i), mix(4*i+1), mix(4*i+2), mix(4*i+3)),
				fmt.Sprintf("registry.example/shop/image-%d:1.%d.0", i, i),
			},
			SizeBytes: int64(mix(i) % 500_000_000),
		})
	}
	return n
}

// with returns a copy of the pod with one of its conditions set.
func with(p *v1.Pod, typ v1.PodConditionType, status v1.ConditionStatus, reason, message string) *v1.Pod {
	p = p.DeepCopy()
	at := metav1.Time{Time: p.CreationTimestamp.Time}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == typ {
			c.Status, c.Reason, c.Message = status, reason, message
			return p
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
		Type: typ, Status: status, Reason: reason, Message: message, LastTransitionTime: at,
	})
	return p
}

// mix turns numbers that are near each other into ones that have nothing to do
// with each other (splitmix64's finaliser).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
