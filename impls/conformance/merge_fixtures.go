package conformance

import (
	"cmp"
	_ "embed" // The exemplar.
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/impls/merge"
)

// lastVersion is the last used resourceVersion.
var lastVersion atomic.Uint64

// nextVersion returns a new resourceVersion.
func nextVersion() string { return strconv.FormatUint(lastVersion.Add(1), 10) }

// newPod returns a pod with all kinds of fields. Its name is its UID.
func newPod(uid string) *v1.Pod {
	grace := int64(30)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: uid, Namespace: "ns", UID: types.UID(uid), ResourceVersion: nextVersion(), Generation: 1,
			Labels:      map[string]string{"app": "x"},
			Annotations: map[string]string{"note": "first"},
		},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name: "c", Image: "image:1",
				Env: []v1.EnvVar{{Name: "K", Value: "V"}},
				Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
				},
			}},
			NodeSelector:                  map[string]string{"pool": "a"},
			TerminationGracePeriodSeconds: &grace,
		},
		Status: v1.PodStatus{
			Phase:      v1.PodPending,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}},
		},
	}
}

// changed returns a changed copy of a pod with a new version, also without
// changes. As from an API server, the generation increases if the spec differs.
func changed(pod *v1.Pod, changes ...func(*v1.Pod)) *v1.Pod {
	other := pod.DeepCopy()
	newVersion(other)
	for _, change := range changes {
		change(other)
	}
	if !reflect.DeepEqual(pod.Spec, other.Spec) {
		other.Generation++
	}
	return other
}

func newImage(pod *v1.Pod)   { pod.Spec.Containers[0].Image += "+" }
func newMessage(pod *v1.Pod) { pod.Status.Message += "+" }
func newVersion(pod *v1.Pod) { pod.ResourceVersion = nextVersion() }
func markDeleted(pod *v1.Pod) {
	pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
}

func named(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Name = name }
}

func annotated(key, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

func unannotated(key string) func(*v1.Pod) {
	return func(pod *v1.Pod) { delete(pod.Annotations, key) }
}

// sortUnordered sorts the pods of an update whose order is not guaranteed.
func sortUnordered(update *merge.PodUpdate) {
	if update.Op != merge.SET && update.Op != merge.REMOVE {
		return
	}
	update.Pods = slices.Clone(update.Pods)
	slices.SortStableFunc(update.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Annotations[merge.ConfigSourceAnnotation], b.Annotations[merge.ConfigSourceAnnotation]),
			cmp.Compare(a.UID, b.UID),
		)
	})
}

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
