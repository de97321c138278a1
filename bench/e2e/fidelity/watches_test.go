package fidelity

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var watches = []Question{
	{Title: "from a version: past and new events", Run: func(a *Session) {
		several(a, 1)
		v := a.list(configMaps, metav1.ListOptions{}).GetResourceVersion()
		a.changed(configMaps, "a", `{"data":{"num":"1"}}`)
		w := a.watch(configMaps, metav1.ListOptions{ResourceVersion: v})
		a.create(configMaps, "metadata: {name: b}")
		a.delete(configMaps, "a", metav1.DeleteOptions{})
		a.create(configMaps, "metadata: {name: last}")
		w.until("last")
	}},
	{Title: "an object created, changed and deleted: types, versions, last state", Run: func(a *Session) {
		w := a.watch(configMaps, metav1.ListOptions{ResourceVersion: a.list(configMaps, metav1.ListOptions{}).GetResourceVersion()})
		a.create(configMaps, "{metadata: {name: a}, data: {n: '1'}}")
		a.changed(configMaps, "a", `{"data":{"num":"2"}}`)
		a.changed(configMaps, "a", `{"data":{"num":"2"}}`) // No change, so no event.
		a.delete(configMaps, "a", metav1.DeleteOptions{})
		w.untilGone("a")
	}},
	{Title: "without a version: the state first", Run: func(a *Session) {
		several(a, 2)
		a.list(configMaps, metav1.ListOptions{})
		w := a.watch(configMaps, metav1.ListOptions{})
		w.until("b")
		a.create(configMaps, "metadata: {name: last}")
		w.until("last")
	}},
	{Title: "from version 0: any state first", Run: func(a *Session) {
		several(a, 2)
		a.list(configMaps, metav1.ListOptions{})
		w := a.watch(configMaps, metav1.ListOptions{ResourceVersion: "0"})
		w.until("b")
		a.create(configMaps, "metadata: {name: last}")
		w.until("last")
	}},
	{Title: "from an expired version: 410 as an event", Run: func(a *Session) {
		a.forget()
		a.watch(widgets, metav1.ListOptions{ResourceVersion: "2"}).end()
	}},
	{Title: "from a future version: it waits", Run: func(a *Session) {
		a.request("GET", "configmaps", nil, "", "watch", "true", "resourceVersion", "1000000000", "timeoutSeconds", "1")
	}, Why: "a future version comes from another server: the watch is refused at once; kube-apiserver refuses it in a list only, after 3 s"},
	{Title: "label selector: a match is ADDED, its end DELETED", Run: func(a *Session) {
		v := a.list(configMaps, metav1.ListOptions{}).GetResourceVersion()
		w := a.watch(configMaps, metav1.ListOptions{ResourceVersion: v, LabelSelector: "on"})
		a.create(configMaps, "metadata: {name: a}")
		a.changed(configMaps, "a", `{"metadata":{"labels":{"on":"1"}}}`)
		a.changed(configMaps, "a", `{"metadata":{"labels":{"on":"2"}}}`)
		a.changed(configMaps, "a", `{"metadata":{"labels":null},"data":{"left":"yes"}}`)
		a.changed(configMaps, "a", `{"data":{"unseen":"yes"}}`)
		a.create(configMaps, "metadata: {name: last, labels: {on: '1'}}")
		w.until("last")
	}},
	{Title: "label selector, for older objects", Run: func(a *Session) {
		v := a.list(configMaps, metav1.ListOptions{}).GetResourceVersion()
		a.create(configMaps, "metadata: {name: a, labels: {on: '1'}}")
		a.changed(configMaps, "a", `{"metadata":{"labels":null}}`)
		a.create(configMaps, "metadata: {name: last, labels: {on: '1'}}")
		a.watch(configMaps, metav1.ListOptions{ResourceVersion: v, LabelSelector: "on"}).until("last")
	}},
	{Title: "field selector: pods of a node, one bound during the watch", Run: func(a *Session) {
		v := a.list(pods, metav1.ListOptions{}).GetResourceVersion()
		w := a.watch(pods, metav1.ListOptions{ResourceVersion: v, FieldSelector: "spec.nodeName=n1"})
		a.given(pods, aPod("elsewhere", "n2"))
		a.given(pods, aPod("last", "n1"))
		w.until("last")
	}},
	{Title: "field selector of a name", Run: func(a *Session) {
		several(a, 2)
		w := a.watch(configMaps, metav1.ListOptions{FieldSelector: "metadata.name=b"})
		a.changed(configMaps, "a", `{"data":{"num":"unseen"}}`)
		a.delete(configMaps, "b", metav1.DeleteOptions{})
		w.untilGone("b")
	}},
	{Title: "of a custom resource, in its other version, too", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.watch(widgets, metav1.ListOptions{}).until("a")
		a.watch(olderWidgets, metav1.ListOptions{}).until("a")
	}},
	{Title: "timeoutSeconds ends it", Run: func(a *Session) {
		several(a, 1)
		a.watch(configMaps, metav1.ListOptions{TimeoutSeconds: ptr.To[int64](1)}).end()
	}},
	{Title: "allowWatchBookmarks: a bookmark before timeoutSeconds end", Run: func(a *Session) {
		several(a, 1)
		v := a.list(configMaps, metav1.ListOptions{}).GetResourceVersion()
		w := a.watch(configMaps, metav1.ListOptions{ResourceVersion: v, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](4)})
		a.create(configMaps, "metadata: {name: b}")
		w.until("b")
		bookmark := w.untilBookmark()
		a.create(configMaps, "metadata: {name: last}")
		a.watch(configMaps, metav1.ListOptions{ResourceVersion: bookmark.GetResourceVersion()}).until("last")
	}},
	{Title: "WatchList: the state, its bookmark, then events", Run: func(a *Session) {
		several(a, 2)
		w := a.watch(configMaps, watchList(metav1.ListOptions{}))
		w.untilBookmark()
		a.create(configMaps, "metadata: {name: last}")
		w.until("last")
	}},
	{Title: "WatchList of an empty state", Run: func(a *Session) {
		w := a.watch(widgets, watchList(metav1.ListOptions{}))
		w.untilBookmark()
	}},
	{Title: "WatchList from a version, and from 0", Run: func(a *Session) {
		several(a, 2)
		v := a.changed(configMaps, "a", `{"data":{"num":"1"}}`).GetResourceVersion()
		a.watch(configMaps, watchList(metav1.ListOptions{ResourceVersion: v})).untilBookmark()
		a.watch(configMaps, watchList(metav1.ListOptions{ResourceVersion: "0"})).untilBookmark()
	}},
	{Title: "WatchList with selectors", Run: func(a *Session) {
		several(a, 4)
		a.watch(configMaps, watchList(metav1.ListOptions{LabelSelector: "parity=1"})).untilBookmark()
		a.watch(configMaps, watchList(metav1.ListOptions{FieldSelector: "metadata.name=c"})).untilBookmark()
	}},
	{Title: "WatchList, and from its bookmark on a watch", Run: func(a *Session) {
		several(a, 1)
		v := a.watch(configMaps, watchList(metav1.ListOptions{})).untilBookmark().GetResourceVersion()
		a.create(configMaps, "metadata: {name: last}")
		a.watch(configMaps, metav1.ListOptions{ResourceVersion: v}).until("last")
	}},
	{Title: "sendInitialEvents=false: from now on", Run: func(a *Session) {
		several(a, 2)
		a.list(configMaps, metav1.ListOptions{})
		w := a.watch(configMaps, metav1.ListOptions{SendInitialEvents: new(bool), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		a.create(configMaps, "metadata: {name: last}")
		w.until("last")
	}},
	{Title: "exclusive options", Run: func(a *Session) {
		for _, opts := range []metav1.ListOptions{
			{SendInitialEvents: ptr.To(true)},
			{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchExact, ResourceVersion: "1"},
			{ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "1"},
			{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Continue: "abc"},
		} {
			a.watch(configMaps, opts)
		}
	}},
	{Title: "WatchList without bookmarks allowed", Run: func(a *Session) {
		several(a, 1)
		opts := watchList(metav1.ListOptions{})
		opts.AllowWatchBookmarks = false
		w := a.watch(configMaps, opts)
		a.create(configMaps, "metadata: {name: last}")
		w.until("last")
	}},
	{Title: "a limit has no effect", Run: func(a *Session) {
		several(a, 2)
		a.list(configMaps, metav1.ListOptions{})
		w := a.watch(configMaps, metav1.ListOptions{Limit: 1})
		w.until("b")
	}},
}

func watchList(opts metav1.ListOptions) metav1.ListOptions {
	opts.SendInitialEvents = ptr.To(true)
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	opts.AllowWatchBookmarks = true
	return opts
}
