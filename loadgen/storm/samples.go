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

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

//go:embed samples/samples.jsonl.gz
var samplesFile []byte

// samples holds recorded objects by name and state; see samples/README.md. They are decoded
// once and never changed.
type samples map[string]map[string]runtime.Object

// loadSamples panics if the embedded file is unreadable, which no input can cause.
var loadSamples = sync.OnceValue(func() samples {
	s, err := readSamples(samplesFile)
	if err != nil {
		panic(fmt.Sprintf("storm: samples: %v", err))
	}
	return s
})

// sample returns the object of a name and state.
func sample[T runtime.Object](name, state string) T { return loadSamples()[name][state].(T) }

func readSamples(file []byte) (samples, error) {
	zr, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	all := samples{}
	for dec := json.NewDecoder(zr); ; {
		var line struct {
			Name, State string
			Object      json.RawMessage
		}
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(line.Object, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", line.Name, line.State, err)
		}
		if all[line.Name] == nil {
			all[line.Name] = map[string]runtime.Object{}
		}
		all[line.Name][line.State] = o
	}
}

func size(o any) int {
	b, err := json.Marshal(o)
	if err != nil {
		return 0 // Typed API objects always encode.
	}
	return len(b)
}

// trims remove parts of a pod, in this order, to reach a small size.
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

// fitPods returns copies of a sample pod by state. In the state running they have about the given
// size in bytes of JSON: trimmed, or padded with environment variables. All states share one spec.
func fitPods(name string, bytes int) map[string]*v1.Pod {
	out := map[string]*v1.Pod{}
	for state, o := range loadSamples()[name] {
		out[state] = o.(*v1.Pod).DeepCopy()
	}
	running := out["running"]
	for _, trim := range trims {
		if size(running) <= bytes {
			break
		}
		for _, p := range out {
			trim(p)
		}
	}
	env := padding(bytes - size(running))
	for _, p := range out {
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, env...)
	}
	return out
}

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

// settings returns n bytes that look like configuration. Zeros would compress too well.
func settings(n int) string {
	b := make([]byte, 0, n+16)
	for i := uint64(n); len(b) < n; i++ {
		b = fmt.Appendf(b, "k%x=%x,", i%16, mix(i)>>32)
	}
	return string(b[:n])
}

// fitNode returns a copy of a node of about the given size. It pads the node's list of images.
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

// withCondition returns a copy of the pod with one condition set to False.
func withCondition(p *v1.Pod, typ v1.PodConditionType, reason, message string) *v1.Pod {
	p = p.DeepCopy()
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == typ {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, reason, message
			return p
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
		Type: typ, Status: v1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.Time{Time: p.CreationTimestamp.Time},
	})
	return p
}

// mix is the finaliser of splitmix64: it maps neighbouring numbers to unrelated ones.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
