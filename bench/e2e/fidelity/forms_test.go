package fidelity

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMeta  = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asMetas = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

var tables = []Question{
	{Title: "a table of config maps, of one, of none", Run: func(a *Session) {
		a.request("GET", "configmaps", header("Accept", asTable), "")
		several(a, 2)
		a.request("GET", "configmaps", header("Accept", asTable), "")
		a.request("GET", "configmaps/a", header("Accept", asTable), "")
		a.request("GET", "configmaps/missing", header("Accept", asTable), "")
	}, Why: "the columns of a few kinds are simulated (pods, nodes, namespaces, deployments, replica sets, leases, events); others have name and age"},
	{Title: "a table of custom resources, with their columns", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.request("GET", "/apis/fidelity.watchlab.dev/v1/namespaces/"+a.namespace+"/widgets", header("Accept", asTable), "")
	}},
	{Title: "a table of pods", Run: func(a *Session) {
		a.given(pods, aPod("a", "n1"))
		a.changed(pods, "a", `{"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}],"containerStatuses":[{"name":"main","ready":true,"restartCount":0,"image":"i","imageID":"i","state":{"running":{"startedAt":null}}}]}}`, "status")
		a.request("GET", "pods", header("Accept", asTable), "")
	}, Why: "descriptions of columns are left out"},
	{Title: "a table of deployments and of leases", Run: func(a *Session) {
		a.given(deployments, aDeployment("a"))
		a.given(leases, "{metadata: {name: a}, spec: {holderIdentity: me}}")
		a.request("GET", "/apis/apps/v1/namespaces/"+a.namespace+"/deployments", header("Accept", asTable), "")
		a.request("GET", "/apis/coordination.k8s.io/v1/namespaces/"+a.namespace+"/leases", header("Accept", asTable), "")
	}, Why: "descriptions of columns, and those of the wide view, are left out"},
	{Title: "includeObject: None, Metadata, Object, nonsense", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		for _, v := range []string{"None", "Metadata", "Object", "Nonsense"} {
			a.request("GET", "/apis/fidelity.watchlab.dev/v1/namespaces/"+a.namespace+"/widgets", header("Accept", asTable), "", "includeObject", v)
		}
	}},
	{Title: "pages of a table", Run: func(a *Session) {
		for _, n := range []string{"a", "b", "c"} {
			a.given(widgets, "{metadata: {name: "+n+"}, spec: {size: small}}")
		}
		a.request("GET", "/apis/fidelity.watchlab.dev/v1/namespaces/"+a.namespace+"/widgets", header("Accept", asTable), "", "limit", "2")
	}},
	{Title: "a watch of a table, with WatchList's bookmark", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		a.frames("/apis/fidelity.watchlab.dev/v1/namespaces/"+a.namespace+"/widgets", asTable, 2)
	}, Why: "an event is encoded once for all watches and has the columns; kube-apiserver sends them in the first event only"},
	{Title: "metadata alone: get, list, patch, delete (client-go's metadata client)", Run: func(a *Session) {
		several(a, 2)
		c := a.metadata.Resource(configMaps.GroupVersionResource).Namespace(a.namespace)
		one, err := c.Get(a.ctx, "a", metav1.GetOptions{})
		a.decodes("get", one, err)
		all, err := c.List(a.ctx, metav1.ListOptions{})
		a.decodes("list", all, err)
		one, err = c.Patch(a.ctx, "a", mergePatch, []byte(`{"metadata":{"labels":{"l":"l"}}}`), metav1.PatchOptions{})
		a.decodes("patch", one, err)
		a.decodes("delete", nil, c.Delete(a.ctx, "a", metav1.DeleteOptions{}))
		one, err = c.Get(a.ctx, "a", metav1.GetOptions{})
		a.decodes("get", one, err)
	}},
	{Title: "metadata alone of custom resources", Run: func(a *Session) {
		a.given(widgets, "{metadata: {name: a}, spec: {size: small}}")
		c := a.metadata.Resource(widgets.GroupVersionResource).Namespace(a.namespace)
		one, err := c.Get(a.ctx, "a", metav1.GetOptions{})
		a.decodes("get", one, err)
		all, err := c.List(a.ctx, metav1.ListOptions{})
		a.decodes("list", all, err)
	}},
	{Title: "a watch of metadata alone, with WatchList's bookmark", Run: func(a *Session) {
		several(a, 2)
		a.frames("/api/v1/namespaces/"+a.namespace+"/configmaps", asMeta, 3)
	}},
	{Title: "an unknown form, and alternatives", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps", header("Accept", "application/json;as=Poem;v=v1;g=meta.k8s.io"), "")
		a.request("GET", "configmaps/a", header("Accept", "application/json;as=Table;v=v9;g=meta.k8s.io"), "")
		a.request("GET", "configmaps/a", header("Accept", "application/json;as=Table;v=v9;g=meta.k8s.io,application/json"), "")
	}, Why: "the message lists the supported types: no YAML here, but CBOR"},
	{Title: "a list of metadata of one object, metadata of a list", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a", header("Accept", asMetas), "")
		a.request("GET", "configmaps", header("Accept", asMeta), "")
	}, Why: "the server guesses the form; kube-apiserver refuses it; client-go never asks for it"},
}

// encoded returns a client for one encoding.
func (a *Session) encoded(accept, body string) *kubernetes.Clientset {
	c := rest.CopyConfig(a.server.config)
	c.AcceptContentTypes, c.ContentType = accept, body
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		a.err = err
		client = &kubernetes.Clientset{}
	}
	return client
}

var encodings = []Question{
	{Title: "protobuf: written, read, listed, watched", Run: func(a *Session) {
		client := a.encoded(runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf)
		if a.err != nil {
			return
		}
		several(a, 2)
		c := client.CoreV1().ConfigMaps(a.namespace)
		one, err := c.Get(a.ctx, "a", metav1.GetOptions{})
		a.decodes("get", one, err)
		one.Data["num"] = "by protobuf"
		one, err = c.Update(a.ctx, one, metav1.UpdateOptions{})
		a.decodes("update", one, err)
		all, err := c.List(a.ctx, metav1.ListOptions{})
		a.decodes("list", all, err)
		missing, err := c.Get(a.ctx, "missing", metav1.GetOptions{})
		a.decodes("get", missing, err)
		w, err := c.Watch(a.ctx, watchList(metav1.ListOptions{}))
		if err != nil {
			a.decodes("watch", nil, err)
			return
		}
		defer w.Stop()
		for range 3 {
			e := <-w.ResultChan()
			a.decodes("watch "+string(e.Type), e.Object, nil)
		}
	}},
	{Title: "protobuf of custom resources: refused, or JSON if accepted", Run: func(a *Session) {
		path := "/apis/fidelity.watchlab.dev/v1/namespaces/" + a.namespace + "/widgets"
		a.request("GET", path, header("Accept", runtime.ContentTypeProtobuf), "")
		a.request("GET", path, header("Accept", runtime.ContentTypeProtobuf+",application/json"), "")
	}},
	{Title: "YAML", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a", header("Accept", "application/yaml"), "")
	}, Why: "YAML is accepted, but not sent; kubectl converts JSON to YAML itself"},
	{Title: "CBOR", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a", header("Accept", "application/cbor"), "")
		a.request("GET", "configmaps/a", header("Accept", "application/cbor,application/json"), "")
	}, Why: "CBOR is an alpha feature of kube-apiserver, off by default; on in the simulated server"},
	{Title: "any type, and bodies of another type", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a", header("Accept", "*/*"), "")
		a.request("GET", "configmaps/a", header("Accept", "text/html,application/xhtml+xml,*/*;q=0.8"), "")
		a.request("POST", "configmaps", header("Content-Type", "text/plain"), `{}`)
		a.request("PUT", "configmaps/a", header("Content-Type", "application/xml"), `<a/>`)
	}},
	{Title: "an unknown type", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a", header("Accept", "text/plain"), "")
	}, Why: "the message lists the supported types: no YAML here, but CBOR"},
	{Title: "pretty", Run: func(a *Session) {
		several(a, 1)
		a.request("GET", "configmaps/a", nil, "", "pretty", "true")
	}},
}
