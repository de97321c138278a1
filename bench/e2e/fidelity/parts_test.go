package fidelity

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

var subresources = []Question{
	{Title: "status: written through its path only", Run: func(a *Session) {
		u := a.given(widgets, "{metadata: {name: a}, spec: {size: small}, status: {phase: dropped}}")
		u.Object["status"] = map[string]any{"phase": "on"}
		u.Object["spec"] = map[string]any{"size": "large"}
		u = a.update(widgets, u, "status")
		u.Object["status"] = map[string]any{"phase": "ignored"}
		a.update(widgets, u)
		a.patch(widgets, "a", mergePatch, `{"status":{"phase":"off"},"spec":{"size":"large"}}`, "status")
		a.get(widgets, "a", "status")
	}},
	{Title: "status of a pod: strategic, by condition type", Run: func(a *Session) {
		a.given(pods, aPod("a", "n1"))
		a.patch(pods, "a", strategic, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]},"spec":{"nodeName":"other"}}`, "status")
		a.patch(pods, "a", strategic, `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Initialized","status":"True"}]}}`, "status")
		a.get(pods, "a", "status")
	}},
	{Title: "status of a deployment: the generation stays", Run: func(a *Session) {
		a.given(deployments, aDeployment("a"))
		a.patch(deployments, "a", mergePatch, `{"metadata":{"labels":{"l":"l"},"annotations":{"k":"v"}},"status":{"replicas":2,"observedGeneration":1}}`, "status")
	}},
	{Title: "status with an old version: a conflict", Run: func(a *Session) {
		u := a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.changed(widgets, "a", `{"spec":{"size":"large"}}`)
		u.Object["status"] = map[string]any{"phase": "on"}
		a.update(widgets, u, "status")
	}},
	{Title: "status of a node", Run: func(a *Session) {
		name := a.namespace + "-node"
		a.given(nodes, "metadata: {name: "+name+"}")
		a.patch(nodes, name, strategic, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}],"capacity":{"cpu":"2","pods":"110"}}}`, "status")
		a.delete(nodes, name, metav1.DeleteOptions{})
	}, Why: "admission taints a new node, and a default copies its capacity to allocatable"},
	{Title: "scale of a deployment: get, update, patch, apply", Run: func(a *Session) {
		a.given(deployments, aDeployment("a"))
		s := a.get(deployments, "a", "scale")
		s.Object["spec"] = map[string]any{"replicas": int64(5)}
		a.update(deployments, s, "scale")
		a.patch(deployments, "a", mergePatch, `{"spec":{"replicas":7}}`, "scale")
		a.patch(deployments, "a", mergePatch, `{"spec":{"replicas":-1}}`, "scale")
		a.get(deployments, "a")
	}},
	{Title: "scale of a custom resource", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.changed(widgets, "a", `{"status":{"replicas":1,"selector":"app=a"}}`, "status")
		s := a.get(widgets, "a", "scale")
		s.Object["spec"] = map[string]any{"replicas": int64(5)}
		a.update(widgets, s, "scale")
		a.patch(widgets, "a", mergePatch, `{"spec":{"replicas":7}}`, "scale")
		a.patch(widgets, "a", mergePatch, `{"spec":{"replicas":-1}}`, "scale")
	}},
	{Title: "scale with an old version, of a missing object", Run: func(a *Session) {
		a.given(deployments, aDeployment("a"))
		s := a.get(deployments, "a", "scale")
		a.changed(deployments, "a", `{"spec":{"replicas":4}}`)
		s.Object["spec"] = map[string]any{"replicas": int64(5)}
		a.update(deployments, s, "scale")
		a.get(deployments, "b", "scale")
	}},
	{Title: "binding of a pod", Run: func(a *Session) {
		a.given(pods, `{metadata: {name: a}, spec: {automountServiceAccountToken: false, containers: [{name: main, image: 'example.com/app:1'}]}}`)
		a.createWith(pods, "{apiVersion: v1, kind: Binding, metadata: {name: a}, target: {kind: Node, name: n1}}", metav1.CreateOptions{}, "binding")
		p := a.get(pods, "a")
		status, _ := p.Object["status"].(map[string]any)
		a.say("status", map[string]any{"conditions": status["conditions"]})
		a.createWith(pods, "{apiVersion: v1, kind: Binding, metadata: {name: a}, target: {kind: Node, name: n2}}", metav1.CreateOptions{}, "binding")
		a.createWith(pods, "{apiVersion: v1, kind: Binding, metadata: {name: b}, target: {kind: Node, name: n2}}", metav1.CreateOptions{}, "binding")
	}, Why: "no defaults of built-in kinds, which the bound pod shows"},
	{Title: "eviction of a pod", Run: func(a *Session) {
		a.given(pods, aPod("a", ""))
		a.createWith(pods, "{apiVersion: policy/v1, kind: Eviction, metadata: {name: a}}", metav1.CreateOptions{DryRun: dryRun}, "eviction")
		a.createWith(pods, "{apiVersion: policy/v1, kind: Eviction, metadata: {name: a}}", metav1.CreateOptions{}, "eviction")
		a.get(pods, "a")
		a.createWith(pods, "{apiVersion: policy/v1, kind: Eviction, metadata: {name: b}}", metav1.CreateOptions{}, "eviction")
	}},
	{Title: "ephemeral containers of a pod", Run: func(a *Session) {
		a.given(pods, aPod("a", "n1"))
		a.patch(pods, "a", strategic, `{"spec":{"ephemeralContainers":[{"name":"debug","image":"example.com/debug:1","imagePullPolicy":"IfNotPresent","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]}}`, "ephemeralcontainers")
	}},
	{Title: "a token of a service account", Run: func(a *Session) {
		a.createWith(serviceAccounts, "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: default}, spec: {audiences: [a]}}", metav1.CreateOptions{}, "token")
	}, Why: "no component verifies tokens of a simulated server"},
	{Title: "an unsupported one", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a/status", nil, "")
		a.request("GET", "configmaps/a/nonsense", nil, "")
		a.request("GET", "configmaps/a/status/more", nil, "")
	}},
	{Title: "finalize of a namespace", Run: func(a *Session) {
		u := a.given(namespaces, "metadata: {name: "+a.namespace+"-f}")
		a.update(namespaces, u, "finalize")
	}},
}

var customs = []Question{
	{Title: "defaults, pruning, generation", Run: func(a *Session) {
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, unknown: 1, parts: [{name: p}]}, status: {phase: dropped}, beside: 1}")
		a.get(widgets, "a")
	}},
	{Title: "validation by the schema", Run: func(a *Session) {
		a.create(widgets, "{metadata: {name: a}}")
		a.create(widgets, "{metadata: {name: a}, spec: {}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: medium}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, replicas: many}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, replicas: -1}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, color: UPPER}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, color: muchtoolong}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, parts: [{name: p}, {name: p}]}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, tags: [x, x]}}")
		a.create(widgets, "{metadata: {name: a}, spec: {size: small, port: [1]}}")
	}},
	{Title: "an invalid update, and one without changes", Run: func(a *Session) {
		u := a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.update(widgets, u)
		u.Object["spec"] = map[string]any{"size": "medium"}
		a.update(widgets, u)
		a.patch(widgets, "a", mergePatch, `{"spec":null}`)
	}},
	{Title: "the other version: written in one, read in the other", Run: func(a *Session) {
		a.create(olderWidgets, "{metadata: {name: a}, spec: {size: small}}")
		a.get(widgets, "a")
		a.get(olderWidgets, "a")
		a.list(olderWidgets, metav1.ListOptions{})
		a.patch(olderWidgets, "a", mergePatch, `{"spec":{"size":"large"}}`)
	}},
	{Title: "a definition: names are accepted, it is established", Run: func(a *Session) {
		const name = "gadgets.fidelity.watchlab.dev"
		u := a.create(definitions, gadget)
		a.decodes("spec", u, nil)
		a.delete(definitions, name, metav1.DeleteOptions{})
	}, Why: "the definition is established and deleted at once; kube-apiserver establishes it in the background, and a finalizer keeps it until its objects are deleted"},
	{Title: "invalid definitions", Run: func(a *Session) {
		a.create(definitions, "{metadata: {name: wrong.fidelity.watchlab.dev}, spec: {group: fidelity.watchlab.dev, scope: Namespaced, names: {plural: gizmos, kind: Gizmo}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}")
		a.create(definitions, "{metadata: {name: gizmos.fidelity.watchlab.dev}, spec: {group: fidelity.watchlab.dev, scope: Somewhere, names: {plural: gizmos, kind: Gizmo}, versions: [{name: v1, served: true, storage: false}]}}")
	}, Why: "the same fields are refused, with another message"},
}

const gadget = `
metadata: {name: gadgets.fidelity.watchlab.dev}
spec:
  group: fidelity.watchlab.dev
  scope: Cluster
  names: {plural: gadgets, kind: Gadget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

var validations = []Question{
	{Title: "unknown fields of a built-in kind: Strict, Warn, Ignore, default", Run: func(a *Session) {
		for _, v := range []string{"Strict", "Warn", "Ignore", ""} {
			a.createWith(configMaps, "{metadata: {generateName: a-, unknown: 1}, data: {k: v}, also: unknown}", metav1.CreateOptions{FieldValidation: v})
		}
	}},
	{Title: "deeply nested unknown fields of a pod", Run: func(a *Session) {
		a.createWith(pods, "{metadata: {name: a}, spec: {containers: [{name: main, image: i, imagePullPolicyy: Always}], nodeNam: n}}", metav1.CreateOptions{FieldValidation: "Strict"})
	}},
	{Title: "unknown fields of a custom resource", Run: func(a *Session) {
		for _, v := range []string{"Strict", "Warn", "Ignore", ""} {
			a.createWith(widgets, "{metadata: {generateName: a-, unknown: 1}, spec: {size: small, unknown: 1, parts: [{name: p, unknown: 1}]}, also: unknown}", metav1.CreateOptions{FieldValidation: v})
		}
	}},
	{Title: "duplicate fields", Run: func(a *Session) {
		for _, v := range []string{"Strict", "Warn", "Ignore"} {
			a.request("POST", "configmaps", header("Content-Type", "application/json"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"},"data":{"k":"v","k":"w"},"data":{"l":"m"}}`, "fieldValidation", v)
			a.request("POST", "/apis/fidelity.watchlab.dev/v1/namespaces/"+a.namespace+"/widgets", header("Content-Type", "application/json"), `{"apiVersion":"fidelity.watchlab.dev/v1","kind":"Widget","metadata":{"generateName":"a-"},"spec":{"size":"small","size":"large"}}`, "fieldValidation", v)
		}
	}},
	{Title: "as YAML", Run: func(a *Session) {
		for _, v := range []string{"Strict", "Warn"} {
			a.request("POST", "configmaps", header("Content-Type", "application/yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  generateName: a-\ndata:\n  k: v\n  k: w\nunknown: 1\n", "fieldValidation", v)
		}
	}},
	{Title: "of updates and patches", Run: func(a *Session) {
		u := a.given(configMaps, "metadata: {name: a}")
		u.Object["unknown"] = "1"
		for _, v := range []string{"Strict", "Warn"} {
			got, err := a.of(configMaps).Update(a.ctx, u, metav1.UpdateOptions{FieldValidation: v})
			_, _ = got, err // The recorder has the answer.
			a.patchWith(configMaps, "a", mergePatch, `{"unknown":1,"metadata":{"alsoUnknown":1}}`, metav1.PatchOptions{FieldValidation: v})
			a.patchWith(configMaps, "a", jsonPatch, `[{"op":"add","path":"/unknown","value":1}]`, metav1.PatchOptions{FieldValidation: v})
			a.patchWith(configMaps, "a", strategic, `{"unknown":1}`, metav1.PatchOptions{FieldValidation: v})
		}
	}},
	{Title: "of patches of a custom resource", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		for _, v := range []string{"Strict", "Warn"} {
			a.patchWith(widgets, "a", mergePatch, `{"spec":{"unknown":1}}`, metav1.PatchOptions{FieldValidation: v})
			a.patchWith(widgets, "a", jsonPatch, `[{"op":"add","path":"/spec/unknown","value":1}]`, metav1.PatchOptions{FieldValidation: v})
		}
	}},
	{Title: "an unknown value", Run: func(a *Session) {
		a.createWith(configMaps, "metadata: {name: a}", metav1.CreateOptions{FieldValidation: "Sometimes"})
	}},
	{Title: "a field of the wrong type", Run: func(a *Session) {
		a.create(configMaps, "{metadata: {name: a}, data: text}")
		a.create(configMaps, "{metadata: {name: a}, data: {k: 1}}")
		a.create(configMaps, "{metadata: {name: a, labels: [l]}}")
		a.create(pods, "{metadata: {name: a}, spec: {containers: {}}}")
		a.create(widgets, "{metadata: {name: a, labels: [l]}, spec: {size: small}}")
	}},
}
