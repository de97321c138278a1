package queue

import (
	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// condVariant is a mutex and a condition variable like upstream, without what makes upstream slow:
// keys are not joined into strings; a producer holds the lock for one append to a chain of blocks; the
// consumer takes many at once and folds; handlers run outside the lock; a signal is sent only to a waiting
// consumer; and memory is reused. See [ring.Locked] for the inbox, and [buffered] for the rest.
func condVariant() Variant {
	return ownVariant("cond", "mutex and condition variable: producers append to blocks, the consumer folds, many events at a time",
		impls.OneConsumer, func(o Options) (Queue, error) {
			return newBuffered(o, "cond", ring.NewLocked[item](inboxSize)), nil
		})
}
