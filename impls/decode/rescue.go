package decode

import (
	"fmt"
	"runtime/debug"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Panics returns the number of panics of the decoders of a table. Each is a bug of this package. The
// decoder logs it with its stack, and client-go's decoder decodes the object, so that nobody who may
// write an object can end the process that reads it.
func (t *Table) Panics() int64 { return t.panics.Load() }

// rescue, when deferred, recovers from a panic: then there is no decoded object.
func (t *Table) rescue(obj *kruntime.Object) {
	if t.recovered(recover()) {
		*obj = nil
	}
}

// recovered reports whether there was a panic.
func (t *Table) recovered(v any) bool {
	if v == nil {
		return false
	}
	t.panics.Add(1)
	utilruntime.HandleError(fmt.Errorf("decode: %v\n%s", v, debug.Stack()))
	return true
}
