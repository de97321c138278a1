package informer_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// shardedServer serves the pods of a recorded loss of a node.
func shardedServer(t *testing.T, opts apiserver.Options) (*apiserver.Server, *storm.Storm, *rest.Config) {
	t.Helper()
	s := must(trace.Load("recorded-nodeloss"))(t)
	p := must(apiserver.Prepare(s, wire.Protobuf, true))(t)
	srv := must(apiserver.Open(opts, p))(t)
	url := must(srv.Start())(t)
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv, s, &rest.Config{Host: url, QPS: -1}
}

func runSharded(t *testing.T, i cache.SharedIndexInformer) {
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { i.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("the informer does not get there in two minutes")
		}
	}
}

// TestShards: an informer of several shards has what the server has, also after its connections broke, and each object's
// notifications are in order.
func TestShards(t *testing.T) {
	srv, s, config := shardedServer(t, apiserver.Options{ShardedListAndWatch: true})
	i, err := informer.ForResource(config, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, informer.Options{
		Shards: 3, Decode: "shared", Decoder: decode.Options{Encoding: decode.Protobuf},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	newest, added := map[string]uint64{}, map[string]int{}
	note := func(obj any) {
		o := obj.(metav1.Object)
		version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		mu.Lock()
		defer mu.Unlock()
		if key := string(o.GetUID()); version < newest[key] {
			t.Errorf("%s at version %d after %d", o.GetName(), version, newest[key])
		} else {
			newest[key] = version
		}
	}
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			note(obj)
			mu.Lock()
			defer mu.Unlock()
			added[string(obj.(metav1.Object).GetUID())]++
		},
		UpdateFunc: func(_, obj any) { note(obj) },
	}); err != nil {
		t.Fatal(err)
	}
	runSharded(t, i)
	for from := s.Initial; from < len(s.Events); {
		from = min(from+len(s.Events)/4+1, len(s.Events))
		srv.Release(uint64(from))
		want := map[string]string{}
		for _, e := range s.Events[:from] {
			if want[e.Key] = e.Object.(metav1.Object).GetResourceVersion(); e.Type == watch.Deleted {
				delete(want, e.Key)
			}
		}
		eventually(t, func() bool {
			for key, version := range want {
				if obj, ok, _ := i.GetStore().GetByKey(key); !ok || obj.(metav1.Object).GetResourceVersion() != version {
					return false
				}
			}
			return len(i.GetStore().ListKeys()) == len(want)
		})
		srv.Disconnect()
	}
	mu.Lock()
	defer mu.Unlock()
	for uid, n := range added {
		if n != 1 {
			t.Errorf("%s was added %d times", uid, n)
		}
	}
	if got := i.GetStore().LastStoreSyncResourceVersion(); got != "" {
		t.Errorf("the store claims to have all up to version %s", got)
	}
}

// TestShardsGoOn: a watch goes on where each shard was, whatever version it is asked for: each event comes once. A
// namespace is in one shard, so that an object that is made again under its name does not meet its own deletion.
func TestShardsGoOn(t *testing.T) {
	srv, s, config := shardedServer(t, apiserver.Options{ShardedListAndWatch: true})
	d := must(decode.New("shared", decode.Options{Encoding: decode.Protobuf}))(t)
	lw := must(decode.NewListWatch(config, d, v1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, nil))(t)
	var mu sync.Mutex
	in := map[string]string{} // shard by namespace
	spy := &cache.ListWatch{WatchFuncWithContext: lw.WatchFuncWithContext, ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := lw.ListWithContextFunc(ctx, o)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, item := range list.(*decode.List).Items {
			namespace := item.(metav1.Object).GetNamespace()
			if other := in[namespace]; other != "" && other != o.ShardSelector {
				t.Errorf("%s is in two shards", namespace)
			}
			in[namespace] = o.ShardSelector
		}
		return list, nil
	}}
	shards := cache.ToListerWatcherWithContext(informer.Sharded(spy, 5))
	list, err := shards.ListWithContext(t.Context(), metav1.ListOptions{})
	if l, ok := list.(*decode.List); err != nil || !ok || len(l.Items) != s.Initial || l.ResourceVersion != strconv.Itoa(s.Initial) {
		t.Fatalf("%v, %v", list, err)
	}
	srv.Release(uint64(len(s.Events)))
	came, all := map[string]int{}, len(s.Events)-s.Initial
	for len(came) < all {
		w := must(shards.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))(t)
		for e := range w.ResultChan() {
			if came[e.Object.(metav1.Object).GetResourceVersion()]++; len(came)%300 == 0 || len(came) == all {
				break
			}
		}
		w.Stop()
	}
	for version, n := range came {
		if n != 1 {
			t.Errorf("version %s came %d times", version, n)
		}
	}
}

// TestShardsRefused: a server that ignores the parameter fills no informer.
func TestShardsRefused(t *testing.T) {
	srv, _, config := shardedServer(t, apiserver.Options{})
	pods := v1.SchemeGroupVersion.WithResource("pods")
	i := must(informer.ForResource(config, pods, &v1.Pod{}, informer.Options{Shards: 2}))(t)
	runSharded(t, i)
	eventually(t, func() bool { return srv.Watches() >= 4 }) // It has tried twice.
	if got := len(i.GetStore().ListKeys()); i.HasSynced() || got > 0 {
		t.Errorf("synced with %d objects", got)
	}
	for _, n := range []int{-1, 65} {
		if _, err := informer.ForResource(config, pods, &v1.Pod{}, informer.Options{Shards: n}); !errors.Is(err, impls.ErrOptions) {
			t.Errorf("%d shards: %v", n, err)
		}
	}
}
