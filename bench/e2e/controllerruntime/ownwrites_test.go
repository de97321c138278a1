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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
)

// TestReadYourWrites: with each queue and delivery and each bound of the handlers' backlogs, a client with
// EnableReadYourWritesConsistency reads what it has created, updated and deleted, and each read returns.
// The watch stalls now and then, so that the addition and the deletion of an object come together.
func TestReadYourWrites(t *testing.T) {
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			for _, h := range []informer.Handlers{{}, {Backlog: 1}, {Coalesce: true}, {Backlog: 1, Coalesce: true}} {
				t.Run(fmt.Sprintf("impl=%s/delivery=%s/backlog=%d/coalesce=%t", v.Name, g.Mode, h.Backlog, h.Coalesce), func(t *testing.T) {
					t.Parallel()
					testReadYourWrites(t, informer.Options{Variant: v.Name, Queue: deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)}, Handlers: h, Decode: "shared"})
				})
			}
		}
	}
}

func testReadYourWrites(t *testing.T, opts informer.Options) {
	specs, err := fault.ParseAll("stall:every=20ms,duration=10ms")
	if err != nil {
		t.Fatal(err)
	}
	inj, err := fault.New(specs, 1)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.Open(apiserver.Options{Wrap: inj.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	config, newInformer, err := informer.ForManager(&rest.Config{Host: url, Transport: transport, QPS: -1}, opts)
	if err != nil {
		t.Fatal(err)
	}
	made, err := cache.New(config, cache.Options{NewInformer: newInformer})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Cache: &client.CacheOptions{Reader: made, EnableReadYourWritesConsistency: new(true)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("a read has not returned in 2 minutes"))
	var running sync.WaitGroup
	running.Go(func() {
		if err := made.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() {
		cancel()
		inj.Stop()
		running.Wait()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	}()
	if err := inj.Start(); err != nil {
		t.Fatal(err)
	}
	// The name is used again, as in a StatefulSet, and the reads come at each place in turn.
	for n := range 12 {
		obj := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("own-", n%4)}}
		key := client.ObjectKeyFromObject(obj)
		for step, write := range []func() error{
			func() error { return c.Create(ctx, obj) },
			func() error { obj.Data = map[string]string{"a": "b"}; return c.Update(ctx, obj) },
			func() error { return c.Delete(ctx, obj) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if n%3 < 2 && n%3 != step && step != 2 {
				continue
			}
			var got v1.ConfigMap
			var list v1.ConfigMapList
			err := c.Get(ctx, key, &got)
			switch gone := apierrors.IsNotFound(err); {
			case step == 2 && !gone, step < 2 && (err != nil || got.ResourceVersion != obj.ResourceVersion):
				t.Fatalf("round %d, step %d: read %q of %q: %v (%v)", n, step, got.ResourceVersion, obj.ResourceVersion, err, context.Cause(ctx))
			}
			if err := c.List(ctx, &list); err != nil {
				t.Fatalf("round %d, step %d: %v (%v)", n, step, err, context.Cause(ctx))
			}
		}
	}
}
