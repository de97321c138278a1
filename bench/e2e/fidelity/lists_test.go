package fidelity

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// several creates config maps a, b, c, …; every other one has a label.
func several(a *Session, n int) {
	for i := range n {
		a.given(configMaps, fmt.Sprintf("{metadata: {name: %c, labels: {parity: '%d', all: 'yes'}}, data: {num: '%d'}}", 'a'+i, i%2, i))
	}
}

var lists = []Question{
	{Title: "all of a namespace", Run: func(a *Session) {
		several(a, 3)
		a.list(configMaps, metav1.ListOptions{})
	}},
	{Title: "none", Run: func(a *Session) {
		a.list(configMaps, metav1.ListOptions{})
		a.list(widgets, metav1.ListOptions{})
	}},
	{Title: "of a missing namespace", Run: func(a *Session) {
		a.request("GET", "/api/v1/namespaces/nowhere/configmaps", nil, "")
	}},
	{Title: "all namespaces, by a label", Run: func(a *Session) {
		a.given(configMaps, "metadata: {name: a, labels: {of: "+a.namespace+"}}")
		l, err := a.dynamic.Resource(configMaps.GroupVersionResource).List(a.ctx, metav1.ListOptions{LabelSelector: "of=" + a.namespace})
		a.decodes("items", l, err)
	}},
	{Title: "pages of 2 by limit and continue, to the end", Run: func(a *Session) {
		several(a, 5)
		opts := metav1.ListOptions{Limit: 2}
		for range 5 {
			l := a.list(configMaps, opts)
			if opts.Continue = l.GetContinue(); opts.Continue == "" {
				break
			}
		}
	}},
	{Title: "pages during changes: one snapshot", Run: func(a *Session) {
		several(a, 4)
		l := a.list(configMaps, metav1.ListOptions{Limit: 2})
		a.given(configMaps, "metadata: {name: ab}")
		a.changed(configMaps, "c", `{"data":{"num":"changed"}}`)
		a.delete(configMaps, "d", metav1.DeleteOptions{})
		a.list(configMaps, metav1.ListOptions{Limit: 2, Continue: l.GetContinue()})
	}},
	{Title: "pages with a label selector", Run: func(a *Session) {
		several(a, 5)
		opts := metav1.ListOptions{Limit: 2, LabelSelector: "parity=0"}
		opts.Continue = a.list(configMaps, opts).GetContinue()
		a.list(configMaps, opts)
	}},
	{Title: "limit equal to the number of objects: no continue", Run: func(a *Session) {
		several(a, 2)
		a.list(configMaps, metav1.ListOptions{Limit: 2})
	}},
	{Title: "resourceVersion 0, with a limit", Run: func(a *Session) {
		several(a, 3)
		a.list(configMaps, metav1.ListOptions{}) // The watch cache catches up.
		a.list(configMaps, metav1.ListOptions{ResourceVersion: "0", Limit: 2})
	}},
	{Title: "NotOlderThan a version", Run: func(a *Session) {
		several(a, 2)
		v := a.changed(configMaps, "a", `{"data":{"num":"changed"}}`).GetResourceVersion()
		a.list(configMaps, metav1.ListOptions{ResourceVersion: v, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		a.list(configMaps, metav1.ListOptions{ResourceVersion: v})
	}},
	{Title: "Exact a version of the past", Run: func(a *Session) {
		several(a, 2)
		v := a.changed(configMaps, "a", `{"data":{"num":"then"}}`).GetResourceVersion()
		a.changed(configMaps, "a", `{"data":{"num":"now"}}`)
		a.given(configMaps, "metadata: {name: later}")
		a.list(configMaps, metav1.ListOptions{ResourceVersion: v, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	}},
	{Title: "Exact a version of the past, in pages", Run: func(a *Session) {
		several(a, 3)
		v := a.changed(configMaps, "a", `{"data":{"num":"then"}}`).GetResourceVersion()
		a.changed(configMaps, "c", `{"data":{"num":"now"}}`)
		l := a.list(configMaps, metav1.ListOptions{ResourceVersion: v, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 2})
		a.list(configMaps, metav1.ListOptions{Limit: 2, Continue: l.GetContinue()})
	}},
	{Title: "a future version", Run: func(a *Session) {
		a.request("GET", "configmaps", nil, "", "resourceVersion", "1000000000", "resourceVersionMatch", "NotOlderThan")
	}},
	{Title: "an expired version", Run: func(a *Session) {
		a.forget()
		a.list(widgets, metav1.ListOptions{ResourceVersion: "2", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	}},
	{Title: "a page of an expired list: 410 with a new token", Run: func(a *Session) {
		for _, name := range []string{"a", "b", "c"} {
			a.given(widgets, "{metadata: {name: "+name+"}, spec: {size: small}}")
		}
		l := a.list(widgets, metav1.ListOptions{Limit: 2})
		a.forget()
		l = a.list(widgets, metav1.ListOptions{Limit: 2, Continue: a.aged(l.GetContinue())})
		a.goOn(widgets, l)
	}},
	{Title: "label selectors: =, !=, in, notin, exists, doesn't", Run: func(a *Session) {
		several(a, 4)
		for _, s := range []string{"parity=0", "parity!=0,all", "parity in (1,2)", "parity notin (1)", "parity", "!parity"} {
			a.list(configMaps, metav1.ListOptions{LabelSelector: s})
		}
	}},
	{Title: "field selectors: name, namespace, !=", Run: func(a *Session) {
		several(a, 3)
		for _, s := range []string{"metadata.name=b", "metadata.name!=b", "metadata.namespace=nowhere", "metadata.name=b,metadata.namespace=" + a.namespace} {
			a.list(configMaps, metav1.ListOptions{FieldSelector: s})
		}
	}},
	{Title: "field selectors of pods: node, phase, restart policy, service account", Run: func(a *Session) {
		a.given(pods, aPod("bound", "n1"))
		a.given(pods, aPod("free", ""))
		for _, s := range []string{"spec.nodeName=n1", "spec.nodeName=", "status.phase=Pending", "status.phase!=Pending", "spec.restartPolicy=Always", "spec.serviceAccountName=default"} {
			l := a.list(pods, metav1.ListOptions{FieldSelector: s})
			a.say("found", map[string]any{"n": len(l.Items)})
		}
	}},
	{Title: "field selectors of secrets and services", Run: func(a *Session) {
		a.given(secrets, "{metadata: {name: a}, type: example.com/kind}")
		a.list(secrets, metav1.ListOptions{FieldSelector: "type=example.com/kind"})
		a.list(secrets, metav1.ListOptions{FieldSelector: "type=Opaque"})
		a.list(services, metav1.ListOptions{FieldSelector: "spec.type=ClusterIP"})
	}},
	{Title: "a selectable field of a custom resource", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.given(widgets, "{metadata: {name: b}, spec: {size: large}}")
		a.list(widgets, metav1.ListOptions{FieldSelector: "spec.size=large"})
	}},
	{Title: "selectors together with an exact version", Run: func(a *Session) {
		several(a, 3)
		v := a.changed(configMaps, "a", `{"metadata":{"labels":{"parity":"1"}}}`).GetResourceVersion()
		a.changed(configMaps, "a", `{"metadata":{"labels":{"parity":"0"}}}`)
		a.list(configMaps, metav1.ListOptions{LabelSelector: "parity=1", ResourceVersion: v, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	}},
	{Title: "exclusive options", Run: func(a *Session) {
		for _, opts := range []metav1.ListOptions{
			{ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			{ResourceVersion: "1", ResourceVersionMatch: "Sometimes"},
			{SendInitialEvents: new(bool)},
		} {
			a.list(configMaps, opts)
		}
	}},
	{Title: "continue with a version", Run: func(a *Session) {
		several(a, 3)
		l := a.list(configMaps, metav1.ListOptions{Limit: 2})
		a.list(configMaps, metav1.ListOptions{Limit: 2, Continue: l.GetContinue(), ResourceVersion: l.GetResourceVersion()})
		a.list(configMaps, metav1.ListOptions{Limit: 2, Continue: l.GetContinue(), ResourceVersion: l.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	}},
	{Title: "one object, at version 0, and at a future one", Run: func(a *Session) {
		several(a, 1)
		a.list(configMaps, metav1.ListOptions{}) // The watch cache catches up.
		a.request("GET", "configmaps/a", nil, "")
		a.request("GET", "configmaps/a", nil, "", "resourceVersion", "0")
		a.request("GET", "configmaps/a", nil, "", "resourceVersion", "1000000000")
	}},
}
