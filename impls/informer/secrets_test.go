package informer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

const canary = "hunter2"

func secret(n int) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("s", n), ResourceVersion: fmt.Sprint(n + 1)},
		StringData: map[string]string{"password": canary},
	}
}

// stopSecrets runs an informer of Secrets, a list and a stream of changes, until the test has
// cancelled it, and fails where a log or the watch error handler receives something.
func stopSecrets(t *testing.T, opts informer.Options, set func(inf cache.SharedIndexInformer, cancel func())) {
	state := klog.CaptureState()
	defer state.Restore()
	var mu sync.Mutex
	logged := 0
	klog.SetLogger(funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(args, canary) || strings.Contains(args, "\"error\"") {
			if logged++; logged < 3 {
				t.Errorf("the log has %.300s", args)
			}
		}
	}, funcr.Options{Verbosity: 10}))
	changes := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
	for n := range 60 {
		[]func(runtime.Object){changes.Add, changes.Modify, changes.Delete}[n%3](secret(n / 2))
	}
	inf, err := informer.New(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1.Secret{*secret(0), *secret(1)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return changes, nil },
	}, source{}), &v1.Secret{}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		t.Errorf("the watch error handler received %v", err)
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	set(inf, cancel)
	inf.RunWithContext(ctx)
}

// TestStopWhileBusy: the Reflector logs the object of a call that fails, here a Secret. So no call
// fails because the informer stops, also not one that waits for room.
func TestStopWhileBusy(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		if isBaseline(t, opts) {
			t.Skip("it holds its lock while the indexer stores")
		}
		if opts.Queue.Capacity == 7 {
			opts.Queue.Capacity = 4
		}
		release := make(chan struct{})
		opts.WrapIndexer = func(i cache.Indexer) cache.Indexer { return &busyIndexer{Indexer: i, release: release} }
		stopSecrets(t, opts, func(_ cache.SharedIndexInformer, cancel func()) {
			go func() {
				synctest.Wait()
				cancel()
				synctest.Wait()
				close(release)
			}()
		})
	})
}

// busyIndexer blocks the consumer.
type busyIndexer struct {
	cache.Indexer
	release chan struct{}
}

func (i *busyIndexer) Add(obj any) error {
	<-i.release
	return i.Indexer.Add(obj)
}

func (i *busyIndexer) Replace(list []any, resourceVersion string) error {
	<-i.release
	return i.Indexer.Replace(list, resourceVersion)
}

// TestStopDuringTransform stops while the transformer runs on a list.
func TestStopDuringTransform(t *testing.T) {
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		stopSecrets(t, opts, func(inf cache.SharedIndexInformer, cancel func()) {
			if err := inf.SetTransform(func(obj any) (any, error) {
				cancel()
				if !isBaseline(t, opts) { // They hold the lock that Close waits for.
					synctest.Wait()
				}
				return obj, nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func isBaseline(t *testing.T, opts informer.Options) bool {
	t.Helper()
	v := must(deltafifo.Lookup(opts.Variant))(t)
	return v.Baseline()
}
