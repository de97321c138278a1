package resources

import "testing"

func TestBuiltins(t *testing.T) {
	reg := New()
	for _, want := range []struct {
		group, version, resource, kind, singular string
		namespaced, status                       bool
	}{
		{"", "v1", "pods", "Pod", "pod", true, true},
		{"", "v1", "nodes", "Node", "node", false, true},
		{"", "v1", "endpoints", "Endpoints", "endpoints", true, false},
		{"apps", "v1", "deployments", "Deployment", "deployment", true, true},
		{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "networkpolicy", true, false},
		{"coordination.k8s.io", "v1", "leases", "Lease", "lease", true, false},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", "customresourcedefinition", false, true},
	} {
		got, ok := reg.Lookup(want.group, want.version, want.resource)
		if !ok {
			t.Errorf("no %s", want.resource)
			continue
		}
		if got.GVK.Kind != want.kind || got.Singular != want.singular || got.Namespaced != want.namespaced || got.HasStatus() != want.status {
			t.Errorf("%s = %+v", want.resource, got)
		}
		if byKind, ok := reg.ByKind(got.GVK); !ok || byKind != got {
			t.Errorf("ByKind(%v) = %v, %v", got.GVK, byKind, ok)
		}
	}
}
