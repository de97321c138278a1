package fidelity

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	jsonPatch  = types.JSONPatchType
	mergePatch = types.MergePatchType
	strategic  = types.StrategicMergePatchType
)

var patches = []Question{
	{Title: "JSON: add, replace, remove, copy, move, test", Run: func(a *Session) {
		a.given(configMaps, "{metadata: {name: a}, data: {k: v, gone: x}}")
		a.patch(configMaps, "a", jsonPatch, `[{"op":"test","path":"/data/k","value":"v"},{"op":"add","path":"/data/new","value":"n"},{"op":"replace","path":"/data/k","value":"w"},{"op":"remove","path":"/data/gone"},{"op":"copy","from":"/data/k","path":"/data/copy"},{"op":"move","from":"/data/new","path":"/data/moved"}]`)
	}},
	{Title: "JSON: a failing test, a missing path", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", jsonPatch, `[{"op":"test","path":"/data/num","value":"other"}]`)
		a.patch(configMaps, "a", jsonPatch, `[{"op":"remove","path":"/data/missing"}]`)
		a.patch(configMaps, "a", jsonPatch, `[{"op":"replace","path":"/nothing/at/all","value":"v"}]`)
	}},
	{Title: "JSON: invalid patch, invalid operation", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", jsonPatch, `nonsense`)
		a.patch(configMaps, "a", jsonPatch, `[{"op":"jump","path":"/data/num"}]`)
	}},
	{Title: "JSON: not a list", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", jsonPatch, `{"op":"add"}`)
	}, Why: "the message names a Go type of another package"},
	{Title: "JSON: a value of the wrong type", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", jsonPatch, `[{"op":"replace","path":"/data","value":"text"}]`)
		a.patch(configMaps, "a", jsonPatch, `[{"op":"replace","path":"/data/num","value":7}]`)
	}},
	{Title: "merge: set, null removes, lists are replaced", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small, color: red, tags: [r, s]}}")
		a.patch(widgets, "a", mergePatch, `{"spec":{"color":null,"tags":["z"],"port":80}}`)
	}},
	{Title: "merge: not an object", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", mergePatch, `nonsense`)
		a.patch(configMaps, "a", mergePatch, `["a"]`)
		a.patch(configMaps, "a", mergePatch, `"text"`)
		a.patch(configMaps, "a", mergePatch, ``)
	}},
	{Title: "strategic: containers by name, tolerations are replaced", Run: func(a *Session) {
		a.given(deployments, aDeployment("a"))
		a.patch(deployments, "a", strategic, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/app:2"},{"name":"side","image":"example.com/side:1","imagePullPolicy":"IfNotPresent","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]}}}}`)
		a.patch(deployments, "a", strategic, `{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}],"$setElementOrder/containers":[{"name":"main"}]}}}}`)
		a.patch(deployments, "a", strategic, `{"metadata":{"labels":{"$patch":"replace","only":"this"}}}`)
		a.patch(deployments, "a", strategic, `{"spec":{"$retainKeys":["replicas"],"template":{"spec":{"containers":[{"image":"nameless"}]}}}}`)
	}},
	{Title: "strategic: of a custom resource", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.patch(widgets, "a", strategic, `{"spec":{"size":"large"}}`)
	}},
	{Title: "no change: the version stays", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", mergePatch, `{"data":{"num":"0"}}`)
		a.patch(configMaps, "a", strategic, `{"data":{"num":"0"}}`)
		a.patch(configMaps, "a", jsonPatch, `[]`)
	}},
	{Title: "with an old version: a conflict", Run: func(a *Session) {
		u := a.given(configMaps, "metadata: {name: a}")
		a.changed(configMaps, "a", `{"data":{"k":"w"}}`)
		a.patch(configMaps, "a", mergePatch, `{"metadata":{"resourceVersion":"`+u.GetResourceVersion()+`"},"data":{"k":"x"}}`)
	}},
	{Title: "with another uid, another name", Run: func(a *Session) {
		several(a, 1)
		a.patch(configMaps, "a", mergePatch, `{"metadata":{"uid":"11111111-2222-3333-4444-555555555555"}}`)
		a.patch(configMaps, "a", mergePatch, `{"metadata":{"name":"b"}}`)
		a.patch(configMaps, "a", mergePatch, `{"metadata":{"namespace":"b"}}`)
	}},
	{Title: "with another kind", Run: func(a *Session) {
		a.given(configMaps, "metadata: {name: a}")
		a.patch(configMaps, "a", mergePatch, `{"kind":"Secret"}`)
	}},
	{Title: "of a missing object", Run: func(a *Session) {
		a.patch(configMaps, "a", mergePatch, `{"data":{"k":"v"}}`)
		a.patch(configMaps, "a", jsonPatch, `[]`)
		a.patch(configMaps, "a", strategic, `{}`)
	}},
	{Title: "dry run", Run: func(a *Session) {
		several(a, 1)
		a.patchWith(configMaps, "a", mergePatch, `{"data":{"num":"dry"}}`, metav1.PatchOptions{DryRun: dryRun})
		a.get(configMaps, "a")
	}},
	{Title: "force is for apply only", Run: func(a *Session) {
		several(a, 1)
		force := true
		a.patchWith(configMaps, "a", mergePatch, `{"data":{"num":"1"}}`, metav1.PatchOptions{Force: &force})
	}},
	{Title: "of an unknown type, and without a type", Run: func(a *Session) {
		several(a, 1)
		a.request("PATCH", "configmaps/a", header("Content-Type", "application/nonsense"), `{}`)
		a.request("PATCH", "configmaps/a", header("Content-Type", "application/json"), `{}`)
	}},
}

var applies = []Question{
	{Title: "create, change, release", Run: func(a *Session) {
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: v, l: w}}", "me", false)
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: changed}}", "me", false)
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: changed}}", "me", false)
		a.get(configMaps, "a")
	}},
	{Title: "a conflict, and force", Run: func(a *Session) {
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: v}}", "one", false)
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: w}}", "two", false)
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: w}}", "two", true)
	}},
	{Title: "conflicts with an update, in several fields", Run: func(a *Session) {
		a.given(configMaps, "{metadata: {name: a, labels: {l: l}}, data: {k: v}}")
		a.apply(configMaps, "a", "{metadata: {name: a, labels: {l: m}}, data: {k: w}}", "me", false)
	}},
	{Title: "the same value: owned together", Run: func(a *Session) {
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: v}}", "one", false)
		a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: v}}", "two", false)
		a.apply(configMaps, "a", "{metadata: {name: a}}", "one", false)
	}},
	{Title: "lists by key, and sets, of a custom resource", Run: func(a *Session) {
		a.apply(widgets, "a", "{metadata: {name: a}, spec: {size: small, tags: [x], parts: [{name: p, weight: 1}]}}", "one", false)
		a.apply(widgets, "a", "{metadata: {name: a}, spec: {tags: [s], parts: [{name: q}]}}", "two", false)
		a.apply(widgets, "a", "{metadata: {name: a}, spec: {size: small, tags: [x]}}", "one", false)
		a.apply(widgets, "a", "{metadata: {name: a}, spec: {tags: [s, s]}}", "two", false)
	}},
	{Title: "containers of a deployment, by two", Run: func(a *Session) {
		a.apply(deployments, "a", aDeployment("a"), "one", false)
		a.apply(deployments, "a", "{metadata: {name: a}, spec: {selector: {matchLabels: {app: a}}, replicas: 2, template: {spec: {containers: [{name: main, image: 'example.com/app:9'}]}}}}", "two", false)
		a.apply(deployments, "a", "{metadata: {name: a}, spec: {replicas: 3}}", "two", true)
	}},
	{Title: "without a field manager", Run: func(a *Session) {
		a.patch(configMaps, "a", types.ApplyPatchType, a.applied(configMaps, "metadata: {name: a}"))
	}},
	{Title: "without a kind, with managed fields, with a wrong name", Run: func(a *Session) {
		opts := metav1.PatchOptions{FieldManager: "me"}
		a.patchWith(configMaps, "a", types.ApplyPatchType, `{"metadata":{"name":"a"}}`, opts)
		a.patchWith(configMaps, "a", types.ApplyPatchType, a.applied(configMaps, "metadata: {name: a, managedFields: [{manager: x, operation: Apply, apiVersion: v1}]}"), opts)
		a.patchWith(configMaps, "a", types.ApplyPatchType, a.applied(configMaps, "metadata: {name: b}"), opts)
		a.patchWith(configMaps, "a", types.ApplyPatchType, a.applied(secrets, "metadata: {name: a}"), opts)
		a.patchWith(configMaps, "a", types.ApplyPatchType, "{not: [yaml", opts)
	}},
	{Title: "unknown and wrong fields", Run: func(a *Session) {
		opts := metav1.PatchOptions{FieldManager: "me"}
		a.patchWith(configMaps, "a", types.ApplyPatchType, a.applied(configMaps, "{metadata: {name: a}, unknown: 1}"), opts)
		a.patchWith(configMaps, "a", types.ApplyPatchType, a.applied(configMaps, "{metadata: {name: a}, data: text}"), opts)
		a.patchWith(widgets, "a", types.ApplyPatchType, a.applied(widgets, "{metadata: {name: a}, spec: {size: small, unknown: 1}}"), opts)
	}},
	{Title: "with an old version, with a version of a missing object", Run: func(a *Session) {
		u := a.given(configMaps, "metadata: {name: a}")
		a.changed(configMaps, "a", `{"data":{"k":"w"}}`)
		a.apply(configMaps, "a", "{metadata: {name: a, resourceVersion: '"+u.GetResourceVersion()+"'}, data: {x: 'z'}}", "me", false)
		a.apply(configMaps, "b", "{metadata: {name: b, resourceVersion: '5'}}", "me", false)
		a.apply(configMaps, "c", "{metadata: {name: c, uid: 11111111-2222-3333-4444-555555555555}}", "me", false)
	}},
	{Title: "the status, and the spec through it", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.apply(widgets, "a", "{metadata: {name: a}, spec: {size: large}, status: {phase: on}}", "me", false, "status")
		a.apply(widgets, "b", "{metadata: {name: b}, status: {phase: on}}", "me", false, "status")
	}},
	{Title: "as YAML", Run: func(a *Session) {
		a.request("PATCH", "configmaps/a", header("Content-Type", "application/apply-patch+yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n", "fieldManager", "me")
		a.request("PATCH", "configmaps/a", header("Content-Type", "application/apply-patch+yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n  k: w\n", "fieldManager", "me")
	}},
	{Title: "dry run", Run: func(a *Session) {
		a.patchWith(configMaps, "a", types.ApplyPatchType, a.applied(configMaps, "{metadata: {name: a}, data: {k: v}}"), metav1.PatchOptions{FieldManager: "me", DryRun: dryRun})
		a.get(configMaps, "a")
	}},
	{Title: "ownership after an update", Run: func(a *Session) {
		u := a.apply(configMaps, "a", "{metadata: {name: a}, data: {k: v, l: w}}", "me", false)
		u.Object["data"] = map[string]any{"k": "by update", "l": "w"}
		a.update(configMaps, u)
	}},
}
