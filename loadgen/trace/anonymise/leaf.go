package anonymise

import (
	"reflect"
	"regexp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// leaf says which strings of a field are kept.
type leaf struct {
	kind leafKind

	values map[string]bool
}

type leafKind int

const (
	textLeaf leafKind = iota
	durationLeaf
	quantityLeaf
	percentLeaf
	bytesLeaf
	opaqueLeaf
	kindLeaf
	versionLeaf
	groupLeaf
	numberLeaf
)

// longestKept is the length of the longest string that is kept.
const longestKept = 128

// keeps reports whether a string is known to be harmless, in an object of the
// given kind.
func (l leaf) keeps(s string, of schema.GroupVersionKind) bool {
	switch {
	case l.values[s]:
		return true
	case l.kind == opaqueLeaf || l.kind == bytesLeaf:
		return false
	case keptWhole(s) || isTime(s):
		return true
	}
	switch l.kind {
	case durationLeaf:
		_, err := time.ParseDuration(s)
		return err == nil
	case quantityLeaf:
		if len(s) > 24 {
			return false
		}
		_, err := resource.ParseQuantity(s)
		return err == nil
	case percentLeaf:
		return percentage.MatchString(s)
	case kindLeaf:
		return s == of.Kind || known().kinds[s]
	case versionLeaf:
		return s == of.GroupVersion().String() || known().versions[s]
	case groupLeaf:
		return s == of.Group || known().groups[s]
	case numberLeaf:
		return digits(s)
	}
	return false
}

var (
	percentage = regexp.MustCompile(`^\d{1,3}%$`)
	timestamp  = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`)
)

func isTime(s string) bool {
	if !timestamp.MatchString(s) {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

// keptWhole reports whether a string is harmless wherever it stands as a whole,
// as a value or as a label's key.
func keptWhole(s string) bool { return keptKeys[s] || truths[s] || harmlessIPs[s] }

var truths = set("true", "false", "True", "False", "Unknown")

// untypedLeaf is what the name of a field says of a string: of custom resources
// and where the type is a plain string.
func untypedLeaf(key string) leaf {
	switch key {
	case "kind":
		return leaf{kind: kindLeaf}
	case "apiVersion":
		return leaf{kind: versionLeaf}
	case "apiGroup", "apiGroups":
		return leaf{kind: groupLeaf}
	case "resourceVersion":
		return leaf{kind: numberLeaf}
	case "type", "reason", "phase", "operator", "effect", "protocol", "operation", "status", "policy":
		return leaf{values: anyValue()}
	case "cpu", "memory", "storage", "ephemeral-storage":
		return leaf{kind: quantityLeaf}
	}
	return leaf{}
}

// enumeration returns the constants of a type; nil where it has none.
func enumeration(t reflect.Type) map[string]bool {
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return nil
	}
	return vocabulary().byType[t.PkgPath()+"."+t.Name()]
}

// anyValue are the constants of all types, and reasons.
var anyValue = sync.OnceValue(func() map[string]bool {
	all := set(reasons...)
	for _, values := range vocabulary().byType {
		for v := range values {
			all[v] = true
		}
	}
	return all
})

// resourceNames are those that Kubernetes defines, such as cpu.
func resourceNames() map[string]bool { return enumeration(reflect.TypeFor[v1.ResourceName]()) }

// known are the kinds that client-go's scheme knows.
var known = sync.OnceValue(func() (k struct{ kinds, versions, groups map[string]bool }) {
	k.kinds, k.versions, k.groups = map[string]bool{}, map[string]bool{}, map[string]bool{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		k.kinds[kind.Kind] = true
		k.versions[kind.GroupVersion().String()] = true
		k.groups[kind.Group] = true
	}
	return k
})

// fieldNames are the names of all fields of all types that the scheme knows.
var fieldNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	in := types{}
	done := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if done[n] {
			return
		}
		done[n] = true
		switch n.kind {
		case structNode:
			n.field("")
			for name, child := range n.fields {
				names[name] = true
				walk(child)
			}
		case mapNode, sliceNode:
			walk(n.elem())
		}
	}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		walk(in.nodeOf(t))
	}
	return names
})

func set(values ...string) map[string]bool {
	m := make(map[string]bool, len(values))
	for _, v := range values {
		m[v] = true
	}
	return m
}

// keptKeys are keys of labels, annotations and taints, and finalizers, that
// Kubernetes itself defines.
var keptKeys = func() map[string]bool {
	m := set(keys...)
	for _, k := range vocabulary().keys {
		m[k] = true
	}
	return m
}()

// keys are those that are no constants of k8s.io/api.
var keys = slices.Concat([]string{
	"app", "k8s-app",
	"app.kubernetes.io/component", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by",
	"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/version",
	"controller-revision-hash", "controller-uid", "job-name", "pod-template-generation", "pod-template-hash",
	"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
	"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas", "deployment.kubernetes.io/revision",
	"endpoints.kubernetes.io/last-change-trigger-time",
	"endpointslice.kubernetes.io/managed-by", "endpointslice.kubernetes.io/skip-mirror",
	"k8s.io/initial-events-end",
	"kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/last-applied-configuration", "kubectl.kubernetes.io/restartedAt",
	"kubernetes.io/config.hash", "kubernetes.io/config.mirror", "kubernetes.io/config.seen", "kubernetes.io/config.source",
	"kubernetes.io/metadata.name", "kubernetes.io/service-name",
	"node.alpha.kubernetes.io/ttl", "node.cloudprovider.kubernetes.io/uninitialized",
	"node.kubernetes.io/disk-pressure", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/network-unavailable",
	"node.kubernetes.io/not-ready", "node.kubernetes.io/out-of-service", "node.kubernetes.io/pid-pressure",
	"node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable",
	"node-role.kubernetes.io/control-plane",
	"statefulset.kubernetes.io/pod-name",
}, []string{

	"foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking",
	"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection",
	"service.kubernetes.io/load-balancer-cleanup", "resource.kubernetes.io/delete-protection",
})

// reasons are those that Kubernetes' own components give and that are no
// constants of k8s.io/api.
var reasons = []string{
	"Normal", "Warning",
	"BackOff", "Completed", "CompletionsReached", "ContainersNotInitialized", "ContainersNotReady", "ContainerCreating",
	"CrashLoopBackOff", "Created", "DeadlineExceeded", "DeploymentPaused", "DeploymentResumed", "Error", "ErrImagePull",
	"Evicted", "Failed", "FailedCreate", "FailedMount", "FailedScheduling", "FoundNewReplicaSet", "ImagePullBackOff",
	"Killing", "KubeletHasDiskPressure", "KubeletHasInsufficientMemory", "KubeletHasInsufficientPID",
	"KubeletHasNoDiskPressure", "KubeletHasSufficientMemory", "KubeletHasSufficientPID", "KubeletNotReady", "KubeletReady",
	"MinimumReplicasAvailable", "MinimumReplicasUnavailable", "NewReplicaSetAvailable", "NewReplicaSetCreated",
	"NodeHasDiskPressure", "NodeHasInsufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientMemory",
	"NodeHasSufficientPID", "NodeNotReady", "NodeReady", "NodeStatusUnknown", "NodeStatusNeverUpdated", "OOMKilled",
	"PodCompleted", "PodFailed", "PodInitializing", "ProgressDeadlineExceeded", "Pulled", "Pulling", "RegisteredNode",
	"RemovingNode", "ReplicaSetUpdated", "RouteCreated", "ScalingReplicaSet", "Scheduled", "Started", "Starting",
	"SuccessCriteriaMet", "SuccessfulCreate", "SuccessfulDelete", "Suspended", "TaintManagerEviction", "Unhealthy",
}

// components are field managers and event sources that are Kubernetes' own.
var components = []string{
	"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl",
	"kubectl-create", "kubectl-client-side-apply", "kubectl-edit", "kubectl-patch", "kubectl-scale", "kubectl-rollout", "kubectl-label",
	"attachdetach-controller", "cronjob-controller", "daemonset-controller", "default-scheduler", "deployment-controller",
	"endpoint-controller", "endpoint-slice-controller", "horizontal-pod-autoscaler", "job-controller", "namespace-controller",
	"node-controller", "persistentvolume-controller", "replicaset-controller", "replication-controller", "service-controller",
	"statefulset-controller", "taint-eviction-controller",
}

// fieldPaths are those that the downward API takes and that name nothing.
var fieldPaths = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
	"spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}
