package resources

import "k8s.io/apimachinery/pkg/runtime/schema"

// Discovery of kube-apiserver v1.36 that client-go lacks. The tests compare it with
// the recorded discovery in testdata.

// groupOrder is the order of the groups in discovery.
var groupOrder = []string{
	"", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
	"certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io",
	"node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
	"internal.apiserver.k8s.io", "storagemigration.k8s.io", "lifecycle.k8s.io", "extensions",
}

func core(name string) schema.GroupResource { return schema.GroupResource{Resource: name} }
func in(group, name string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: name}
}

var shortNames = map[schema.GroupResource][]string{
	core("componentstatuses"):      {"cs"},
	core("configmaps"):             {"cm"},
	core("endpoints"):              {"ep"},
	core("events"):                 {"ev"},
	core("limitranges"):            {"limits"},
	core("namespaces"):             {"ns"},
	core("nodes"):                  {"no"},
	core("persistentvolumeclaims"): {"pvc"},
	core("persistentvolumes"):      {"pv"},
	core("pods"):                   {"po"},
	core("replicationcontrollers"): {"rc"},
	core("resourcequotas"):         {"quota"},
	core("serviceaccounts"):        {"sa"},
	core("services"):               {"svc"},

	in("apps", "daemonsets"):   {"ds"},
	in("apps", "deployments"):  {"deploy"},
	in("apps", "replicasets"):  {"rs"},
	in("apps", "statefulsets"): {"sts"},

	in("autoscaling", "horizontalpodautoscalers"):           {"hpa"},
	in("batch", "cronjobs"):                                 {"cj"},
	in("certificates.k8s.io", "certificatesigningrequests"): {"csr"},
	in("events.k8s.io", "events"):                           {"ev"},
	in("networking.k8s.io", "ingresses"):                    {"ing"},
	in("networking.k8s.io", "ipaddresses"):                  {"ip"},
	in("networking.k8s.io", "networkpolicies"):              {"netpol"},
	in("policy", "poddisruptionbudgets"):                    {"pdb"},
	in("scheduling.k8s.io", "priorityclasses"):              {"pc"},
	in("storage.k8s.io", "storageclasses"):                  {"sc"},
	in("storage.k8s.io", "volumeattributesclasses"):         {"vac"},
	in("apiextensions.k8s.io", "customresourcedefinitions"): {"crd", "crds"},
}

var categories = map[schema.GroupResource][]string{
	core("pods"):                   {"all"},
	core("replicationcontrollers"): {"all"},
	core("services"):               {"all"},

	in("apps", "daemonsets"):   {"all"},
	in("apps", "deployments"):  {"all"},
	in("apps", "replicasets"):  {"all"},
	in("apps", "statefulsets"): {"all"},

	in("autoscaling", "horizontalpodautoscalers"): {"all"},
	in("batch", "cronjobs"):                       {"all"},
	in("batch", "jobs"):                           {"all"},

	in("admissionregistration.k8s.io", "mutatingwebhookconfigurations"):     {"api-extensions"},
	in("admissionregistration.k8s.io", "validatingadmissionpolicies"):       {"api-extensions"},
	in("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {"api-extensions"},
	in("admissionregistration.k8s.io", "mutatingadmissionpolicies"):         {"api-extensions"},
	in("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"):   {"api-extensions"},
	in("admissionregistration.k8s.io", "validatingwebhookconfigurations"):   {"api-extensions"},
	in("apiextensions.k8s.io", "customresourcedefinitions"):                 {"api-extensions"},
}

// serverVerbs lists resources whose verbs differ from the methods of client-go's
// client.
var serverVerbs = map[schema.GroupResource][]string{
	core("componentstatuses"): {Get, List},
	core("services"):          {Create, Delete, DeleteCollection, Get, List, Patch, Update, Watch},
}
