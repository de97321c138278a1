package fidelity

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var dryRun = []string{metav1.DryRunAll}

var creates = []Question{
	{Title: "an object", Run: func(a *Session) {
		a.create(configMaps, "{metadata: {name: a, labels: {l: l}, annotations: {k: v}}, data: {k: v}, binaryData: {b: AAEC}}")
		a.get(configMaps, "a")
	}},
	{Title: "generateName: five characters of a fixed alphabet", Run: func(a *Session) {
		a.create(configMaps, "metadata: {generateName: made-}")
		a.create(configMaps, "metadata: {generateName: "+strings.Repeat("long", 15)+"-}")
	}},
	{Title: "one that exists", Run: func(a *Session) {
		several(a, 1)
		a.create(configMaps, "metadata: {name: a}")
		a.create(configMaps, "metadata: {name: a, generateName: b-}")
	}},
	{Title: "system fields are dropped or refused", Run: func(a *Session) {
		a.create(configMaps, "metadata: {name: a, uid: 11111111-2222-3333-4444-555555555555, creationTimestamp: '2001-01-01T00:00:00Z', deletionTimestamp: '2001-01-01T00:00:00Z', generation: 7, selfLink: /nowhere}")
		a.create(configMaps, "metadata: {name: b, resourceVersion: '5'}")
	}},
	{Title: "without a name", Run: func(a *Session) { a.create(configMaps, "{metadata: {}, data: {k: v}}") }},
	{Title: "invalid names, labels, annotations and finalizers", Run: func(a *Session) {
		a.create(configMaps, "metadata: {name: Upper_Case}")
		a.create(configMaps, "metadata: {name: "+strings.Repeat("x", 254)+"}")
		a.create(configMaps, "metadata: {name: a, labels: {'not allowed': v}}")
		a.create(configMaps, "metadata: {name: a, labels: {k: 'not allowed'}}")
		a.create(configMaps, "metadata: {name: a, annotations: {'not allowed': v}}")
		a.create(configMaps, "metadata: {name: a, finalizers: [unqualified]}")
	}},
	{Title: "an owner reference without a uid", Run: func(a *Session) {
		a.create(configMaps, "metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: ''}]}")
	}, Why: "the message is of apimachinery v0.37; kube-apiserver v1.36 has v0.36"},
	{Title: "names of services and namespaces are labels", Run: func(a *Session) {
		a.create(services, "{metadata: {name: a.b}, spec: {ports: [{port: 80}]}}")
		a.create(namespaces, "metadata: {name: a.b}")
	}},
	{Title: "a namespace other than the path's", Run: func(a *Session) { a.create(configMaps, "metadata: {name: a, namespace: elsewhere}") }},
	{Title: "in a missing namespace", Run: func(a *Session) {
		a.request("POST", "/api/v1/namespaces/nowhere/configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	}},
	{Title: "dry run: the answer without the object", Run: func(a *Session) {
		a.createWith(configMaps, "{metadata: {name: a}, data: {k: v}}", metav1.CreateOptions{DryRun: dryRun})
		a.get(configMaps, "a")
		a.createWith(configMaps, "metadata: {name: a}", metav1.CreateOptions{DryRun: []string{"Sometimes"}})
	}},
	{Title: "dry run of one that exists", Run: func(a *Session) {
		several(a, 1)
		a.createWith(configMaps, "metadata: {name: a}", metav1.CreateOptions{DryRun: dryRun})
	}},
	{Title: "field manager: named, too long, not printable", Run: func(a *Session) {
		a.createWith(configMaps, "{metadata: {name: a}, data: {k: v}}", metav1.CreateOptions{FieldManager: "me"})
		a.createWith(configMaps, "metadata: {name: b}", metav1.CreateOptions{FieldManager: strings.Repeat("x", 129)})
		a.createWith(configMaps, "metadata: {name: b}", metav1.CreateOptions{FieldManager: "a\nb"})
	}},
	{Title: "a complete pod: its initial status", Run: func(a *Session) { a.create(pods, aPod("a", "")) }},
	{Title: "a pod with defaults", Run: func(a *Session) {
		a.create(pods, "{metadata: {name: a}, spec: {containers: [{name: main, image: 'example.com/app:1'}]}}")
	}, Why: "no defaults of built-in kinds and no admission (service account, tolerations, priority)"},
	{Title: "a complete deployment", Run: func(a *Session) { a.create(deployments, aDeployment("a")) }},
	{Title: "a secret from stringData", Run: func(a *Session) {
		a.create(secrets, "{metadata: {name: a}, type: Opaque, stringData: {k: v}, data: {b: AAEC}}")
		a.create(secrets, "{metadata: {name: b}, stringData: {k: v}}")
	}},
	{Title: "a service", Run: func(a *Session) {
		a.create(services, "{metadata: {name: a}, spec: {selector: {app: a}, ports: [{port: 80, targetPort: 80, protocol: TCP}], type: ClusterIP, clusterIP: None}}")
	}, Why: "no defaults of built-in kinds, and no allocation of addresses"},
	{Title: "an invalid built-in object", Run: func(a *Session) {
		a.create(pods, "{metadata: {name: a}, spec: {containers: []}}")
		a.create(configMaps, "{metadata: {name: a}, data: {'not allowed': v}}")
	}, Why: "no validation of built-in kinds beyond their metadata"},
	{Title: "a namespace", Run: func(a *Session) { a.create(namespaces, "metadata: {name: "+a.namespace+"-b}") }},
	{Title: "two owner references to the same: a warning", Run: func(a *Session) {
		ref := "{apiVersion: v1, kind: ConfigMap, name: o, uid: 11111111-2222-3333-4444-555555555555}"
		a.create(configMaps, "metadata: {name: a, ownerReferences: ["+ref+", "+ref+"]}")
	}},
	{Title: "an object of 2 MB", Run: func(a *Session) {
		a.request("POST", "configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 2<<20)+`"}}`)
	}, Why: "no validation of built-in kinds, and no etcd, which takes 1.5 MB"},
	{Title: "a body of more than 3 MB", Run: func(a *Session) {
		a.request("POST", "configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 3<<20)+`"}}`)
	}},
}

var updates = []Question{
	{Title: "an object at its current version", Run: func(a *Session) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		u.Object["data"] = map[string]any{"k": "w"}
		a.update(configMaps, u)
		a.get(configMaps, "a")
	}},
	{Title: "an old version: a conflict", Run: func(a *Session) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		a.changed(configMaps, "a", `{"data":{"k":"w"}}`)
		a.update(configMaps, u)
	}},
	{Title: "no version: unconditional replacement", Run: func(a *Session) {
		several(a, 1)
		a.update(configMaps, a.object(configMaps, "{metadata: {name: a}, data: {only: this}}"))
	}},
	{Title: "no version of a lease or a custom resource: refused", Run: func(a *Session) {
		a.given(leases, "{metadata: {name: a}, spec: {holderIdentity: me}}")
		a.update(leases, a.object(leases, "{metadata: {name: a}, spec: {holderIdentity: you}}"))
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.update(widgets, a.object(widgets, "{metadata: {name: a}, spec: {size: large}}"))
	}},
	{Title: "no change: the version stays", Run: func(a *Session) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		a.update(configMaps, u)
		a.get(configMaps, "a")
	}},
	{Title: "another uid", Run: func(a *Session) {
		several(a, 1)
		a.update(configMaps, a.object(configMaps, "metadata: {name: a, uid: 11111111-2222-3333-4444-555555555555}"))
	}},
	{Title: "a missing one: not found, or created", Run: func(a *Session) {
		a.update(configMaps, a.object(configMaps, "metadata: {name: a}"))
		a.update(leases, a.object(leases, "{metadata: {name: a}, spec: {holderIdentity: me}}"))
		a.update(widgets, a.object(widgets, "{metadata: {name: a}, spec: {size: small}}"))
	}},
	{Title: "a name or namespace other than the path's", Run: func(a *Session) {
		several(a, 1)
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`)
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`)
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`)
	}},
	{Title: "dry run", Run: func(a *Session) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		u.Object["data"] = map[string]any{"k": "w"}
		got, err := a.of(configMaps).Update(a.ctx, u, metav1.UpdateOptions{DryRun: dryRun})
		a.decodes("dry run", got, err)
		a.get(configMaps, "a")
	}},
	{Title: "system fields are restored", Run: func(a *Session) {
		u := a.given(configMaps, "metadata: {name: a}")
		u.SetCreationTimestamp(metav1.Date(2001, 1, 1, 0, 0, 0, 0, metav1.Now().Location()))
		u.SetGeneration(9)
		u.SetLabels(map[string]string{"l": "l"})
		a.update(configMaps, u)
	}},
	{Title: "the generation rises with the spec only", Run: func(a *Session) {
		u := a.given(deployments, aDeployment("a"))
		u.SetLabels(map[string]string{"l": "l"})
		u = a.update(deployments, u)
		u.SetAnnotations(map[string]string{"k": "v"})
		a.update(deployments, u)
		w := a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		w.SetLabels(map[string]string{"l": "l"})
		w = a.update(widgets, w)
		w.Object["spec"] = map[string]any{"size": "large"}
		a.update(widgets, w)
	}},
	{Title: "an immutable config map", Run: func(a *Session) {
		a.given(configMaps, "{metadata: {name: a}, immutable: true, data: {k: v}}")
		a.update(configMaps, a.object(configMaps, "{metadata: {name: a}, immutable: true, data: {k: w}}"))
	}, Why: "no validation of built-in kinds beyond their metadata"},
}
