package conformance

import (
	_ "embed" // The exemplar.
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// exemplar is a running pod as a real API server (v1.36.3) sent it: the state of the pod
// shop-1/web-1-544cbc67cf-2b7rl in the recording recorded-nodeloss (see loadgen/trace/recorded).
// Two containers, an init container, probes, volumes, affinity, managed fields; 11.6 kB.
//
//go:embed exemplar.json
var exemplar []byte

// RealisticPod returns pod number i of a node: a copy of a recorded pod with its
// own name, UID and resourceVersion. Two calls with the same number return equal
// pods without shared memory, like two decoded objects.
func RealisticPod(i int) *v1.Pod {
	pod := new(v1.Pod)
	if err := json.Unmarshal(exemplar, pod); err != nil {
		panic(fmt.Sprintf("conformance: exemplar.json: %v", err)) // It is a part of the program.
	}
	// A typed client leaves the TypeMeta empty.
	pod.TypeMeta = metav1.TypeMeta{}
	pod.Name = fmt.Sprintf("%s%05d", pod.GenerateName, i)
	pod.UID = types.UID(fmt.Sprintf("6f1c9a52-3b7e-4c1d-9a52-%012x", i))
	pod.ResourceVersion = fmt.Sprint(1_000_000 + i)
	return pod
}
