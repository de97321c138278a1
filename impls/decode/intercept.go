package decode

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Intercept puts decoders behind clients that set their own serializer, such as a generated clientset
// or those of controller-runtime's cache. It returns a config for such a client, and a function that
// lets a ListerWatcher of the client decode with a decoder:
//
//	config, with, err := decode.Intercept(config)
//	client, err := kubernetes.NewForConfig(config)
//	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "default", fields.Everything())
//	decoding, err := with(lw, decoder)
//
// That ListerWatcher asks the client as before. The transport of the config does not send the request
// but keeps its URL. A REST client with the decoder then sends it. So the URL, with namespace,
// selectors and all options, is the client's. Retries, errors and authentication are those of
// [NewRESTClient]. The client's metrics count one failed request for each list and watch, and its
// other requests are not touched. Neither is a request that asks for another form of the objects by a
// parameter of its Accept header, such as PartialObjectMetadata or a Table: its answer is the client's.
// A ListerWatcher whose client has another config works as before.
// A decoder that is [ReadOnly] is refused, unless it is marked [Untransformed].
func Intercept(c *rest.Config) (*rest.Config, func(cache.ListerWatcher, Decoder) (cache.ListerWatcher, error), error) {
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, nil, fmt.Errorf("decode: %w", err)
	}
	own, intercepted := rest.CopyConfig(c), rest.CopyConfig(c)
	own.Host = base.Scheme + "://" + base.Host // without its path, which the URLs have
	intercepted.Wrap(func(rt http.RoundTripper) http.RoundTripper { return interceptor{rt} })
	return intercepted, func(lw cache.ListerWatcher, d Decoder) (cache.ListerWatcher, error) {
		if err := changeable(d); err != nil {
			return nil, err
		}
		client, err := newRESTClient(own, d, schema.GroupVersion{Version: "v1"})
		if err != nil {
			return nil, err
		}
		inner := cache.ToListerWatcherWithContext(lw)
		request := func(u *url.URL) *rest.Request {
			// The resource, which ends the path, stands in the errors.
			above := *u
			above.Path, above.RawPath = path.Dir(u.Path), ""
			return client.Get().SetHeader("Accept", accept(d)).RequestURI(above.RequestURI()).Resource(path.Base(u.Path))
		}
		return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				keeping, u := keepURL(ctx)
				if list, err := inner.ListWithContext(keeping, o); u.Path == "" {
					return list, err
				}
				l := &List{}
				return l, request(u).Do(ctx).Into(l)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				keeping, u := keepURL(ctx)
				if w, err := inner.WatchWithContext(keeping, o); u.Path == "" {
					return w, err
				}
				return request(u).Watch(ctx)
			},
		}, lw), nil
	}, nil
}

// kept is the key of the URL of an intercepted request in its context.
type kept struct{}

func keepURL(ctx context.Context) (context.Context, *url.URL) {
	u := &url.URL{}
	return context.WithValue(ctx, kept{}, u), u
}

var errIntercepted = errors.New("decode: the request is sent by another client")

// interceptor keeps the URL of a request whose context asks for that, and sends all others.
type interceptor struct{ http.RoundTripper }

func (i interceptor) RoundTrip(r *http.Request) (*http.Response, error) {
	if u, ok := r.Context().Value(kept{}).(*url.URL); ok && !converts(r.Header.Values("Accept")) {
		*u = *r.URL
		return nil, errIntercepted
	}
	return i.RoundTripper.RoundTrip(r)
}

// converts reports whether an Accept header asks the server to convert the objects: a media type of
// it has a parameter other than its weight.
func converts(accepts []string) bool {
	for _, header := range accepts {
		for media := range strings.SplitSeq(header, ",") {
			_, params, err := mime.ParseMediaType(media)
			if delete(params, "q"); err != nil && media != "" || len(params) > 0 {
				return true
			}
		}
	}
	return false
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (i interceptor) WrappedRoundTripper() http.RoundTripper { return i.RoundTripper }
