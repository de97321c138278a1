package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
)

// TestReadYourWrites: with each queue and delivery, and with merged notifications, a client with
// EnableReadYourWritesConsistency reads what it has created, updated and deleted, and each read returns.
// Its handler is behind, so that the addition and the deletion of an object wait together.
func TestReadYourWrites(t *testing.T) {
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			for _, h := range []informer.Handlers{{}, {Coalesce: true}} {
				t.Run(fmt.Sprintf("impl=%s/delivery=%s/coalesce=%t", v.Name, g.Mode, h.Coalesce), func(t *testing.T) {
					t.Parallel()
					testReadYourWrites(t, informer.Options{Variant: v.Name, Queue: deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)}, Handlers: h, Decode: "shared"})
				})
			}
		}
	}
}

func testReadYourWrites(t *testing.T, opts informer.Options) {
	srv := must(apiserver.Open(apiserver.Options{}))(t)
	url := must(srv.Start())(t)
	transport := &http.Transport{}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	config, newInformer, err := informer.ForManager(&rest.Config{Host: url, Transport: transport, QPS: -1}, opts)
	if err != nil {
		t.Fatal(err)
	}
	gate := &sync.RWMutex{}
	made := startCache(t, config, cache.Options{NewInformer: func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return gated{newInformer(lw, example, resync, indexers), gate}
	}})
	c, err := client.New(config, client.Options{Cache: &client.CacheOptions{Reader: made, EnableReadYourWritesConsistency: new(true)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("a read has not returned in 2 minutes"))
	defer cancel()
	object := func(name string) *v1.ConfigMap {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v (%v)", what, err, context.Cause(ctx))
		}
	}
	read := func(what string, obj *v1.ConfigMap, gone bool) {
		t.Helper()
		var got v1.ConfigMap
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), &got)
		if apierrors.IsNotFound(err) != gone || !gone && (err != nil || got.ResourceVersion != obj.ResourceVersion) {
			t.Fatalf("%s: read %q of %q: %v (%v)", what, got.ResourceVersion, obj.ResourceVersion, err, context.Cause(ctx))
		}
		do("list", c.List(ctx, &v1.ConfigMapList{}))
	}
	for n := range 6 { // The name is used again, as in a StatefulSet.
		obj, first, last := object("own"), object(fmt.Sprint("first-", n)), object(fmt.Sprint("last-", n))
		do("create", c.Create(ctx, obj))
		read("created", obj, false)
		obj.Data = map[string]string{"a": "b"}
		do("update", c.Update(ctx, obj))
		read("updated", obj, false)
		do("delete", c.Delete(ctx, obj))
		read("deleted", obj, true)
		// The handler holds first, and all else waits.
		obj = object("own")
		gate.Lock()
		do("create", c.Create(ctx, first))
		do("create", c.Create(ctx, obj))
		do("delete", c.Delete(ctx, obj))
		do("create", c.Create(ctx, last))
		for made.Get(ctx, client.ObjectKeyFromObject(last), &v1.ConfigMap{}) != nil {
			if pause(ctx, time.Millisecond); ctx.Err() != nil {
				t.Fatal("the cache has not got the last object in 2 minutes")
			}
		}
		gate.Unlock()
		read("came and went", obj, true)
	}
}

// gated is an informer whose handlers wait at a gate before each call.
type gated struct {
	toolscache.SharedIndexInformer
	gate *sync.RWMutex
}

func (g gated) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	pass := func() {
		g.gate.RLock()
		defer g.gate.RUnlock()
	}
	return g.SharedIndexInformer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { pass(); h.OnAdd(obj, initial) },
		UpdateFunc: func(old, obj any) { pass(); h.OnUpdate(old, obj) },
		DeleteFunc: func(obj any) { pass(); h.OnDelete(obj) },
	})
}
