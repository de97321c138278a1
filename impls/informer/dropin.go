package informer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/inflate"
)

// NewSharedIndexInformer is [cache.NewSharedIndexInformer] with the queue [DefaultVariant]. It has
// the shape of controller-runtime's cache.Options.NewInformer:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{NewInformer: informer.NewSharedIndexInformer}})
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	b, err := Options{}.blueprint()
	if err != nil {
		// This is a bug: package deltafifo registers the default variant.
		panic(err)
	}
	return newInformer(lw, example, Options{ResyncPeriod: max(0, resync), Indexers: indexers}, b)
}

// Func returns a [NewSharedIndexInformer] with the queue of opts. The arguments of the returned
// function set the resync period and the indexers. Indexers of opts are added; for the same name
// the argument wins. The error is that of [New], so the returned function has none.
func Func(opts Options) (func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer, error) {
	b, err := opts.checked()
	if err != nil {
		return nil, err
	}
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		return build(lw, example, opts, resync, indexers, b)
	}, nil
}

func build(lw cache.ListerWatcher, example runtime.Object, opts Options, resync time.Duration, indexers cache.Indexers, b blueprint) *informer {
	own := opts.Indexers
	opts.ResyncPeriod, opts.Indexers = max(0, resync), cache.Indexers{}
	maps.Copy(opts.Indexers, own)
	maps.Copy(opts.Indexers, indexers)
	return newInformer(lw, example, opts, b)
}

// ForFactory returns the constructor for InformerFor of a client-go SharedInformerFactory with a
// client of type C, such as kubernetes.Interface. If it is registered before the first use of the
// type, the listers of the factory share this informer:
//
//	newPods, err := informer.ForFactory(&v1.Pod{}, listPods, opts)
//	factory.InformerFor(&v1.Pod{}, newPods)
//	factory.Core().V1().Pods().Lister()
//
// Generated informers of client-go have a namespace index for their listers;
// opts.Indexers should have it too. The error is that of [New].
func ForFactory[C any](example runtime.Object, lw func(C) cache.ListerWatcher, opts Options) (func(C, time.Duration) cache.SharedIndexInformer, error) {
	newInformer, err := Func(opts)
	if err != nil {
		return nil, err
	}
	return func(client C, resync time.Duration) cache.SharedIndexInformer {
		return newInformer(lw(client), example, resync, nil)
	}, nil
}

// ForResource returns an informer of a resource of all namespaces, with a client of its own that
// decodes with Options.Decode. For one namespace or a selector, give [New] a [decode.NewListWatch].
//
// example has the type of the decoded objects: a Go type of Decoder.Scheme, or an unstructured object.
// If Decoder.Encoding is empty, groups that
// client-go's scheme lacks, such as those of custom resources, and unstructured objects come as JSON.
//
// In a client-go SharedInformerFactory:
//
//	pods, err := informer.ForResource(config, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, opts)
//	factory.InformerFor(&v1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return pods })
//
// With a decoder that is [decode.ReadOnly], SetTransform returns an error. The error is that of [New] and
// of [decode.New].
func ForResource(config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object, opts Options) (cache.SharedIndexInformer, error) {
	if opts.Decoder.Encoding == "" && !scheme.Scheme.IsVersionRegistered(gvr.GroupVersion()) {
		opts.Decoder.Encoding = decode.JSON
	}
	d, err := decoderOf(cmp.Or(opts.Decode, DefaultDecode), opts.Decoder, example)
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	in, err := inflate.New(cmp.Or(opts.Inflate, inflate.Default), inflate.Options{})
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	lw, err := decode.NewListWatch(in.Config(config), decode.Untransformed(d), gvr, metav1.NamespaceAll, nil)
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	opts.Decode, opts.Decoder, opts.Inflate = "", decode.Options{}, ""
	b, err := opts.checked()
	if err != nil {
		return nil, err
	}
	b.readOnly = decode.ReadOnly(d)
	return newInformer(ofType(lw, example), example, opts, b), nil
}

// ForManager returns a config for a manager of controller-runtime and the NewInformer of its cache,
// whose informers decode with Options.Decode:
//
//	config, newInformer, err := informer.ForManager(config, informer.Options{Decode: "shared"})
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{NewInformer: newInformer}})
//
// controller-runtime (v0.25.2, apiutil.RESTClientForGVK) gives each REST client a serializer of its
// own, and no option changes that. So the informers list and watch by [decode.Intercept]: namespaces,
// selectors and all else stay as controller-runtime asks for them.
//
// The informers share one table. Types that client-go's scheme has are decoded from
// Options.Decoder.Encoding, other types and unstructured objects from JSON if it is empty. Decoder.Scheme
// should be the manager's. What the decoder cannot make is decoded by controller-runtime: types that
// the scheme lacks, metadata, an encoding that the variant lacks, and everything of a cache whose
// HTTPClient is not made of the returned config.
//
// With a decoder that is [decode.ReadOnly], the cache fails to make an informer that has a transform. The
// error is that of [New] and of [decode.New].
func ForManager(config *rest.Config, opts Options) (*rest.Config, func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer, error) {
	name, of := cmp.Or(opts.Decode, DefaultDecode), opts.Decoder
	opts.Decode, opts.Decoder = "", decode.Options{}
	of.Scheme = cmp.Or(of.Scheme, scheme.Scheme)
	of.Table = cmp.Or(of.Table, decode.NewTable(0))
	if _, err := decode.New(name, of); err != nil {
		return nil, nil, fmt.Errorf("informer: %w", err)
	}
	in, err := inflate.New(cmp.Or(opts.Inflate, inflate.Default), inflate.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("informer: %w", err)
	}
	opts.Inflate = ""
	b, err := opts.checked()
	if err != nil {
		return nil, nil, err
	}
	config, with, err := decode.Intercept(in.Config(config))
	if err != nil {
		return nil, nil, fmt.Errorf("informer: %w", err)
	}
	return config, func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		b := b
		if d, err := decoderOf(name, of, example); err == nil {
			if decoding, err := with(lw, decode.Untransformed(d)); err == nil {
				lw, b.readOnly = ofType(decoding, example), decode.ReadOnly(d)
			}
		}
		return build(lw, example, opts, resync, indexers, b)
	}, nil
}

// ofType returns a ListerWatcher that refuses a list of other objects than example. The decoder makes
// what the answer says, and client-go's Reflector checks the type of watched objects only.
func ofType(lw cache.ListerWatcher, example runtime.Object) cache.ListerWatcher {
	inner, want := cache.ToListerWatcherWithContext(lw), reflect.TypeOf(example)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			if l, ok := list.(*decode.List); ok && err == nil {
				for _, item := range l.Items {
					if reflect.TypeOf(item) != want {
						return nil, fmt.Errorf("informer: the answer to a list has a %T (want %v)", item, want)
					}
				}
			}
			return list, err
		},
		WatchFuncWithContext: inner.WatchWithContext,
	}, lw)
}

// decoderOf returns the decoder of objects like example, whose type decides the encoding if o has none:
// the API server has no protobuf for custom resources.
func decoderOf(name string, o decode.Options, example runtime.Object) (decode.Decoder, error) {
	_, partial := example.(*metav1.PartialObjectMetadata)
	_, o.Unstructured = example.(runtime.Unstructured)
	if partial {
		return nil, fmt.Errorf("%w: no decoder makes a %T", impls.ErrOptions, example)
	}
	if builtIn, _, _ := scheme.Scheme.ObjectKinds(example); o.Encoding == "" && (o.Unstructured || len(builtIn) == 0) {
		o.Encoding = decode.JSON
	}
	if !o.Unstructured {
		if _, _, err := cmp.Or(o.Scheme, scheme.Scheme).ObjectKinds(example); err != nil {
			return nil, fmt.Errorf("%w: Decoder.Scheme: %w", impls.ErrOptions, err)
		}
	}
	return decode.New(name, o)
}
