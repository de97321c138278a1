package discovery

// optional are the fields that may be left out although their Go tags have no
// omitempty: the API's types say so in a comment, which a binary doesn't have.
// They are what a comparison with kube-apiserver v1.36.3 leaves over.
var optional = map[string][]string{
	"io.k8s.api.apps.v1.ControllerRevision":                       {"data"},
	"io.k8s.api.apps.v1.StatefulSetOrdinals":                      {"start"},
	"io.k8s.api.apps.v1.StatefulSetSpec":                          {"serviceName"},
	"io.k8s.api.apps.v1.StatefulSetStatus":                        {"availableReplicas"},
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus":     {"currentMetrics"},
	"io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern":  {"status"},
	"io.k8s.api.core.v1.AzureFilePersistentVolumeSource":          {"secretNamespace"},
	"io.k8s.api.core.v1.ContainerImage":                           {"names"},
	"io.k8s.api.core.v1.Event":                                    {"reportingComponent", "reportingInstance"},
	"io.k8s.api.core.v1.GRPCAction":                               {"service"},
	"io.k8s.api.core.v1.NodeRuntimeHandler":                       {"name"},
	"io.k8s.api.core.v1.ProjectedVolumeSource":                    {"sources"},
	"io.k8s.api.core.v1.TypedLocalObjectReference":                {"apiGroup"},
	"io.k8s.api.core.v1.TypedObjectReference":                     {"apiGroup"},
	"io.k8s.api.discovery.v1.EndpointSlice":                       {"endpoints", "ports"},
	"io.k8s.api.events.v1.Event":                                  {"metadata"},
	"io.k8s.api.flowcontrol.v1.FlowSchemaSpec":                    {"matchingPrecedence"},
	"io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration": {"nominalConcurrencyShares"},
	"io.k8s.api.flowcontrol.v1.QueuingConfiguration":              {"handSize", "queueLengthLimit", "queues"},
	"io.k8s.api.flowcontrol.v1.ResourcePolicyRule":                {"namespaces"},
	"io.k8s.api.networking.v1.IngressClassParametersReference":    {"scope"},
	"io.k8s.api.networking.v1.NetworkPolicySpec":                  {"podSelector"},
	"io.k8s.api.policy.v1.PodDisruptionBudgetStatus":              {"currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"},
	"io.k8s.api.rbac.v1.ClusterRole":                              {"rules"},
	"io.k8s.api.rbac.v1.Role":                                     {"rules"},
	"io.k8s.api.rbac.v1.RoleRef":                                  {"apiGroup"},
	"io.k8s.api.resource.v1.AllocatedDeviceStatus":                {"conditions"},
	"io.k8s.api.resource.v1.CapacityRequestPolicy":                {"default"},
	"io.k8s.api.resource.v1.DeviceClaim":                          {"requests"},
	"io.k8s.api.resource.v1.ResourceClaimSpec":                    {"devices"},
	"io.k8s.api.scheduling.v1.PriorityClass":                      {"value"},
	"io.k8s.api.storage.v1.CSINodeDriver":                         {"topologyKeys"},
}
