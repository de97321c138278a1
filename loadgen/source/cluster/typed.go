package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// NewTyped returns client-go's generic client of a resource in a namespace. It sends no request. The
// clientset would do as well; it is compiled with all its groups, 160 packages.
func NewTyped[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object](config *rest.Config, r schema.GroupVersionResource, namespace string, object func() T, list func() L) (*gentype.ClientWithList[T, L], error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	if r.Group == "" {
		config.APIPath = "/api"
	}
	config.GroupVersion = new(r.GroupVersion())
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithList(r.Resource, client, scheme.ParameterCodec, namespace, object, list), nil
}

// ListWatch lists and watches what limit leaves. of is the client that knows whether it streams lists.
func ListWatch[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, limit func(*metav1.ListOptions), of any) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			limit(&opts)
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			limit(&opts)
			return client.Watch(ctx, opts)
		},
	}, of)
}
