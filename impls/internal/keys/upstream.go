package keys

import (
	"fmt"
	"reflect"
	"sync"
)

// UpstreamLen returns a function that returns how many items one of client-go's
// queues has (*cache.DeltaFIFO, *cache.RealFIFO, *cache.FIFO of v0.37), which
// have no such method. The function reads the queue's own field "items"
// under the queue's own lock, so that asking is exact and the queue's other
// operations cost what they cost without it; a wrapper that counts would slow
// the baseline down. It returns an error where the queue has not these fields,
// as a later client-go may not.
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
	// The pointer stays within the queue, which items keeps alive.
	mu := (*sync.RWMutex)(lock.Addr().UnsafePointer())
	return func() int {
		mu.RLock()
		defer mu.RUnlock()
		return items.Len()
	}, nil
}
