package fidelity

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var dryRun = []string{metav1.DryRunAll}

var creates = []Question{
	{Asked: "an object", Ask: func(a *Asker) {
		a.create(configMaps, "{metadata: {name: a, labels: {l: l}, annotations: {k: v}}, data: {k: v}, binaryData: {b: AAEC}}")
		a.get(configMaps, "a")
	}},
	{Asked: "generateName: five characters of a certain alphabet", Ask: func(a *Asker) {
		a.create(configMaps, "metadata: {generateName: made-}")
		a.create(configMaps, "metadata: {generateName: "+strings.Repeat("long", 15)+"-}")
	}},
	{Asked: "one that exists", Ask: func(a *Asker) {
		several(a, 1)
		a.create(configMaps, "metadata: {name: a}")
		a.create(configMaps, "metadata: {name: a, generateName: b-}")
	}},
	{Asked: "what only the system sets is dropped, or refused", Ask: func(a *Asker) {
		a.create(configMaps, "metadata: {name: a, uid: 11111111-2222-3333-4444-555555555555, creationTimestamp: '2001-01-01T00:00:00Z', deletionTimestamp: '2001-01-01T00:00:00Z', generation: 7, selfLink: /nowhere}")
		a.create(configMaps, "metadata: {name: b, resourceVersion: '5'}")
	}},
	{Asked: "without a name", Ask: func(a *Asker) { a.create(configMaps, "{metadata: {}, data: {k: v}}") }},
	{Asked: "names, labels, annotations and finalizers that are not allowed", Ask: func(a *Asker) {
		a.create(configMaps, "metadata: {name: Upper_Case}")
		a.create(configMaps, "metadata: {name: "+strings.Repeat("x", 254)+"}")
		a.create(configMaps, "metadata: {name: a, labels: {'not allowed': v}}")
		a.create(configMaps, "metadata: {name: a, labels: {k: 'not allowed'}}")
		a.create(configMaps, "metadata: {name: a, annotations: {'not allowed': v}}")
		a.create(configMaps, "metadata: {name: a, finalizers: [unqualified]}")
	}},
	{Asked: "an owner reference without a uid", Ask: func(a *Asker) {
		a.create(configMaps, "metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: ''}]}")
	}, Why: "the words are those of apimachinery v0.37, which is built in here, and kube-apiserver v1.36 has v0.36"},
	{Asked: "names of services and namespaces are labels", Ask: func(a *Asker) {
		a.create(services, "{metadata: {name: a.b}, spec: {ports: [{port: 80}]}}")
		a.create(namespaces, "metadata: {name: a.b}")
	}},
	{Asked: "another namespace than the path's", Ask: func(a *Asker) { a.create(configMaps, "metadata: {name: a, namespace: elsewhere}") }},
	{Asked: "in a namespace that isn't there", Ask: func(a *Asker) {
		a.request("POST", "/api/v1/namespaces/nowhere/configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	}},
	{Asked: "dry run: the answer without the object", Ask: func(a *Asker) {
		a.createWith(configMaps, "{metadata: {name: a}, data: {k: v}}", metav1.CreateOptions{DryRun: dryRun})
		a.get(configMaps, "a")
		a.createWith(configMaps, "metadata: {name: a}", metav1.CreateOptions{DryRun: []string{"Sometimes"}})
	}},
	{Asked: "dry run of one that exists", Ask: func(a *Asker) {
		several(a, 1)
		a.createWith(configMaps, "metadata: {name: a}", metav1.CreateOptions{DryRun: dryRun})
	}},
	{Asked: "field manager: named, too long, not printable", Ask: func(a *Asker) {
		a.createWith(configMaps, "{metadata: {name: a}, data: {k: v}}", metav1.CreateOptions{FieldManager: "me"})
		a.createWith(configMaps, "metadata: {name: b}", metav1.CreateOptions{FieldManager: strings.Repeat("x", 129)})
		a.createWith(configMaps, "metadata: {name: b}", metav1.CreateOptions{FieldManager: "a\nb"})
	}},
	{Asked: "a pod that says all: its status begins", Ask: func(a *Asker) { a.create(pods, aPod("a", "")) }},
	{Asked: "a pod that leaves it to the defaults", Ask: func(a *Asker) {
		a.create(pods, "{metadata: {name: a}, spec: {containers: [{name: main, image: 'example.com/app:1'}]}}")
	}, Why: "no defaults of built-in kinds and no admission (service account, tolerations, priority)"},
	{Asked: "a deployment that says all", Ask: func(a *Asker) { a.create(deployments, aDeployment("a")) }},
	{Asked: "a secret from stringData", Ask: func(a *Asker) {
		a.create(secrets, "{metadata: {name: a}, type: Opaque, stringData: {k: v}, data: {b: AAEC}}")
		a.create(secrets, "{metadata: {name: b}, stringData: {k: v}}")
	}},
	{Asked: "a service", Ask: func(a *Asker) {
		a.create(services, "{metadata: {name: a}, spec: {selector: {app: a}, ports: [{port: 80, targetPort: 80, protocol: TCP}], type: ClusterIP, clusterIP: None}}")
	}, Why: "no defaults of built-in kinds, and no allocation of addresses"},
	{Asked: "a built-in object that isn't valid", Ask: func(a *Asker) {
		a.create(pods, "{metadata: {name: a}, spec: {containers: []}}")
		a.create(configMaps, "{metadata: {name: a}, data: {'not allowed': v}}")
	}, Why: "no validation of built-in kinds beyond their metadata"},
	{Asked: "a namespace", Ask: func(a *Asker) { a.create(namespaces, "metadata: {name: "+a.namespace+"-b}") }},
	{Asked: "two owner references to the same: a warning", Ask: func(a *Asker) {
		ref := "{apiVersion: v1, kind: ConfigMap, name: o, uid: 11111111-2222-3333-4444-555555555555}"
		a.create(configMaps, "metadata: {name: a, ownerReferences: ["+ref+", "+ref+"]}")
	}},
	{Asked: "an object of 2 MB", Ask: func(a *Asker) {
		a.request("POST", "configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 2<<20)+`"}}`)
	}, Why: "no validation of built-in kinds, and no etcd, which takes 1.5 MB"},
	{Asked: "a body of more than 3 MB", Ask: func(a *Asker) {
		a.request("POST", "configmaps", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 3<<20)+`"}}`)
	}},
}

var updates = []Question{
	{Asked: "an object, of the version that was read", Ask: func(a *Asker) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		u.Object["data"] = map[string]any{"k": "w"}
		a.update(configMaps, u)
		a.get(configMaps, "a")
	}},
	{Asked: "an old version: a conflict", Ask: func(a *Asker) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		a.changed(configMaps, "a", `{"data":{"k":"w"}}`)
		a.update(configMaps, u)
	}},
	{Asked: "no version: whatever is there is replaced", Ask: func(a *Asker) {
		several(a, 1)
		a.update(configMaps, a.object(configMaps, "{metadata: {name: a}, data: {only: this}}"))
	}},
	{Asked: "no version of a lease or a custom resource: refused", Ask: func(a *Asker) {
		a.given(leases, "{metadata: {name: a}, spec: {holderIdentity: me}}")
		a.update(leases, a.object(leases, "{metadata: {name: a}, spec: {holderIdentity: you}}"))
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.update(widgets, a.object(widgets, "{metadata: {name: a}, spec: {size: large}}"))
	}},
	{Asked: "nothing new: the version stays", Ask: func(a *Asker) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		a.update(configMaps, u)
		a.get(configMaps, "a")
	}},
	{Asked: "another uid", Ask: func(a *Asker) {
		several(a, 1)
		a.update(configMaps, a.object(configMaps, "metadata: {name: a, uid: 11111111-2222-3333-4444-555555555555}"))
	}},
	{Asked: "one that isn't there: not found, or made", Ask: func(a *Asker) {
		a.update(configMaps, a.object(configMaps, "metadata: {name: a}"))
		a.update(leases, a.object(leases, "{metadata: {name: a}, spec: {holderIdentity: me}}"))
		a.update(widgets, a.object(widgets, "{metadata: {name: a}, spec: {size: small}}"))
	}},
	{Asked: "another name or namespace than the path's", Ask: func(a *Asker) {
		several(a, 1)
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`)
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`)
		a.request("PUT", "configmaps/a", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`)
	}},
	{Asked: "dry run", Ask: func(a *Asker) {
		u := a.given(configMaps, "{metadata: {name: a}, data: {k: v}}")
		u.Object["data"] = map[string]any{"k": "w"}
		got, err := a.of(configMaps).Update(a.ctx, u, metav1.UpdateOptions{DryRun: dryRun})
		a.decodes("dry run", got, err)
		a.get(configMaps, "a")
	}},
	{Asked: "what the system owns is put back", Ask: func(a *Asker) {
		u := a.given(configMaps, "metadata: {name: a}")
		u.SetCreationTimestamp(metav1.Date(2001, 1, 1, 0, 0, 0, 0, metav1.Now().Location()))
		u.SetGeneration(9)
		u.SetLabels(map[string]string{"l": "l"})
		a.update(configMaps, u)
	}},
	{Asked: "the generation rises with the spec, and with nothing else", Ask: func(a *Asker) {
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
	{Asked: "an immutable config map", Ask: func(a *Asker) {
		a.given(configMaps, "{metadata: {name: a}, immutable: true, data: {k: v}}")
		a.update(configMaps, a.object(configMaps, "{metadata: {name: a}, immutable: true, data: {k: w}}"))
	}, Why: "no validation of built-in kinds beyond their metadata"},
}
