package keys

import (
	"fmt"
	"reflect"
	"sync"
)

// UpstreamLen returns a function for the length of a client-go queue (*cache.DeltaFIFO,
// *cache.RealFIFO, *cache.FIFO of v0.37), which has no such method. The function reads the queue's
// field "items" under the queue's own lock. So the result is exact and other operations do not slow
// down; a counting wrapper would slow the baseline. It returns an error if the queue lacks these
// fields, which may happen with a later client-go.
func UpstreamLen(queue any) (func() int, error) {
	v := reflect.ValueOf(queue)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T is not a pointer to a struct", queue)
	}
	lock, items := v.Elem().FieldByName("lock"), v.Elem().FieldByName("items")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() {
		return nil, fmt.Errorf("%T has no field lock of type sync.RWMutex", queue)
	}
	if !items.IsValid() || (items.Kind() != reflect.Map && items.Kind() != reflect.Slice) {
		return nil, fmt.Errorf("%T has no map or slice in a field items", queue)
	}
	// The pointer stays inside the queue, which the reference to items keeps alive.
	mu := (*sync.RWMutex)(lock.Addr().UnsafePointer())
	return func() int {
		mu.RLock()
		defer mu.RUnlock()
		return items.Len()
	}, nil
}
