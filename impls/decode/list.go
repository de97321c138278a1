package decode

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

// List is a list whose items are objects of their own. The items of a typed list share one array:
// one of them in a cache keeps all in memory.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject implements [runtime.Object].
func (l *List) DeepCopyObject() runtime.Object {
	c := &List{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, item := range l.Items {
		c.Items = append(c.Items, item.DeepCopyObject())
	}
	return c
}

// listing decodes into a [List] too. What is no list is an error, or a Status that becomes one:
// Result.Into of client-go would leave the list empty, and an empty list tells an informer to delete all
// that it has.
type listing struct {
	runtime.Decoder
	encoding Encoding
	list     func() runtime.Object // makes what lists are decoded into; nil: by their kind
}

func (d listing) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	l, ok := into.(*List)
	if !ok {
		return d.Decoder.Decode(data, defaults, into)
	}
	var list runtime.Object
	if d.list != nil {
		list = d.list()
	}
	obj, gvk, err := d.Decoder.Decode(data, defaults, list)
	if err == nil && list != nil && meta.LenList(obj) == 0 && !hasItems(d.encoding, data) {
		obj, gvk, err = d.Decoder.Decode(data, defaults, nil)
	}
	if err != nil {
		return obj, gvk, err
	}
	if s, ok := obj.(*metav1.Status); ok && s.Status != metav1.StatusSuccess {
		return s, gvk, nil
	}
	if !meta.IsListType(obj) {
		return nil, gvk, noList(gvk)
	}
	*l = List{ListMeta: listMeta(obj)}
	if l.Items, err = meta.ExtractListWithAlloc(obj); err != nil {
		return nil, gvk, err
	}
	return l, gvk, nil
}

func noList(gvk *schema.GroupVersionKind) error {
	return fmt.Errorf("decode: the answer to a list is no list: %v", gvk)
}

// hasItems reports whether an answer of a kind without a Go type is a list. Protobuf leaves out empty
// lists.
func hasItems(e Encoding, data []byte) bool {
	var fields map[string]any
	switch e {
	case Protobuf:
		return true
	case CBOR:
		_ = cbor.Unmarshal(data, &fields)
	default:
		_ = yaml.Unmarshal(data, &fields) // JSON is YAML
	}
	_, ok := fields["items"]
	return ok
}

// listMeta returns all of the metadata of a list. Of an unstructured one it leaves out what is not of
// the type of its field, as the accessors of package unstructured do.
func listMeta(list runtime.Object) (m metav1.ListMeta) {
	switch list := list.(type) {
	case metav1.ListMetaAccessor:
		if own, ok := list.GetListMeta().(*metav1.ListMeta); ok {
			return *own
		}
	case *unstructured.UnstructuredList:
		fields, _ := list.Object["metadata"].(map[string]any)
		valid := map[string]any{}
		for name, value := range fields {
			if runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{name: value}, &metav1.ListMeta{}) == nil {
				valid[name] = value
			}
		}
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(valid, &m)
	}
	return m
}

// optionsVersion is the version of list options in the query of any group, custom resources included.
var optionsVersion = schema.GroupVersion{Version: "v1"}

// NewListWatch lists and watches a resource of all namespaces, or of one, with the decoder, for
// [cache.NewReflector] and the informers. It uses a REST client of its own: generated clients
// (kubernetes.NewForConfig) overwrite [rest.Config.NegotiatedSerializer]. It refuses a decoder that is
// [ReadOnly], unless that is marked [Untransformed].
func NewListWatch(c *rest.Config, d Decoder, gvr schema.GroupVersionResource, namespace string, selector fields.Selector) (*cache.ListWatch, error) {
	if err := changeable(d); err != nil {
		return nil, err
	}
	client, err := newRESTClient(c, d, gvr.GroupVersion())
	if err != nil {
		return nil, err
	}
	accepts := accept(d)
	// As the generated clients (gentype.Client of client-go v0.37).
	request := func(o *metav1.ListOptions) *rest.Request {
		if selector != nil {
			o.FieldSelector = selector.String()
		}
		var timeout time.Duration
		if o.TimeoutSeconds != nil {
			timeout = time.Duration(*o.TimeoutSeconds) * time.Second
		}
		// client-go removes CBOR from a client's content types if its feature gate ClientsAllowCBOR is off.
		return client.Get().SetHeader("Accept", accepts).NamespaceIfScoped(namespace, namespace != "").Resource(gvr.Resource).
			SpecificallyVersionedParams(o, metav1.ParameterCodec, optionsVersion).Timeout(timeout)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := &List{}
			return l, request(&o).Do(ctx).Into(l)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return request(&o).Watch(ctx)
		},
	}, nil
}

// NewRESTClient returns client-go's REST client for a group with the decoder. It is also what
// typed clients are made of: v1.New of k8s.io/client-go/kubernetes/typed/core/v1 takes it. It refuses a
// decoder that is [ReadOnly]: callers of Get and Update change what they receive.
func NewRESTClient(c *rest.Config, d Decoder, gv schema.GroupVersion) (*rest.RESTClient, error) {
	if ReadOnly(d) {
		return nil, errReadOnly
	}
	return newRESTClient(c, d, gv)
}

func newRESTClient(c *rest.Config, d Decoder, gv schema.GroupVersion) (*rest.RESTClient, error) {
	c = rest.CopyConfig(c)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializers(d)
	c.ContentType = d.Info().MediaType
	c.AcceptContentTypes = accept(d)
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return client, nil
}

func accept(d Decoder) string {
	return fmt.Sprintf("%s,%s;q=0.5", d.Info().MediaType, runtime.ContentTypeJSON)
}
