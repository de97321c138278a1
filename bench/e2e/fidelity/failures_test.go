package fidelity

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var failures = []Question{
	{Title: "a missing object", Run: func(a *Session) {
		a.get(configMaps, "missing")
		a.get(deployments, "missing")
		a.get(widgets, "missing")
		a.get(namespaces, "missing")
	}},
	{Title: "a missing resource, group, version", Run: func(a *Session) {
		for _, path := range []string{"/api/v1/nonsense", "/api/v1/namespaces/default/nonsense/a", "/api/v7/pods", "/apis/apps/v7/deployments", "/apis/nonsense.io/v1/things", "/apis/fidelity.watchlab.dev/v1/nonsense", "/nonsense", "/api/v1/namespaces/default/nodes"} {
			a.request("GET", path, nil, "")
		}
	}},
	{Title: "an unsupported method", Run: func(a *Session) {
		several(a, 1)
		a.request("POST", "configmaps/a", nil, `{}`)
		a.request("PUT", "configmaps", nil, `{}`)
		a.request("PATCH", "configmaps", header("Content-Type", "application/merge-patch+json"), `{}`)
		a.request("DELETE", "/api/v1/namespaces", nil, "")
	}},
	{Title: "invalid label selectors", Run: func(a *Session) {
		for _, s := range []string{"a in", "a=b=c", "=", "a in ()", "UPPER/case/too=1", "a=not allowed"} {
			a.list(configMaps, metav1.ListOptions{LabelSelector: s})
		}
		a.watch(configMaps, metav1.ListOptions{LabelSelector: "a in"})
	}},
	{Title: "invalid field selectors", Run: func(a *Session) {
		for _, s := range []string{"nonsense=1", "metadata.name", "data.k=v", "metadata.labels=v"} {
			a.list(configMaps, metav1.ListOptions{FieldSelector: s})
		}
		a.watch(configMaps, metav1.ListOptions{FieldSelector: "nonsense=1"})
		a.list(widgets, metav1.ListOptions{FieldSelector: "spec.color=red"})
		a.list(pods, metav1.ListOptions{FieldSelector: "spec.nonsense=1"})
	}},
	{Title: "invalid continue tokens", Run: func(a *Session) {
		for _, token := range []string{"nonsense!", "bm9uc2Vuc2U", "eyJ2IjoidjAiLCJydiI6MSwic3RhcnQiOiJhIn0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0"} {
			a.list(configMaps, metav1.ListOptions{Continue: token, Limit: 1})
		}
	}},
	{Title: "invalid versions", Run: func(a *Session) {
		for _, v := range []string{"nonsense", "-1", "1.5"} {
			a.list(configMaps, metav1.ListOptions{ResourceVersion: v})
			a.watch(configMaps, metav1.ListOptions{ResourceVersion: v})
		}
		a.request("GET", "configmaps/a", nil, "", "resourceVersion", "nonsense")
	}},
	{Title: "parameters that are not numbers, or negative", Run: func(a *Session) {
		a.request("GET", "configmaps", nil, "", "limit", "many")
		a.request("GET", "configmaps", nil, "", "limit", "-1")
		a.request("GET", "configmaps", nil, "", "timeoutSeconds", "soon")
		a.request("GET", "configmaps", nil, "", "timeoutSeconds", "-1")
		a.request("GET", "configmaps", nil, "", "nonsense", "ignored")
	}},
	{Title: "parameters that are not booleans", Run: func(a *Session) {
		a.request("GET", "configmaps", nil, "", "allowWatchBookmarks", "maybe")
	}},
	{Title: "a body that is not an object", Run: func(a *Session) {
		for _, body := range []string{"nonsense", "{", "[]", `"text"`, "null", "{}"} {
			a.request("POST", "configmaps", header("Content-Type", "application/json"), body)
		}
		a.request("POST", "configmaps", header("Content-Type", "application/json"), "")
	}},
	{Title: "a body of another kind or version", Run: func(a *Session) {
		for _, body := range []string{
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`,
			`{"apiVersion":"v7","kind":"ConfigMap","metadata":{"name":"a"}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"}}`,
			`{"apiVersion":"nonsense.io/v1","kind":"Thing","metadata":{"name":"a"}}`,
			`{"kind":"ConfigMap","metadata":{"name":"a"}}`,
			`{"apiVersion":"v1","metadata":{"name":"a"}}`,
		} {
			a.request("POST", "configmaps", header("Content-Type", "application/json"), body)
		}
	}},
	{Title: "the same of a custom resource", Run: func(a *Session) {
		path := "/apis/fidelity.watchlab.dev/v1/namespaces/" + a.namespace + "/widgets"
		for _, body := range []string{
			"nonsense", "{}", "[]", "null", "",
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`,
			`{"apiVersion":"fidelity.watchlab.dev/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"size":"small"}}`,
			`{"apiVersion":"fidelity.watchlab.dev/v1beta1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":"small"}}`,
		} {
			a.request("POST", path, header("Content-Type", "application/json"), body)
		}
	}},
	{Title: "a custom resource of a missing version", Run: func(a *Session) {
		a.request("POST", "/apis/fidelity.watchlab.dev/v1/namespaces/"+a.namespace+"/widgets", header("Content-Type", "application/json"),
			`{"apiVersion":"fidelity.watchlab.dev/v7","kind":"Widget","metadata":{"name":"a"},"spec":{"size":"small"}}`)
	}, Why: "kube-apiserver first prunes it by a missing schema and warns of all its fields"},
	{Title: "invalid options", Run: func(a *Session) {
		several(a, 1)
		a.request("POST", "configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, "dryRun", "Some")
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "dryRun", "Some")
		a.request("DELETE", "configmaps/a", nil, "", "dryRun", "Some")
		a.request("DELETE", "configmaps/a", nil, `{"gracePeriodSeconds":-5}`)
	}},
}

var discoveries = []Question{
	{Title: "groups and their versions", Run: func(a *Session) {
		a.request("GET", "/api", nil, "")
		a.request("GET", "/apis", header("Accept", "application/json"), "")
		a.request("GET", "/apis/apps", nil, "")
		a.request("GET", "/apis/fidelity.watchlab.dev", nil, "")
	}, Why: "no aggregation layer; token and access reviews are served but not listed; client-go v0.37 has storagemigration.k8s.io/v1, which v1.36 lacks. The server's address is not listed either"},
	{Title: "resources of core, apps and a custom group", Run: func(a *Session) {
		a.request("GET", "/api/v1", nil, "")
		a.request("GET", "/apis/apps/v1", nil, "")
		a.request("GET", "/apis/fidelity.watchlab.dev/v1", nil, "")
		a.request("GET", "/apis/fidelity.watchlab.dev/v1beta1", nil, "")
	}, Why: "no hashes of storage versions; no subresources that need a kubelet (log, exec, attach, portforward, proxy), no bindings, component statuses and tokens; verbs and subresources of custom resources are sorted here"},
	{Title: "all preferred resources, as client-go finds them", Run: func(a *Session) {
		lists, err := a.server.discovery.ServerPreferredResources()
		said := map[string]any{}
		for _, l := range lists {
			for _, r := range l.APIResources {
				said[l.GroupVersion+" "+r.Name] = asMap(&r)
			}
		}
		if err != nil {
			said["error"] = err.Error()
		}
		a.say("resources", said)
	}, Why: "as above; and client-go v0.37 has four kinds that v1.36 lacks"},
	{Title: "health", Run: func(a *Session) {
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			a.request("GET", path, nil, "")
		}
	}},
	{Title: "paths of OpenAPI v3", Run: func(a *Session) {
		paths, err := a.server.discovery.OpenAPIV3().Paths()
		said := map[string]any{}
		for p := range paths {
			said[p] = true
		}
		if err != nil {
			said["error"] = err.Error()
		}
		a.say("paths", said)
	}, Why: "only versions of groups have documents"},
}

var beside = []Question{
	{Title: "deletion of a namespace: terminating, until it is empty", Run: func(a *Session) {
		name := a.namespace + "-gone"
		a.given(namespaces, "metadata: {name: "+name+"}")
		a.givenIn(name, configMaps, "metadata: {name: held, finalizers: [example.com/hold]}")
		a.delete(namespaces, name, metav1.DeleteOptions{})
		a.request("POST", "/api/v1/namespaces/"+name+"/configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
		a.delete(namespaces, name, metav1.DeleteOptions{})
	}},
	{Title: "the default namespace can't be deleted", Run: func(a *Session) {
		a.delete(namespaces, "kube-system", metav1.DeleteOptions{})
	}},
	{Title: "access reviews", Run: func(a *Session) {
		review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`
		a.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, review)
	}, Why: "every user may do everything: the reason differs"},
}
