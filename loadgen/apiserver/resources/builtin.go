package resources

import (
	"bytes"
	"compress/gzip"
	_ "embed" // discovery, and the schema for server-side apply
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Scheme holds the Go types of the built-in kinds: client-go's, CustomResourceDefinitions and APIServices, which are kept but
// not aggregated.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(apiregistrationv1.AddToScheme(s))
	utilruntime.Must(addConversions(s))
	return s
}()

// Codecs decode the built-in kinds from JSON, YAML, protobuf and CBOR.
var Codecs = serializer.NewCodecFactory(Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

// discoveryText is the discovery of kube-apiserver v1.37.2, a resource a line, and what
// client-go has beyond it.
//
//go:embed discovery-v1.37.2.txt
var discoveryText string

// builtins returns the resources of discoveryText that have a Go type, in its order.
var builtins = sync.OnceValue(func() (all []*Resource) {
	for line := range strings.Lines(discoveryText) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if res := parse(strings.Fields(line)); Scheme.Recognizes(res.GVK) {
			all = append(all, res)
		}
	}
	return all
})

// groupRanks are the positions of the groups in discoveryText.
var groupRanks = sync.OnceValue(func() map[string]int {
	ranks := map[string]int{}
	for i, res := range builtins() {
		if _, ok := ranks[res.GVR.Group]; !ok {
			ranks[res.GVR.Group] = i
		}
	}
	return ranks
})

// subresourceKinds are the kinds of simulated subresources beside the resource's own.
var subresourceKinds = map[string]schema.GroupVersionKind{
	"Scale":    autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
	"Binding":  corev1.SchemeGroupVersion.WithKind("Binding"),
	"Eviction": policyv1.SchemeGroupVersion.WithKind("Eviction"),

	"TokenRequest": authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
}

// parse returns the resource of a line: group, version, name, kind, singular, scope,
// verbs, short names, categories, and subresources as name:kind:verbs.
func parse(fields []string) *Resource {
	gv := schema.GroupVersion{Group: strings.TrimPrefix(fields[0], "core"), Version: fields[1]}
	res := &Resource{
		GVR: gv.WithResource(fields[2]), GVK: gv.WithKind(fields[3]), ListKind: fields[3] + "List",
		Singular: fields[4], Namespaced: fields[5] == "Namespaced",
		Verbs: list(fields[6]), ShortNames: list(fields[7]), Categories: list(fields[8]),
		Stored: gv.WithResource(fields[2]),
	}
	if stored, ok := cohabitants[res.GVR]; ok {
		res.Stored = stored
	}
	for _, sub := range fields[9:] {
		parts := strings.Split(sub, ":")
		kind, ok := subresourceKinds[parts[1]]
		if parts[1] == fields[3] && parts[0] != "log" { // which needs a kubelet
			kind, ok = res.GVK, true
		}
		if ok {
			res.Subresources = append(res.Subresources, Subresource{Name: parts[0], Kind: kind, Verbs: list(parts[2])})
		}
	}
	return res
}

// list splits a list of discoveryText.
func list(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(text, ",")
}

// inVersion returns the built-in resources of an alpha or beta version: those of
// discoveryText, and the stable resources of the group that have Go types in it.
func inVersion(gv schema.GroupVersion) (all []*Resource) {
	for _, b := range builtins() {
		switch {
		case b.GroupVersion() == gv:
			all = append(all, b)
		case b.GVR.Group == gv.Group && stable(b.GVR.Version) && Scheme.Recognizes(gv.WithKind(b.GVK.Kind)):
			res := *b
			res.GVR, res.GVK = gv.WithResource(b.GVR.Resource), gv.WithKind(b.GVK.Kind)
			res.Stored, res.Subresources = res.GVR, slices.Clone(b.Subresources)
			for i := range res.Subresources {
				if sub := &res.Subresources[i]; sub.Kind == b.GVK {
					sub.Kind = res.GVK
				}
			}
			all = append(all, &res)
		}
	}
	return all
}

// NewObject returns an empty object of the resource, with its kind set: a Go type
// of client-go if there is one, else *unstructured.Unstructured.
func (r *Resource) NewObject() Object {
	if !r.Typed() {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(r.GVK)
		return u
	}
	t := Scheme.AllKnownTypes()[r.GVK]
	object := reflect.New(t).Interface().(Object) // as all objects that are served
	object.GetObjectKind().SetGroupVersionKind(r.GVK)
	return object
}

// mergeSchemaFile is client-go's schema for server-side apply. Its package applyconfigurations keeps
// the schema in an internal package and imports 54 others. A test compares both.
//
//go:embed merge.yaml.gz
var mergeSchemaFile []byte

// MergeTypes returns client-go's merge schema of the built-in types, a large table.
var MergeTypes = sync.OnceValue(func() *typed.Parser {
	var text []byte
	r, err := gzip.NewReader(bytes.NewReader(mergeSchemaFile))
	if err == nil {
		text, err = io.ReadAll(r)
	}
	p, parseErr := typed.NewParser(typed.YAMLObject(text))
	if err != nil || parseErr != nil { // The test finds a damaged file.
		return &typed.Parser{}
	}
	return p
})
