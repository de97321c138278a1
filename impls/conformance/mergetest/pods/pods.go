// Package pods builds the pods that mergers are tested and measured with.
package pods

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// epoch is when all pods were made.
var epoch = metav1.Unix(1_700_000_000, 0)

// Realistic returns pod number i as a node agent sees it: about 10 kB of JSON,
// with an init container, two containers, probes, volumes, conditions and
// managed fields. Two calls with one number return equal pods that share no
// memory but that of constant strings.
func Realistic(i int) *v1.Pod {
	name := fmt.Sprintf("checkout-api-7d9c6b5f4d-%05d", i)
	return &v1.Pod{
		TypeMeta: metav1.TypeMeta{},
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			GenerateName:      "checkout-api-7d9c6b5f4d-",
			Namespace:         fmt.Sprintf("team-%02d", i%10),
			UID:               types.UID(fmt.Sprintf("6f1c9a52-3b7e-4c1d-9a52-%012x", i)),
			ResourceVersion:   fmt.Sprint(1_000_000 + i),
			CreationTimestamp: epoch,
			Labels: map[string]string{
				"app.kubernetes.io/name":      "checkout-api",
				"app.kubernetes.io/instance":  fmt.Sprintf("checkout-api-%02d", i%10),
				"app.kubernetes.io/component": "api",
				"pod-template-hash":           "7d9c6b5f4d",
			},
			Annotations: map[string]string{
				"prometheus.io/scrape":                    "true",
				"prometheus.io/port":                      "9102",
				"kubectl.kubernetes.io/restartedAt":       "2023-11-14T22:13:20Z",
				"cluster-autoscaler.kubernetes.io/safe":   "true",
				"checksum/config":                         "4d7c2f0e9b6a5d8c1f3e7a9b0c2d4e6f8a1b3c5d7e9f0a2b4c6d8e0f1a3b5c7d",
				"container.apparmor.security/checkout-ap": "runtime/default",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-api-7d9c6b5f4d",
				UID: "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", Controller: to(true), BlockOwnerDeletion: to(true),
			}},
			ManagedFields: managedFields(),
		},
		Spec:   spec(),
		Status: status(i, name),
	}
}

// ChangeStatus changes the pod's status as a failed readiness probe does.
func ChangeStatus(pod *v1.Pod) {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1.PodReady || c.Type == v1.ContainersReady {
			c.Status = v1.ConditionFalse
			c.Reason = "ContainersNotReady"
			c.Message = "containers with unready status: [api]"
			c.LastTransitionTime = metav1.NewTime(epoch.Add(time.Minute))
		}
	}
	pod.Status.ContainerStatuses[0].Ready = false
	pod.ResourceVersion += "1"
}

// ChangeSpec changes the image of the pod's first container.
func ChangeSpec(pod *v1.Pod) {
	pod.Spec.Containers[0].Image += "-patched"
	pod.ResourceVersion += "1"
}

func to[T any](v T) *T { return &v }

func spec() v1.PodSpec {
	return v1.PodSpec{
		Volumes: []v1.Volume{
			{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "checkout-api"}, DefaultMode: to(int32(0o644)),
			}}},
			{Name: "tls", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{
				SecretName: "checkout-api-tls", DefaultMode: to(int32(0o600)),
			}}},
			{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
				SizeLimit: to(resource.MustParse("256Mi")),
			}}},
			{Name: "kube-api-access-x7k2p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				DefaultMode: to(int32(0o644)),
				Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: to(int64(3607)), Path: "token"}},
					{ConfigMap: &v1.ConfigMapProjection{
						LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"},
						Items:                []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
					}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{
						Path:     "namespace",
						FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
					}}}},
				},
			}}},
		},
		InitContainers:                []v1.Container{container("migrate", 1)},
		Containers:                    []v1.Container{serving(container("api", 5), 8080), serving(container("proxy", 3), 15090)},
		RestartPolicy:                 v1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: to(int64(45)),
		DNSPolicy:                     v1.DNSClusterFirst,
		NodeSelector:                  map[string]string{"kubernetes.io/os": "linux", "pool": "general"},
		ServiceAccountName:            "checkout-api",
		DeprecatedServiceAccount:      "checkout-api",
		NodeName:                      "node-0001",
		SecurityContext:               &v1.PodSecurityContext{RunAsNonRoot: to(true), RunAsUser: to(int64(10001)), FSGroup: to(int64(10001))},
		SchedulerName:                 "default-scheduler",
		Tolerations: []v1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: to(int64(300))},
			{Key: "node.kubernetes.io/unreachable", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: to(int64(300))},
		},
		PriorityClassName:  "business-critical",
		Priority:           to(int32(100000)),
		EnableServiceLinks: to(true),
		PreemptionPolicy:   to(v1.PreemptLowerPriority),
		Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{
				Weight: 100,
				PodAffinityTerm: v1.PodAffinityTerm{
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "checkout-api"}},
					TopologyKey:   "kubernetes.io/hostname",
				},
			}},
		}},
	}
}

// container returns a container with some environment.
func container(name string, environment int) v1.Container {
	c := v1.Container{
		Name:    name,
		Image:   "registry.example.com/checkout/" + name + ":v2.41.7@sha256:9b2f3f6d8c5e4a7b1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b",
		Command: []string{"/usr/local/bin/" + name},
		Args:    []string{"--config=/etc/checkout/config.yaml", "--log-format=json", "--shutdown-timeout=30s"},
		Env: []v1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			{Name: "DB_PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "checkout-db"}, Key: "password",
			}}},
		},
		Resources: v1.ResourceRequirements{
			Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")},
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("512Mi")},
		},
		VolumeMounts: []v1.VolumeMount{
			{Name: "config", MountPath: "/etc/checkout", ReadOnly: true},
			{Name: "tls", MountPath: "/etc/tls", ReadOnly: true},
			{Name: "scratch", MountPath: "/tmp"},
			{Name: "kube-api-access-x7k2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		TerminationMessagePath:   v1.TerminationMessagePathDefault,
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
		ImagePullPolicy:          v1.PullIfNotPresent,
		SecurityContext: &v1.SecurityContext{
			AllowPrivilegeEscalation: to(false),
			ReadOnlyRootFilesystem:   to(true),
			Capabilities:             &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		},
	}
	for i := range environment {
		c.Env = append(c.Env, v1.EnvVar{
			Name:  fmt.Sprintf("CHECKOUT_SETTING_%02d", i),
			Value: fmt.Sprintf("https://service-%02d.internal.example.com/api/v1", i),
		})
	}
	return c
}

// serving gives a container ports and probes.
func serving(c v1.Container, port int32) v1.Container {
	probe := func(path string, period int32) *v1.Probe {
		return &v1.Probe{
			ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
				Path: path, Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTP,
			}},
			TimeoutSeconds: 2, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}
	c.Ports = []v1.ContainerPort{
		{Name: "http", ContainerPort: port, Protocol: v1.ProtocolTCP},
		{Name: "metrics", ContainerPort: port + 1, Protocol: v1.ProtocolTCP},
	}
	c.LivenessProbe = probe("/healthz", 20)
	c.ReadinessProbe = probe("/readyz", 5)
	c.StartupProbe = probe("/startupz", 2)
	return c
}

func status(i int, name string) v1.PodStatus {
	s := v1.PodStatus{
		Phase:     v1.PodRunning,
		HostIP:    "10.0.0.7",
		HostIPs:   []v1.HostIP{{IP: "10.0.0.7"}},
		PodIP:     fmt.Sprintf("10.42.%d.%d", i/250, i%250+1),
		PodIPs:    []v1.PodIP{{IP: fmt.Sprintf("10.42.%d.%d", i/250, i%250+1)}},
		StartTime: to(epoch),
		QOSClass:  v1.PodQOSBurstable,
	}
	for _, condition := range []v1.PodConditionType{
		"PodReadyToStartContainers", v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, v1.PodCondition{
			Type: condition, Status: v1.ConditionTrue, LastTransitionTime: epoch,
		})
	}
	for _, container := range []string{"api", "proxy"} {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{
			Name:        container,
			State:       v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: epoch}},
			Ready:       true,
			Started:     to(true),
			Image:       "registry.example.com/checkout/" + container + ":v2.41.7",
			ImageID:     "registry.example.com/checkout/" + container + "@sha256:9b2f3f6d8c5e4a7b1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b",
			ContainerID: "containerd://" + name + container,
		})
	}
	s.InitContainerStatuses = []v1.ContainerStatus{{
		Name: "migrate",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: epoch, FinishedAt: epoch, ContainerID: "containerd://" + name + "migrate",
		}},
		Ready:       true,
		Started:     to(false),
		Image:       "registry.example.com/checkout/migrate:v2.41.7",
		ImageID:     "registry.example.com/checkout/migrate@sha256:9b2f3f6d8c5e4a7b1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b",
		ContainerID: "containerd://" + name + "migrate",
	}}
	return s
}

func managedFields() []metav1.ManagedFieldsEntry {
	const controller = `{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/component":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9\"}":{}}},"f:spec":{"f:affinity":{".":{},"f:podAntiAffinity":{}},"f:containers":{"k:{\"name\":\"api\"}":{".":{},"f:args":{},"f:command":{},"f:env":{},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{},"f:name":{},"f:ports":{},"f:readinessProbe":{},"f:resources":{},"f:securityContext":{},"f:volumeMounts":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:initContainers":{},"f:nodeSelector":{},"f:priorityClassName":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:serviceAccount":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{}}}`
	const kubelet = `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:initContainerStatuses":{},"f:phase":{},"f:podIP":{},"f:podIPs":{},"f:startTime":{}}}`
	return []metav1.ManagedFieldsEntry{
		{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: to(epoch),
			FieldsType: "FieldsV1", FieldsV1: fields(controller)},
		{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: to(epoch),
			FieldsType: "FieldsV1", FieldsV1: fields(kubelet), Subresource: "status"},
	}
}

// fields returns a field set in the one way that old and new releases share.
func fields(encoded string) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	// It fails for a nil receiver only.
	_ = f.UnmarshalJSON([]byte(encoded))
	return f
}
