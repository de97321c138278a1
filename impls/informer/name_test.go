package informer_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/informer"
)

func aFunction(any)       {}
func anotherOne(_, _ any) {}

type aHandler struct{}

func (aHandler) OnAdd(any, bool)   {}
func (aHandler) OnUpdate(any, any) {}
func (aHandler) OnDelete(any)      {}
func (aHandler) aMethod(any)       {}

type generic[T any] struct{ aHandler }

// TestHandlerNames compares the names with those that client-go gives.
func TestHandlerNames(t *testing.T) {
	src := newSource(t)
	theirs := cache.NewSharedIndexInformer(src, &v1.Pod{}, 0, cache.Indexers{})
	ours := newInformer(t, src, informer.Options{})
	closure := func(any) {}
	for _, h := range []cache.ResourceEventHandler{
		aHandler{},
		&aHandler{},
		generic[int]{},
		struct{ aHandler }{},
		&recorder{},
		cache.ResourceEventHandlerFuncs{},
		cache.ResourceEventHandlerFuncs{AddFunc: aFunction},
		cache.ResourceEventHandlerFuncs{AddFunc: aFunction, UpdateFunc: anotherOne, DeleteFunc: aFunction},
		&cache.ResourceEventHandlerFuncs{AddFunc: closure, DeleteFunc: closure},
		cache.ResourceEventHandlerFuncs{AddFunc: aFunction, DeleteFunc: closure},
		cache.ResourceEventHandlerFuncs{AddFunc: aHandler{}.aMethod, DeleteFunc: aHandler{}.OnDelete},
		cache.ResourceEventHandlerDetailedFuncs{},
		cache.FilteringResourceEventHandler{},
		&cache.FilteringResourceEventHandler{},
	} {
		want, err := theirs.AddEventHandler(h)
		if err != nil {
			t.Fatal(err)
		}
		if got := addHandler(t, ours, h); got.HasSyncedChecker().Name() != want.HasSyncedChecker().Name() {
			t.Errorf("%T is called %q, upstream %q", h, got.HasSyncedChecker().Name(), want.HasSyncedChecker().Name())
		}
	}
}
