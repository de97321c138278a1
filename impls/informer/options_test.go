package informer_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

func TestOptions(t *testing.T) {
	lw := newFeed().lw()
	for _, c := range []struct {
		name string
		lw   cache.ListerWatcher
		opts informer.Options
		is   error
		says string
	}{
		{"no source", nil, informer.Options{}, impls.ErrOptions, "no ListerWatcher"},
		{"unknown", lw, informer.Options{Variant: "nobody"}, impls.ErrUnknownVariant, `unknown variant "nobody" (have clientgo-deltafifo`},
		{"inflate", lw, informer.Options{Inflate: "members"}, impls.ErrOptions, `Inflate "members" is set`},
		{"store", lw, informer.Options{Store: "nobody"}, impls.ErrUnknownVariant, `unknown variant "nobody" (have clientgo`},
		{"keys", lw, informer.Options{Queue: deltafifo.Options{KeyFunction: cache.MetaNamespaceKeyFunc}}, impls.ErrOptions, "Queue.KeyFunction"},
		{"known", lw, informer.Options{Queue: deltafifo.Options{KnownObjects: cache.NewStore(nil)}}, impls.ErrOptions, "Queue.KnownObjects"},
		{"transformer", lw, informer.Options{Queue: deltafifo.Options{Transformer: func(o any) (any, error) { return o, nil }}}, impls.ErrOptions, "call SetTransform"},
		{"resync", lw, informer.Options{ResyncPeriod: -1}, impls.ErrOptions, "ResyncPeriod -1ns is negative"},
		{"decoder", lw, informer.Options{Decode: "shared"}, impls.ErrOptions, "use ForResource"},
		{"decoder's options", lw, informer.Options{Decoder: decode.Options{Encoding: decode.JSON}}, impls.ErrOptions, "use ForResource"},
		{"delivery", lw, informer.Options{Variant: "clientgo-deltafifo", Queue: deltafifo.Options{Delivery: deltafifo.InOrder}}, impls.ErrOptions, `allowed: ["per-key"]`},
		{"queue options", lw, informer.Options{Queue: deltafifo.Options{BatchSize: -1}}, impls.ErrOptions, "BatchSize -1"},
	} {
		inf, err := informer.New(c.lw, &v1.Pod{}, c.opts)
		if inf != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: New returned %v, %v; want an error that says %q", c.name, inf, err, c.says)
		}
		if c.lw == nil {
			continue
		}
		if f, err := informer.Func(c.opts); f != nil || !errors.Is(err, c.is) {
			t.Errorf("%s: Func returned an error %v", c.name, err)
		}
		if f, err := informer.ForFactory(&v1.Pod{}, func(int) cache.ListerWatcher { return lw }, c.opts); f != nil || !errors.Is(err, c.is) {
			t.Errorf("%s: ForFactory returned an error %v", c.name, err)
		}
	}
}

// TestDecodeOptions has errors of the constructors with a decoder.
func TestDecodeOptions(t *testing.T) {
	pods, config := v1.SchemeGroupVersion.WithResource("pods"), &rest.Config{}
	// The example must be of a type that the decoder makes.
	for name, example := range map[string]runtime.Object{"shared": &metav1.PartialObjectMetadata{}, "clientgo-json": &Widget{}} {
		if _, err := informer.ForResource(config, pods, example, informer.Options{Decode: name}); !errors.Is(err, impls.ErrOptions) {
			t.Errorf("%s of a %T: %v", name, example, err)
		}
	}
	for _, c := range []struct {
		name   string
		config *rest.Config
		opts   informer.Options
		is     error
	}{
		{"decoder", config, informer.Options{Decode: "nobody"}, impls.ErrUnknownVariant},
		{"decoder's options", config, informer.Options{Decode: "shared", Decoder: decode.Options{Encoding: decode.CBOR}}, impls.ErrOptions},
		{"inflate", config, informer.Options{Inflate: "nobody"}, impls.ErrUnknownVariant},
		{"queue", config, informer.Options{Variant: "nobody"}, impls.ErrUnknownVariant},
		{"config", &rest.Config{Host: "http://[::1"}, informer.Options{}, nil},
	} {
		inf, err := informer.ForResource(c.config, pods, &v1.Pod{}, c.opts)
		if inf != nil || err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: ForResource returned %v, %v", c.name, inf, err)
		}
		_, f, err := informer.ForManager(c.config, c.opts)
		if f != nil || err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: ForManager returned %v", c.name, err)
		}
	}
	if _, err := informer.ForResource(config, pods, &v1.Pod{}, informer.Options{}); err != nil {
		t.Errorf("without a decoder: %v", err)
	}
}

// TestInflate: lists and watches are asked for as the variant says.
func TestInflate(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("the server is asked for %q", got)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer server.Close()
	opts, config := informer.Options{Inflate: "none"}, &rest.Config{Host: server.URL}
	inf, err1 := informer.ForResource(config, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, opts)
	config, _, err2 := informer.ForManager(config, opts)
	client, err3 := rest.HTTPClientFor(config)
	noError(t, errors.Join(err1, err2, err3))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	<-asked
	stop()
	running.Wait()
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	client.CloseIdleConnections()
}

// TestQueueOptions checks the options of the queue. Queues that can lend do so, unless HandOver is set.
func TestQueueOptions(t *testing.T) {
	for _, c := range []struct {
		variant  string
		set      deltafifo.Options
		delivery deltafifo.Delivery
		handOver impls.Ownership
	}{
		{"cond", deltafifo.Options{}, deltafifo.InOrder, impls.Lent},
		{"cond", deltafifo.Options{Delivery: deltafifo.InOrder, HandOver: impls.Owned}, deltafifo.InOrder, impls.Owned},
		{"cond", deltafifo.Options{Delivery: deltafifo.PerKey}, deltafifo.PerKey, impls.Lent},
		{"clientgo-realfifo-batch", deltafifo.Options{}, deltafifo.InOrder, ""},
		{"clientgo-deltafifo", deltafifo.Options{}, deltafifo.PerKey, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got deltafifo.Options
			src := newSource(t)
			inf := newInformer(t, src, informer.Options{Variant: c.variant, Queue: c.set})
			informer.SetBuild(inf, func(o deltafifo.Options) (deltafifo.Queue, error) {
				got = o
				return deltafifo.New(c.variant, o)
			})
			run(t, inf)
			wait(t, inf.HasSyncedChecker())
			var known cache.KeyListerGetter
			if c.delivery == deltafifo.PerKey {
				known = inf.GetIndexer()
			}
			if got.Delivery != c.delivery || got.HandOver != c.handOver || !got.Throttle || got.KnownObjects != known {
				t.Errorf("%s with %+v: the queue was built with %+v", c.variant, c.set, got)
			}
		})
	}
}

// TestShapes checks the signatures against their callers.
func TestShapes(t *testing.T) {
	// controller-runtime v0.25.2, pkg/cache, Options.NewInformer.
	type newInformer = func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer
	byName := func(obj any) ([]string, error) { return []string{obj.(*v1.Pod).Name}, nil }
	nobody := func(any) ([]string, error) { return nil, nil }
	var chosen newInformer
	chosen, err := informer.Func(informer.Options{
		Queue:    deltafifo.Options{Delivery: deltafifo.PerKey},
		Indexers: cache.Indexers{"name": byName, "both": nobody},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]newInformer{"NewSharedIndexInformer": informer.NewSharedIndexInformer, "Func": chosen} {
		synctest.Test(t, func(t *testing.T) {
			src := newSource(t)
			src.Add(pod("a"))
			inf := f(src, &v1.Pod{}, 2*time.Second, cache.Indexers{"both": byName})
			h := &clock{start: time.Now()}
			addHandler(t, inf, h)
			run(t, inf)
			wait(t, inf.HasSyncedChecker())
			if got, err := inf.GetIndexer().ByIndex("both", "a"); err != nil || len(got) != 1 {
				t.Errorf("%s: the caller's index has %v, %v", name, got, err)
			}
			if _, err := inf.GetIndexer().ByIndex("name", "a"); (err == nil) != (name == "Func") {
				t.Errorf("%s: the index of the options: %v", name, err)
			}
			time.Sleep(3 * time.Second)
			if got := h.times(); len(got) != 1 {
				t.Errorf("%s: resyncs at seconds %v of 3, want one", name, got)
			}
		})
	}

	var _ internalinterfaces.NewInformerFunc
	forFactory, err := informer.ForFactory(&v1.Pod{}, func(kubernetes.Interface) cache.ListerWatcher { return newFeed().lw() }, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var factory internalinterfaces.NewInformerFunc = forFactory
	if inf := factory(nil, -time.Second); inf.HasSyncedChecker().Name() != "SharedIndexInformer *v1.Pod" {
		t.Errorf("ForFactory makes %q", inf.HasSyncedChecker().Name())
	}
}

// TestReadOnlyRefusesTransforms: an object that shares memory with others goes to no transform.
func TestReadOnlyRefusesTransforms(t *testing.T) {
	config, strip := &rest.Config{Host: "http://127.0.0.1:1"}, func(obj any) (any, error) { return obj, nil }
	for _, name := range []string{"shared", "shared-readonly"} {
		opts := informer.Options{Decode: name}
		resource := must(informer.ForResource(config, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, opts))(t)
		_, managed, err := informer.ForManager(config, opts)
		if err != nil {
			t.Fatal(err)
		}
		for constructor, inf := range map[string]cache.SharedIndexInformer{
			"ForResource": resource, "ForManager": managed(newFeed().lw(), &v1.Pod{}, 0, nil),
		} {
			if err := inf.SetTransform(nil); err != nil {
				t.Errorf("%s with %s: no transform: %v", constructor, name, err)
			}
			if err := inf.SetTransform(strip); errors.Is(err, impls.ErrOptions) != (name == "shared-readonly") {
				t.Errorf("%s with %s: a transform: %v", constructor, name, err)
			}
		}
	}
}
